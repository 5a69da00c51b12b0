"""Answers that say the same passage over and over."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Final

from pydantic import Field

from app.core.guardrails.base import Check, NoOptions, Rule, Severity, Tail, Violation

PROBE: Final = 40
"""Code points at the very end that must have been written before, for a closer look."""
_WORDS: Final = re.compile(r"[^\W\d_]+")
# Tables, code, data and lists repeat themselves by nature.
_STRUCTURED: Final = re.compile(r"[|{}\[\]<>=;\\\t_#`@$^~+]|^[ ]*(?:[-*•–]|\d+[.)])\s", re.MULTILINE)


class RepetitionOptions(NoOptions):
    """How much of it is too much."""

    window: int = Field(2_000, ge=200, le=20_000, description="Code points at the end that are looked at.")
    times: int = Field(3, ge=2, le=100, description="So many times in a row is too often.")


class Repetition(Rule):
    """No passage of prose stands several times in a row at the answer's end.

    A refrain, which comes back after something else, is none; neither are rows of a table, lists and code.
    """

    name: ClassVar[str] = "repetition"
    severity: ClassVar[Severity] = "error"
    Options: ClassVar[type[NoOptions]] = RepetitionOptions

    def start(self) -> Check:
        """A fresh check, for one attempt."""
        return _RepetitionCheck(self)


class _RepetitionCheck(Check):
    def __init__(self, rule: Repetition) -> None:
        assert isinstance(rule.options, RepetitionOptions)
        self._rule = rule
        self._window, self._times = rule.options.window, rule.options.times
        self._last = ""
        self._length = 0
        self._told = False

    def tail(self, tail: Tail) -> Sequence[Violation]:
        """One finding, as soon as the passage stands there too often."""
        new = tail.text[tail.new :]
        # A long piece is looked at in steps, so that no run passes through the window unseen.
        for start in range(0, len(new), self._window // 4):
            piece = new[start : start + self._window // 4]
            self._last = (self._last + piece)[-self._window :]
            self._length += len(piece)
            if not self._told and (run := self._run()):
                self._told = True
                return (self._rule.found("the answer repeats itself", self._length - run),)
        return ()

    def end(self, text: str) -> Sequence[Violation]:
        """Nothing more."""
        return ()

    def _run(self) -> int:
        """Code points at the end that are one passage, often enough; 0 where there are none."""
        last = self._last
        start = len(last) - PROBE
        before = last.rfind(last[start:], 0, -1) if start > 0 else -1
        if before < 0:
            return 0
        length = start - before
        run = length * self._times
        if run < 2 * PROBE:
            run += 2 * PROBE
        if run > len(last) or last[-run:-length] != last[length - run :]:
            return 0
        block = last[-max(length, 2 * PROBE) :]
        if _STRUCTURED.search(block) or 2 * sum(map(len, _WORDS.findall(block))) <= len(block):
            return 0
        return run


RULE = Repetition
