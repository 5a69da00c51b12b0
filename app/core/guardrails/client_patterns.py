"""Regular expressions that come from clients, weighed before they are used.

The engine is RE2: it never backtracks, and refuses what it cannot match like that (backreferences, looking
around). Its syntax is RE2's; `\\d`, `\\w`, `\\s` and `\\b` know ASCII only, `\\z` is the text's end. It takes
time that grows with the text, but the factor is the pattern's: usually two nanoseconds a byte, and a thousand
times that where it has to follow hundreds of possible matches at once. How many that may be can be told from
the pattern: it is its weight.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

import re2

MAX_PROGRAM: Final = 2_000
"""Instructions that one pattern may compile to."""
_MEMORY: Final = 1 << 17
"""Bytes that one compiled pattern may hold; also bounds how long compiling may take."""
_LIGHT: Final = 7
"""Up to this weight all combinations of possible matches fit into the engine's tables, so that it takes one
step for each byte. Beyond, it follows each possible match, at a price that few of them do not lower."""
_DENSE: Final = 16
"""Instructions of a compiled pattern that weigh as much as one place of a possible match."""

_ANCHORS: Final = re.compile(r"[\^$]|\\[AbBz]")
"""What makes a match depend on the text around it; also found where it stands for itself, which costs nothing
but that the match is told a little later."""
_TOKEN: Final = re.compile(
    r"""
      (?P<zero>  \\[AbBz] | [\^$] | \(\?[a-zA-Z-]+\) )
    | (?P<open>  \( (?: \? (?: P?<\w+> | [a-zA-Z-]*: ) )? )
    | (?P<close> \) )
    | (?P<bar>   \| )
    | (?P<count> \{ (?P<least>\d+) (?P<open_end>,)? (?P<most>\d+)? \} \??  |  (?P<sign>[*+?]) \?? )
    | (?P<wide>  \\[pP](?:\{\^?\w+\}|\w) | \\[dDwWsSC] | \.
               | \[ \^? \]? (?: \[:\^?\w+:\] | \\. | [^\]\\] )* \] )
    | (?P<plain> \\x\{\w+\} | \\x\w\w | \\[0-7]{1,3} | \\. | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_PREFIX: Final = re.compile(r"(?:\(\?[a-zA-Z]+\)|\\b)*((?:[\w :=@/<>,;~#&%!'\"-](?![*+?{]))*)")


class BadPattern(ValueError):
    """The pattern is none that we take; the message says why."""


class ClientPattern:
    """One compiled pattern."""

    __slots__ = ("_compiled", "anchored", "source", "weight")

    def __init__(self, source: str) -> None:
        """Raises `BadPattern`."""
        self._compiled = _compiled(source)
        self.source = source
        self.anchored = _ANCHORS.search(source) is not None
        """Whether what follows a match may undo it."""
        self.weight = _weight(source, self._compiled.programsize)
        """How many possible matches it may have to follow at once; 1 at least."""

    def search(self, raw: bytes, start: int = 0) -> tuple[int, int] | None:
        """The first match in UTF-8 text from byte `start` on, what lies before being context: its begin and
        end in bytes.
        """
        match = self._compiled.search(raw, start)
        return None if match is None else match.span()


def _compiled(source: str) -> re2._Regexp:
    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    # Without groups to fill, matches are found by the automaton alone.
    options.never_capture = True
    try:
        compiled = re2.compile(source, options)
    except UnicodeEncodeError:
        raise BadPattern("it is not valid Unicode") from None
    except re2.error as error:
        (reason,) = error.args
        raise BadPattern(reason.decode("utf-8", "replace")) from None
    if "\\Q" in source:
        raise BadPattern("\\Q is not offered; escape single characters")
    if compiled.search(b"") is not None:
        raise BadPattern("it matches the empty text")
    if compiled.programsize > MAX_PROGRAM:
        raise BadPattern("it is too large; repeat or list less")
    return compiled


@dataclass(slots=True)
class _Part:
    """A part of a pattern, with what it repeats written out."""

    plain: int = 0
    """Characters that stand for themselves."""
    wide: int = 0
    """Places that several characters fit, and characters that are repeated."""
    forks: int = 0
    """Places from which a match may go on in two ways."""

    def add(self, other: _Part) -> None:
        self.plain += other.plain
        self.wide += other.wide
        self.forks += other.forks

    def repeated(self, times: int, forks: int) -> _Part:
        return _Part(0, (self.plain + self.wide) * times, self.forks * times + forks)


@dataclass(slots=True)
class _Group:
    before: _Part = field(default_factory=_Part)
    """All but the last item."""
    last: _Part = field(default_factory=_Part)
    """What a count would repeat."""

    def put(self, item: _Part) -> None:
        self.before.add(self.last)
        self.last = item

    def closed(self) -> _Part:
        self.put(_Part())
        return self.before


def _weight(source: str, program: int) -> int:
    """Possible matches to follow at once. Where a pattern begins with plain text, so does each of them, and
    two begin at least that text's period apart. This does not help where a match may be of any length, since
    the engine looks for its beginning from its end on.
    """
    part, branches, endless = _measured(source)
    weight = part.wide + part.forks
    prefix = _PREFIX.match(source)
    if weight <= _LIGHT:
        weight = 1
    elif prefix is not None and not branches and not endless:
        apart = _period(prefix[1].lower())
        spread = -(-(part.wide + part.plain) // apart) * (part.forks + 1) + part.forks
        weight = min(weight, max(spread, _LIGHT + 1))
    return max(weight, program // _DENSE)


def _measured(source: str) -> tuple[_Part, bool, bool]:
    """The whole pattern, whether it is a choice of several, and whether a match may be of any length. It is
    known to be well-formed.
    """
    fold = "(?i" in source
    groups = [_Group()]
    branches = endless = False
    for token in _TOKEN.finditer(source):
        match token.lastgroup:
            case "open":
                groups.append(_Group())
            case "close":
                inner = groups.pop().closed()
                groups[-1].put(inner)
            case "bar":
                branches |= len(groups) == 1
                groups[-1].put(_Part(wide=1))
            case "count":
                endless |= token["sign"] in ("*", "+") or (
                    token["open_end"] is not None and not token["most"]
                )
                groups[-1].last = groups[-1].last.repeated(*_counted(token))
            case "wide":
                groups[-1].put(_Part(wide=_width(token["wide"], fold)))
            case "plain":
                groups[-1].put(_Part(plain=1))
    return groups[0].closed(), branches, endless


def _width(charset: str, fold: bool) -> int:
    """Two where it holds more than ASCII: such characters are several bytes, and each byte is a place."""
    beyond = fold or charset[0] == "." or charset[:2] in ("[^", "\\p", "\\P", "\\D", "\\W", "\\S", "\\C")
    return 2 if beyond or not charset.isascii() else 1


def _counted(token: re.Match[str]) -> tuple[int, int]:
    """How often at most it is written out, and with how many places to leave or begin anew."""
    if token["sign"]:
        return 1, 1
    least = int(token["least"])
    if not token["open_end"]:
        return least, 0
    return (int(token["most"]), int(token["most"]) - least) if token["most"] else (max(least, 1), 1)


def _period(text: str) -> int:
    """The least distance at which the text may begin again within itself; 1 for the empty text."""
    return next((step for step in range(1, len(text)) if text.startswith(text[step:])), max(1, len(text)))
