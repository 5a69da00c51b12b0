"""What a provider must get back exactly as it sent it, and nobody but the provider can read.

Signed thoughts, results of tools that the provider ran itself, signatures of calls: each is a JSON object,
and stays text so that neither the order of its members nor the digits of its numbers change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Self, TypeVar

MAX_BYTES: Final = 512 * 1024
"""Of all blocks of one answer together, in characters of their JSON; an answer with more keeps none."""

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class OpaqueBlock:
    """One block, and where in its answer it stands."""

    json: str
    """A JSON object, as its provider wrote it."""
    at: int = 0
    """Code points of the answer's text before it."""
    span: int = 0
    """Code points of text, from there on, that belong into the object, which lacks them."""
    calls: int = 0
    """Tool calls of the answer before it."""
    of_call: bool = False
    """Whether the call that follows belongs into the object, which lacks it."""

    def moved(self, by: int) -> OpaqueBlock:
        """The same, so many code points later."""
        return OpaqueBlock(self.json, self.at + by, self.span, self.calls, self.of_call)

    def wire(self) -> dict[str, Any]:
        """The stored and sent form; what is 0 or false is left out."""
        out: dict[str, Any] = {"json": self.json}
        out |= {name: value for name in ("at", "span", "calls", "of_call") if (value := getattr(self, name))}
        return out


@dataclass(frozen=True, slots=True)
class Opaque:
    """The blocks of one answer, and the only one that they are given back to."""

    provider: str
    """Whose wire they came on."""
    model: str
    """The model's name on that wire: a signature that another model made is refused."""
    blocks: Sequence[OpaqueBlock]
    """In the order in which they came."""

    def wire(self) -> dict[str, Any]:
        """The stored and sent form."""
        return {
            "provider": self.provider,
            "model": self.model,
            "blocks": [block.wire() for block in self.blocks],
        }

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """What `wire` gave."""
        blocks = tuple(OpaqueBlock(**block) for block in stored["blocks"])
        return cls(stored["provider"], stored["model"], blocks)


@dataclass(frozen=True, slots=True)
class PausedTurn:
    """An answer as far as its provider got with it before it interrupted itself."""

    text: str
    blocks: Sequence[OpaqueBlock] = ()


@dataclass(frozen=True, slots=True)
class Part(Generic[C]):
    """A stretch of an answer: some text, a call, or a block by itself; a text or a call may have a block."""

    text: str = ""
    call: C | None = None
    block: OpaqueBlock | None = None


def in_order(text: str, calls: Sequence[C], blocks: Sequence[OpaqueBlock]) -> Iterator[Part[C]]:
    """An answer as it was said: its text cut where a block stands, and its calls."""
    said = called = 0
    for block in blocks:
        if before := text[said : block.at]:
            yield Part(before)
        said = max(said, block.at)
        for call in calls[called : block.calls]:
            yield Part(call=call)
        called = max(called, block.calls)
        if block.of_call:
            if called < len(calls):
                yield Part(call=calls[called], block=block)
                called += 1
            continue
        end = max(said, block.at + block.span)
        if not block.span or text[said:end]:
            yield Part(text[said:end], block=block)
        said = end
    if said < len(text):
        yield Part(text[said:])
    for call in calls[called:]:
        yield Part(call=call)


def filled(json: str, member: str) -> str:
    """The object with one member more, which is given as JSON text, before its own."""
    rest = json[1:].lstrip()
    return f"{{{member}{'' if rest.startswith('}') else ','}{rest}"
