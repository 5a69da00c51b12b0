"""LaTeX whose environments and formulas all end; prices and code are left alone.

A single dollar sign is an error only where a paragraph has an odd number of them, prices not counted, and
what stands beside one that has no partner reads like a formula: `$x + 1` does, `$HOME` and `$5` do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from app.core.guardrails.base import Check, Rule, Severity, Tail, Violation
from app.core.guardrails.code_blocks import blanked, code_spans, fences

MAX_FINDINGS: Final = 20
"""Findings that are told of one answer."""
NEAR: Final = 80
"""Code points beside a dollar sign that tell whether it belongs to a formula."""

_LITERAL: Final = frozenset({"verbatim", "verbatim*", "Verbatim", "lstlisting", "minted"})
"""Environments whose content LaTeX does not read."""
_TOKEN: Final = re.compile(
    r"\\(?:(?P<turn>begin|end)[ \t]*+\{(?P<name>[^\W\d_][\w@-]*+\*?)\}|(?P<bracket>[\[\]()])"
    r"|verb\*?(?P<verb>[^\w\s*])[^\n]{0,200}?(?P=verb)|.)"
    r"|(?P<dollars>\$++)|(?P<gap>\n[ \t\r]*+\n)",
    re.DOTALL,
)
_PARTNER: Final = {r"\]": r"\[", r"\)": r"\("}

_PRICE: Final = re.compile(r"\s?[0-9][0-9.,]*+(?!\^|_|\\[A-Za-z]|[ac-jln-z]\s*[+=^<>])")
_FORMULA_AFTER: Final = re.compile(
    r"[0-9]|[^\W\d_A-Z](?!\w)|[A-Z](?!\w)\s*[-+*/=<>^_(\\]|[^\s$\\^]*+(?:\^|\\[A-Za-z])"
)
"""A number that is no price, a variable, or something with a power or a command in it."""
_FORMULA_BEFORE: Final = re.compile(r"(?:\\[A-Za-z]|\^)[^\s$]*\Z")


@dataclass(frozen=True, slots=True)
class Opened:
    """Something that is to be closed."""

    text: str
    position: int


class LatexCheck(Check):
    """Looks at one answer when it has ended."""

    def __init__(self, rule: Latex) -> None:
        self._rule = rule

    def tail(self, tail: Tail) -> Sequence[Violation]:
        """Nothing; what is open may yet be closed."""
        return ()

    def end(self, text: str) -> Sequence[Violation]:
        """Whatever is closed but was not opened, or opened but is not closed, up to a bound."""
        if "$" not in text and "\\" not in text:
            return ()
        reading = Reading(_prose(text))
        found = sorted(reading.faults(), key=lambda fault: fault.position)
        return [self._rule.found(fault.text, fault.position) for fault in found[:MAX_FINDINGS]]


class Reading:
    """One pass over a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._open: list[Opened] = []
        self._faults: list[Opened] = []
        self._dollars: list[int] = []
        """Single dollar signs of the paragraph, outside displayed formulas."""
        self._displayed = False
        """Whether `$$` is open."""
        self._behind = 0
        """Where what LaTeX does not read has ended."""
        self._endless: set[str] = set()
        """Environments that end nowhere further on."""

    def faults(self) -> list[Opened]:
        """What is wrong, and where, in no order."""
        for token in _TOKEN.finditer(self._text):
            if len(self._faults) >= MAX_FINDINGS:
                return self._faults
            if token.start() < self._behind:
                continue
            kind = token.lastgroup
            if kind == "dollars":
                self._dollar(token)
            elif kind == "name":
                self._turn(token)
            elif kind == "bracket":
                self._bracket(token)
            elif kind == "gap":
                self._end_paragraph(token.start())
        self._end_paragraph(len(self._text))
        self._faults += (_unclosed(opened) for opened in self._open)
        return self._faults

    def _turn(self, token: re.Match[str]) -> None:
        opening = rf"\begin{{{token['name']}}}"
        if token["turn"] == "end":
            self._close(opening, token)
        elif token["name"] not in _LITERAL or not self._skip(token):
            self._open.append(Opened(opening, token.start()))

    def _skip(self, token: re.Match[str]) -> bool:
        """Leave out an environment that is not read; whether it ends."""
        name = token["name"]
        if name in self._endless:
            return False
        ending = rf"\end{{{name}}}"
        end = self._text.find(ending, token.end())
        if end < 0:
            self._endless.add(name)
            return False
        self._behind = end + len(ending)
        return True

    def _bracket(self, token: re.Match[str]) -> None:
        if token[0] in _PARTNER:
            self._close(_PARTNER[token[0]], token)
        else:
            self._open.append(Opened(token[0], token.start()))

    def _close(self, opening: str, token: re.Match[str]) -> None:
        """Close the nearest such opening; what was opened in between is left open."""
        if all(opened.text != opening for opened in reversed(self._open)):
            self._faults.append(Opened(f"{token[0]} closes nothing", token.start()))
            return
        while (opened := self._open.pop()).text != opening:
            self._faults.append(_unclosed(opened))
            self._displayed = self._displayed and opened.text != "$$"

    def _dollar(self, token: re.Match[str]) -> None:
        count = len(token[0])
        if count == 2:
            if self._displayed:
                self._close("$$", token)
            else:
                self._open.append(Opened("$$", token.start()))
            self._displayed = not self._displayed
        elif count == 1 and not (self._open and self._open[-1].text in ("$$", r"\[", r"\(")):
            self._dollars.append(token.start())

    def _end_paragraph(self, end: int) -> None:
        dollars, self._dollars = self._dollars, []
        alone = list(_without_partner(self._text, dollars)) if dollars else []
        if len(alone) % 2 == 0:
            return
        for at in alone:
            near = self._text[at + 1 : min(end, at + NEAR)]
            if _FORMULA_AFTER.match(near) or _FORMULA_BEFORE.search(self._text[max(at - NEAR, 0) : at]):
                self._faults.append(Opened("$ has no partner in its paragraph", at))
                return


def _without_partner(text: str, dollars: Sequence[int]) -> Iterator[int]:
    """The dollar signs of a paragraph that neither pair up nor stand before a price."""
    at = 0
    while at < len(dollars):
        here = dollars[at]
        if at + 1 < len(dollars) and _closes(text, here, dollars[at + 1]):
            at += 2
            continue
        if _PRICE.match(text, here + 1) is None:
            yield here
        at += 1


def _closes(text: str, opener: int, at: int) -> bool:
    """Whether the dollar sign at `at` reads like the end of a formula that began at `opener`."""
    before, after = text[at - 1], text[at + 1 : at + 2]
    if after.isdigit():
        return before.isalnum() and _PRICE.match(text, opener + 1) is None
    if before.isspace() or before in "([{":
        return not after or after.isspace() or after in ".,;:!?)]}-"
    return True


def _unclosed(opened: Opened) -> Opened:
    return Opened(f"{opened.text} is not closed", opened.position)


def _prose(text: str) -> str:
    """The text with its code as spaces."""
    prose = blanked(text, fences(text).blocks)
    return blanked(prose, code_spans(prose))


class Latex(Rule):
    """The answer's LaTeX is whole."""

    name: ClassVar[str] = "latex"
    streaming: ClassVar[bool] = False
    severity: ClassVar[Severity] = "error"

    def start(self) -> LatexCheck:
        """A fresh check, for one attempt."""
        return LatexCheck(self)


RULE = Latex
