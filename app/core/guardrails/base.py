"""What a guardrail is: a rule that runs may share, and the check that it makes for each attempt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict

Severity = Literal["warning", "error", "fatal"]

KEEP: Final = 200
"""Code points before the new text that a streaming check is shown again, so that nothing is missed because
it was written across two checks."""

MAX_WEIGHT: Final = 100
"""What the rules of one request may weigh together: it bounds the time that judging a code point takes."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One finding."""

    rule: str
    message: str
    severity: Severity
    """warning: noted; error: the attempt is given up; fatal: the run is."""
    recoverable: bool = True
    """Whether asking again may help; an error that is not is treated as fatal."""
    position: int | None = None
    """Where in the answer, in code points; None where it has no place."""
    suggestion: str | None = None

    def wire(self) -> dict[str, Any]:
        """The form in which events and callbacks carry it."""
        out: dict[str, Any] = {
            "rule": self.rule,
            "message": self.message,
            "severity": self.severity,
            "recoverable": self.recoverable,
        }
        if self.position is not None:
            out["position"] = self.position
        if self.suggestion is not None:
            out["suggestion"] = self.suggestion
        return out


@dataclass(slots=True)
class Tail:
    """The newest part of an answer."""

    text: str
    """At most `KEEP` code points that were shown before, then what is new."""
    lower: str
    """`text.lower()`, made once for all rules; may be longer than `text` for a few letters of Unicode."""
    new: int
    """Where in `text` the new part begins."""
    offset: int
    """Where in the answer `text` begins, in code points."""
    now_ms: float = 0.0
    """The caller's clock, in milliseconds."""


def place(text: str, lower: str, index: int) -> int:
    """Where in `text` the code point stands that `lower`, its `text.lower()`, has at `index`."""
    if len(lower) == len(text):
        return index
    seen = 0
    for at, letter in enumerate(text):  # a few letters have a lower case of two code points
        seen += len(letter.lower())
        if seen > index:
            return at
    return len(text)


class Check(ABC):
    """One rule at work on one attempt's text; its state is the attempt's own.

    Each finding is given once: what `tail` has given, `end` does not give again.
    """

    @abstractmethod
    def tail(self, tail: Tail) -> Sequence[Violation]:
        """Judge an answer that goes on; called with every part once, in order. Work must not grow with what
        came before. Only called for streaming rules.
        """

    @abstractmethod
    def end(self, text: str) -> Sequence[Violation]:
        """Judge the whole answer, after `tail` was called with its last part."""


class NoOptions(BaseModel):
    """Options of a rule that has none; the base of those of other rules."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Rule(ABC):
    """One guardrail with its options; holds nothing of any run, so runs may share it."""

    name: ClassVar[str]
    """What requests and events call it."""
    streaming: ClassVar[bool] = True
    """Whether it can judge an answer that has not ended."""
    severity: ClassVar[Severity] = "error"
    """How grave its findings are, unless the request says otherwise."""
    Options: ClassVar[type[NoOptions]] = NoOptions
    """What a request may choose."""
    weight: int = 0
    """How dear its options make it; 0 for a rule whose cost no option changes."""

    def __init__(self, options: Mapping[str, Any] | None = None, severity: Severity | None = None) -> None:
        """Raises pydantic's ValidationError for options that the rule does not take; `severity` is that of
        all its findings, None leaves it to the rule.
        """
        self.options = self.Options.model_validate(options or {})
        self.chosen = severity

    def found(
        self, message: str, position: int | None = None, *, severity: Severity | None = None, **more: Any
    ) -> Violation:
        """A finding of this rule; `severity` is what the rule itself thinks of it."""
        return Violation(
            self.name, message, self.chosen or severity or self.severity, position=position, **more
        )

    @abstractmethod
    def start(self) -> Check:
        """A fresh check, for one attempt."""


class CalledRule(Rule):
    """A rule whose verdict is asked for outside the core; the machine yields an `Ask` of kind `guardrail`."""

    def __init__(self, name: str, *, streaming: bool = False, severity: Severity = "error") -> None:
        """`name` is the plug-in's; what it finds is of `severity`, unless it says otherwise itself."""
        super().__init__()
        self.title = name
        self.in_stream = streaming
        self.usual = severity

    def start(self) -> Check:
        """It has no check of its own."""
        raise NotImplementedError("a called rule is asked, not run")
