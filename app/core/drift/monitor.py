"""Judge one attempt's answer, while it is written, by all detectors that were chosen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import app.core.drift.detectors
from app.core.discovery import discover
from app.core.drift.base import STEP, Detector, Passage

DETECTORS: Final[Mapping[str, type[Detector]]] = discover(app.core.drift.detectors, "DETECTOR")
"""All detectors by their kind."""
KINDS: Final = frozenset(DETECTORS)
"""What `DriftOptions.types` may name."""
KEPT: Final = 16_000
"""Code points at the end of a text that stays, that a detector is shown."""

_WORD: Final = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class DriftOptions:
    """How an attempt's answer is watched."""

    threshold: float = 0.5
    """From which score on it counts as drift."""
    types: frozenset[str] | None = None
    """The kinds that are looked for, of `KINDS`; None is all."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the detectors found at one check."""

    score: float
    """The highest confidence, 0 when nothing was found."""
    metrics: dict[str, float]
    """Confidence by kind, above 0; only of what was found."""

    def detected(self, threshold: float) -> bool:
        """Whether something was found that counts as drift."""
        return bool(self.metrics) and self.score >= threshold

    @property
    def kinds(self) -> list[str]:
        """What was found, the most certain first; alphabetical among equals."""
        return sorted(self.metrics, key=lambda kind: (-self.metrics[kind], kind))


@dataclass(frozen=True, slots=True)
class Skipped:
    """A check that could not judge."""

    reason: Literal["too_little_text", "detector_failed"]
    cause: Exception | None = field(default=None, compare=False)
    """What the detector raised, for the process's own log."""


class DriftMonitor:
    """Watches the answer of one attempt; its memory and the work of a check do not grow with the answer."""

    def __init__(self, options: DriftOptions, detectors: Mapping[str, type[Detector]] = DETECTORS) -> None:
        """`detectors`, by kind, are those that `options` chooses among; raises `KeyError` for a kind that is
        not there.
        """
        chosen = detectors if options.types is None else sorted(options.types)
        self._detectors = [detectors[kind]() for kind in chosen]
        self._passage = Passage()
        self._has_word = False

    def check(self, new: str) -> Judgement | Skipped:
        """Judge the answer; `new` is what was written since the last check, "" when nothing was."""
        metrics: dict[str, float] = {}
        failure: Exception | None = None
        for piece in _pieces(new):
            failure = self._look(piece, metrics) or failure
        if not self._has_word:
            self._has_word = _WORD.search(new) is not None
            if not self._has_word:
                return Skipped("too_little_text")
        if failure is not None:
            return Skipped("detector_failed", failure)
        return Judgement(max(metrics.values(), default=0.0), metrics)

    def take(self, kept: str) -> None:
        """Go on from `kept`, which an earlier attempt wrote and which stays: seen, not judged.

        The detectors see its beginning and its last `KEPT` code points.
        """
        self._has_word = self._has_word or _WORD.search(kept) is not None
        rest = kept
        if len(kept) > STEP + KEPT:
            self._look(kept[:STEP], {})
            self._passage.length += len(kept) - STEP - KEPT
            rest = kept[-KEPT:]
        for piece in _pieces(rest):
            self._look(piece, {})

    def _look(self, piece: str, metrics: dict[str, float]) -> Exception | None:
        """Show all detectors the next part; `metrics` gets what they find, the highest for each kind."""
        passage = self._passage
        passage.grow(piece)
        failure = None
        for detector in self._detectors:
            try:
                confidence = detector.look(passage)
            except Exception as error:
                # The others go on, so that they miss nothing of the answer.
                failure = error
                continue
            if confidence > 0 and confidence > metrics.get(detector.kind, 0.0):
                metrics[detector.kind] = confidence
        return failure


def _pieces(text: str) -> Iterable[str]:
    """`text` in parts of at most `STEP` code points; one empty part when there is nothing new."""
    return (text,) if len(text) <= STEP else _cut(text)


def _cut(text: str) -> Iterator[str]:
    for start in range(0, len(text), STEP):
        yield text[start : start + STEP]
