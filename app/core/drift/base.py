"""What a drift detector is, and what it is shown."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final

HEAD: Final = 100
"""Code points of an answer's beginning that are kept."""
WINDOW: Final = 500
"""Code points of an answer's end that are kept."""


class CannotJudge(Exception):
    """There is nothing yet that could be judged."""


@dataclass(slots=True)
class Passage:
    """What the detectors are shown at one check."""

    new: str
    """What was written since the last check."""
    window: str
    """The last `WINDOW` code points of the answer, `new` (or its end) included."""
    lower: str
    """`window.lower()`, made once for all detectors."""
    head: str
    """The first `HEAD` code points of the answer."""
    length: int
    """Of the whole answer, in code points."""


class Detector(ABC):
    """One kind of drift; the instance belongs to one attempt and may remember."""

    kind: ClassVar[str]
    """What metrics and on_drift call it."""

    @abstractmethod
    def look(self, passage: Passage) -> float:
        """Confidence from 0 to 1 that the answer drifts; 0 is no sign of it. Called once for each check, in
        order; work must not grow with what came before.
        """
