"""What a drift detector is, and what it is shown."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final

HEAD: Final = 100
"""Code points of an answer's beginning that are kept."""
WINDOW: Final = 500
"""Code points of an answer's end that are kept."""
STEP: Final = WINDOW // 2
"""Most code points that are new at one look, so that nothing passes through the window unseen."""


@dataclass(slots=True)
class Passage:
    """What the detectors are shown at one look; the same object grows from look to look."""

    new: str = ""
    """What was written since the last look, at most `STEP` code points; may be empty."""
    window: str = ""
    """The last `WINDOW` code points of the answer, `new` included."""
    lower: str = ""
    """The same in lower case, at most `WINDOW` code points. For a few letters of Unicode it is longer than
    what it was made of, so positions in it are not positions in `window`."""
    head: str = ""
    """The first `HEAD` code points of the answer."""
    length: int = 0
    """Of the whole answer, in code points."""

    def grow(self, new: str) -> None:
        """Append `new`, at most `STEP` code points; the work does not depend on what came before."""
        self.new = new
        self.window = (self.window + new)[-WINDOW:]
        # Only what is new is lowered: beyond ASCII that is slow.
        self.lower = (self.lower + new.lower())[-WINDOW:]
        if self.length < HEAD:
            self.head = (self.head + new)[:HEAD]
        self.length += len(new)


class Detector(ABC):
    """One kind of drift; the instance belongs to one attempt and may remember.

    Found drift costs a retry, so a detector stays silent when in doubt.
    """

    kind: ClassVar[str]
    """What metrics and on_drift call it; also the name of its module."""

    @abstractmethod
    def look(self, passage: Passage) -> float:
        """Confidence from 0 to 1 that the answer drifts; 0 is no sign of it. Called in order with every part
        of the answer; neither work nor memory may grow with what came before. `passage` must not be kept
        (its strings may) nor changed.
        """


class HeadDetector(Detector):
    """A kind of drift that an answer's beginning alone tells; free of cost once that is complete."""

    def __init__(self) -> None:
        """Nothing was read yet."""
        self.read_length = -1
        self.verdict = 0.0

    def look(self, passage: Passage) -> float:
        """Read the beginning again for as long as it grows."""
        if len(passage.head) != self.read_length:
            self.read_length = len(passage.head)
            self.verdict = self.read(passage.head)
        return self.verdict

    @abstractmethod
    def read(self, head: str) -> float:
        """Confidence from 0 to 1; `head` is the answer's first code points, up to `HEAD`."""
