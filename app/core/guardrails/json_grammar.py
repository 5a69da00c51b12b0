"""Whether a text is JSON by the grammar alone, and where it is not; shared by the rules about JSON."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, NoReturn

_OPEN: Final = re.compile(r"(?:`{3,}|~{3,})[ \t]*json[ \t]*\r?\n", re.IGNORECASE)
_CLOSE: Final = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[ \t]*\r?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a text that is no JSON."""

    message: str
    position: int | None = None
    """In code points of the text that was read; None where it has no place."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """A text that is one code block marked as JSON."""

    body: str
    start: int
    """Where in the text the body begins, in code points."""


def parsed(text: str) -> Any | Fault:
    """The value of a JSON text, with its numbers left as strings, or what is wrong with it.

    Only the grammar counts: numbers of any size, escaped halves of surrogate pairs and keys that stand twice
    are JSON, NaN and Infinity are not.
    """
    try:
        return json.loads(text, parse_int=str, parse_float=str, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        return Fault(error.msg[:1].lower() + error.msg[1:], min(error.pos, len(text)))
    except _Constant as constant:
        return Fault(f"{constant} is no JSON")
    except RecursionError:
        return Fault("nested too deeply to be read")


def fenced(text: str) -> Fenced | None:
    """The body of a stripped text that is one code block marked as JSON and nothing else.

    A block that never ends reaches to the end of the text.
    """
    opened = _OPEN.match(text)
    if opened is None:
        return None
    start = opened.end()
    closed = _CLOSE.search(text, start)
    if closed is None:
        return Fenced(text[start:], start)
    return Fenced(text[start : closed.start()], start) if closed.end() == len(text) else None


class _Constant(Exception):
    """NaN or an infinity."""


def _no_constant(word: str) -> NoReturn:
    raise _Constant(word)
