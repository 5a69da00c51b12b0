"""Answers that are meant to be JSON must be JSON.

What counts as meant to be JSON, so that prose with brackets is left alone:

- an object or array whose first key or item is written as JSON writes it. `["a", "b"] and more` is then a
  fault (text after the value), while `{name} is a placeholder`, `[Note] ...` and `[text](url)` are prose;
- an array of numbers or words such as `null`, or an empty value, if nothing in the answer speaks against it:
  `[1] says`, `[0, 1) is half open` and `[ ] buy milk` are prose;
- an answer that ends with the bracket that fits its first one, and begins as careless JSON does: `{a: 1}`,
  `['a']`;
- one code block marked `json`, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, auto
from typing import ClassVar, Final

from app.core.guardrails.base import Check, Rule, Severity, Tail, Violation
from app.core.guardrails.json_grammar import Fault, fenced, parsed

HEAD: Final = 64
"""Code points, from the first that is no space, by which it is settled whether the answer is JSON."""

_BODY: Final = r'[^"\\]*+(?:\\.[^"\\]*+)*+'
_NUMBER: Final = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?"

_OBJECT: Final = re.compile(rf'(?:\[\s*+)*+\{{\s*+"{_BODY}"\s*+:', re.DOTALL)
_STRINGS: Final = re.compile(rf'(?:\[\s*+)++"{_BODY}"\s*+[,\]]', re.DOTALL)
_BARE: Final = re.compile(
    rf"\{{\s*+\}}|(?:\[\s*+)++(?:\]|\{{\s*+\}}|(?:{_NUMBER}|true|false|null)\s*+[,\]])", re.DOTALL
)
"""Beginnings that prose may have as well."""
_CUT: Final = re.compile(
    rf'(?:\[\s*+)*+(?:\{{\s*+)?+(?:"{_BODY}\\?+("\s*+)?+)?+|(?:\[\s*+)++[-+.0-9eE]++\s*+',
    re.DOTALL,
)
"""The whole of a beginning that breaks off before it is settled."""
_CARELESS: Final = re.compile(
    r"""(?:\[\s*+)*+\{\s*+(?:["',]|[^\W\d][\w$-]*+\s*+:)|(?:\[\s*+)++(?:["',]|(?:-?Infinity|NaN|None|True|False)\s*+[,\]])"""
)
_WORDS: Final = re.compile(r'(?:[\s\[\]{}:,0-9eE+.\-"]++|true|false|null)*+')

_TOKEN: Final = re.compile(rf'"{_BODY}(?:"|(\\?)\Z)|([\[{{])|([\]}}])', re.DOTALL)
_STRING: Final = re.compile(rf'"{_BODY}(?:"|\\?\Z)', re.DOTALL)
_REST: Final = re.compile(rf'{_BODY}(?:"|(\\?)\Z)', re.DOTALL)
_INK: Final = re.compile(r"\S")
_CLOSING: Final = {"{": "}", "[": "]"}


class Phase(Enum):
    """How far a check has come."""

    OPENING = auto()
    """Not settled yet what the answer is."""
    INSIDE = auto()
    """In the value."""
    AFTER = auto()
    """Behind the value."""
    LATER = auto()
    """Only the end can tell."""
    OVER = auto()
    """Nothing is left to find: it is prose, or the fault is known."""


class JsonCheck(Check):
    """Follows the brackets of one answer; gives one finding at most."""

    def __init__(self, rule: Json) -> None:
        self._rule = rule
        self._phase = Phase.OPENING
        self._seen = 0
        """Code points judged so far."""
        self._head = ""
        """The beginning, without the space before it, until it is settled what it is."""
        self._bare = False
        self._depth = 0
        self._in_string = False
        self._escaped = False
        """Whether the last character was a backslash that escapes the next."""
        self._value_end = 0

    def tail(self, tail: Tail) -> Sequence[Violation]:
        """Excess closing brackets, and text behind the value."""
        if self._phase is Phase.OVER or self._phase is Phase.LATER:
            return ()
        return self._read(tail.text[tail.new :])

    def end(self, text: str) -> Sequence[Violation]:
        """Whatever makes the answer no JSON."""
        found = self._read(text[self._seen :]) if self._seen < len(text) else ()
        if self._phase is Phase.OPENING:
            found = self._settle(final=True)
        return found or self._conclude(text)

    def _read(self, new: str) -> Sequence[Violation]:
        start, self._seen = self._seen, self._seen + len(new)
        if self._phase is Phase.OPENING:
            self._head = self._head + new if self._head else new.lstrip()
            return self._settle(final=False) if self._head else ()
        if self._phase is Phase.INSIDE:
            return self._inside(new, start)
        return self._after(new, 0, start) if self._phase is Phase.AFTER else ()

    def _settle(self, *, final: bool) -> Sequence[Violation]:
        """Find out what the answer is; the same however it was cut, as only its head counts."""
        head = self._head[:HEAD]
        if not head or head[0] not in "{[`~":
            self._phase = Phase.OVER
        elif head[0] in "`~":
            self._phase = Phase.LATER
        elif _OBJECT.match(head) or _STRINGS.match(head):
            return self._enter()
        elif _BARE.match(head):
            self._bare = True
            return self._enter()
        elif final or len(head) == HEAD:
            if _CUT.fullmatch(head):
                return self._enter()
            self._phase = Phase.LATER if _CARELESS.match(head) else Phase.OVER
        return ()

    def _enter(self) -> Sequence[Violation]:
        self._phase = Phase.INSIDE
        head, self._head = self._head, ""
        return self._inside(head, self._seen - len(head))

    def _inside(self, new: str, start: int) -> Sequence[Violation]:
        at = self._string_rest(new) if self._in_string else 0
        depth = self._depth
        for token in _TOKEN.finditer(new, at):
            kind = token.lastindex
            if kind == 2:
                depth += 1
            elif kind == 3:
                depth -= 1
                if depth == 0:
                    self._phase = Phase.AFTER
                    self._value_end = start + token.end()
                    return self._after(new, token.end(), start)
            elif kind == 1:
                self._in_string, self._escaped = True, bool(token[1])
        self._depth = depth
        return ()

    def _string_rest(self, new: str) -> int:
        """Where the string ends in which the new part begins; its length where it does not end."""
        if self._escaped and new:
            self._escaped = False
            rest = _REST.match(new, 1)
        else:
            rest = _REST.match(new)
        if rest is None:
            return len(new)
        self._in_string = rest[1] is not None
        self._escaped = bool(rest[1])
        return rest.end()

    def _after(self, new: str, at: int, start: int) -> Sequence[Violation]:
        ink = _INK.search(new, at)
        if ink is None:
            return ()
        self._phase = Phase.OVER
        position = start + ink.start()
        if ink[0] in "}]":
            return (self._rule.found("a closing bracket has no opening one", position),)
        link = ink[0] == "(" and position == self._value_end
        if self._bare or link:
            return ()
        return (self._rule.found("text follows the end of the JSON value", position),)

    def _conclude(self, text: str) -> Sequence[Violation]:
        phase, self._phase = self._phase, Phase.OVER
        if phase is Phase.OVER or (phase is Phase.LATER and not _is_whole(text.strip())):
            return ()
        return self._judge(text, cut=phase is Phase.INSIDE)

    def _judge(self, text: str, *, cut: bool) -> Sequence[Violation]:
        answer = text.lstrip()
        start = len(text) - len(answer)
        answer = answer.rstrip()
        if answer[0] in "`~":
            block = fenced(answer)
            return () if block is None else self._parse(block.body, start + block.start)
        if self._bare and not _only_words(answer):
            return ()
        if cut:
            return (self._rule.found("the answer ends inside the JSON value", start + len(answer)),)
        return self._parse(answer, start)

    def _parse(self, source: str, start: int) -> Sequence[Violation]:
        fault = parsed(source)
        if not isinstance(fault, Fault):
            return ()
        place = None if fault.position is None else start + fault.position
        return (self._rule.found(f"not valid JSON: {fault.message}", place),)


def _is_whole(answer: str) -> bool:
    """Whether an answer that only its end can settle is a code block, or ends as it begins."""
    return answer[0] in "`~" or answer[-1] == _CLOSING[answer[0]]


def _only_words(answer: str) -> bool:
    """Whether the answer holds nothing, outside strings, that only prose has."""
    return _WORDS.fullmatch(_STRING.sub('""', answer)) is not None


class Json(Rule):
    """An answer that looks like JSON is JSON."""

    name: ClassVar[str] = "json"
    severity: ClassVar[Severity] = "error"

    def start(self) -> JsonCheck:
        """A fresh check, for one attempt."""
        return JsonCheck(self)


RULE = Json
