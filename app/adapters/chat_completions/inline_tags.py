"""Take reasoning and tool calls out of a text in which a model wrote them between tags.

White space around what is taken out: what stood before the opening tag stays if visible text follows later,
else what stood after the closing tag; where no text came before, none stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from app.core import json_text

Kind = Literal["text", "think", "tool_call"]

_TAGS: Final[dict[Kind, tuple[str, str]]] = {
    "think": ("<think>", "</think>"),
    "tool_call": ("<tool_call>", "</tool_call>"),
}
_LONGEST: Final = max(len(tag) for pair in _TAGS.values() for tag in pair)
_NAME: Final = re.compile(r'"name"\s*:\s*"([^"\\]{1,256})"')


@dataclass(slots=True)
class Passage:
    """A piece of one kind; a tool call comes whole."""

    kind: Kind
    text: str


class TagSplitter:
    """Splits a text that comes in pieces; a tag may be cut anywhere."""

    def __init__(self, kinds: tuple[Kind, ...], max_call_chars: int) -> None:
        """`ValueError` is raised for a tool call of more than `max_call_chars`."""
        self._opening = {_TAGS[kind][0]: kind for kind in kinds}
        self._any_opening = re.compile("|".join(map(re.escape, self._opening)))
        self._max = max_call_chars
        self._inside: Kind = "text"
        self._held = ""
        """The end of what came, which may turn out to be a tag."""
        self._call: list[str] = []
        self._call_chars = 0
        self._space: list[str] = []
        """White space that ends the visible text so far and has not been given."""
        self._gap = ""
        """White space before what was taken out."""
        self._after_block = False
        self._shown = False

    def feed(self, piece: str) -> Iterator[Passage]:
        """What is certain after `piece`."""
        text, self._held = self._held + piece, ""
        while text:
            if self._inside == "text":
                text = yield from self._outside(text)
            else:
                text = yield from self._in_block(text)

    def finish(self) -> Iterator[Passage]:
        """What was held back, now that nothing follows; an unclosed tool call comes as far as it got."""
        held, self._held = self._held, ""
        if self._inside == "tool_call":
            yield from self._block(held)
            yield self._call_taken()
        elif self._inside == "think":
            yield from self._block(held)
        else:
            yield from self._visible(held)
            space = self._space_taken()
            if space and not self._after_block:
                yield Passage("text", space)
        self._inside = "text"

    def _outside(self, text: str) -> Generator[Passage, None, str]:
        """Take visible text up to an opening tag; return what is left to look at."""
        found = self._any_opening.search(text)
        if found is None:
            sure = _sure(text, self._opening)
            self._held = text[sure:]
            yield from self._visible(text[:sure])
            return ""
        yield from self._visible(text[: found.start()])
        space = self._space_taken() if self._shown else ""
        self._gap = (self._gap or space) if self._after_block else space
        self._inside = self._opening[found.group()]
        return text[found.end() :]

    def _in_block(self, text: str) -> Generator[Passage, None, str]:
        closing = _TAGS[self._inside][1]
        end = text.find(closing)
        if end < 0:
            sure = _sure(text, (closing,))
            self._held = text[sure:]
            yield from self._block(text[:sure])
            return ""
        yield from self._block(text[:end])
        if self._inside == "tool_call":
            yield self._call_taken()
        self._inside = "text"
        self._after_block = True
        return text[end + len(closing) :]

    def _block(self, text: str) -> Iterator[Passage]:
        if self._inside == "tool_call":
            self._call.append(text)
            self._call_chars += len(text)
            if self._call_chars > self._max:
                raise ValueError(f"a tool call is longer than {self._max} characters")
        elif text:
            yield Passage("think", text)

    def _call_taken(self) -> Passage:
        passage = Passage("tool_call", "".join(self._call))
        self._call.clear()
        self._call_chars = 0
        return passage

    def _visible(self, text: str) -> Iterator[Passage]:
        rest = text.lstrip()
        self._space.append(text[: len(text) - len(rest)])
        if not rest:
            return
        space = self._space_taken()
        if self._after_block:
            space = (self._gap or space) if self._shown else ""
            self._gap, self._after_block = "", False
        words = rest.rstrip()
        self._space.append(rest[len(words) :])
        self._shown = True
        yield Passage("text", space + words)

    def _space_taken(self) -> str:
        space = "".join(self._space)
        self._space.clear()
        return space


def _sure(text: str, tags: Iterable[str]) -> int:
    """How many characters of `text` can be no part of a tag that goes on in the next piece."""
    start = text.rfind("<", max(0, len(text) - _LONGEST))
    return start if start >= 0 and any(tag.startswith(text[start:]) for tag in tags) else len(text)


def call_in(text: str) -> tuple[str | None, str]:
    """Name and arguments, as JSON text, of what stood between tool call tags.

    What cannot be read has the whole text as its arguments, so that it is reported as malformed.
    """
    try:
        call = json.loads(text)
        name, arguments = call["name"], call.get("arguments", {})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        name, arguments = None, text
    if isinstance(name, str) and name:
        return name, arguments if isinstance(arguments, str) else json_text.dumps(arguments).decode()
    found = _NAME.search(text)
    return (found.group(1) if found else None), text
