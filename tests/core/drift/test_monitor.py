"""What a monitor makes of its detectors' findings."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.core.drift.base import HEAD, STEP, WINDOW, Detector, Passage
from app.core.drift.monitor import (
    DETECTORS,
    KEPT,
    KINDS,
    DriftMonitor,
    DriftOptions,
    Judgement,
    Skipped,
)
from tests.core.drift.watching import found, prose

ROOT = Path(__file__).parents[3]
OF_ITSELF = "As an AI language model, I cannot say."


class Low(Detector):
    """Finds a little in whatever has an x."""

    kind = "low"

    def look(self, passage: Passage) -> float:
        return 0.4 if "x" in passage.new else 0.0


class High(Detector):
    """Finds much in whatever has a y."""

    kind = "high"

    def look(self, passage: Passage) -> float:
        return 0.9 if "y" in passage.new else 0.0


class Fragile(Detector):
    """Fails at a z, and notes all that it was shown."""

    kind = "fragile"

    def __init__(self) -> None:
        self.shown = ""

    def look(self, passage: Passage) -> float:
        self.shown += passage.new
        if "z" in passage.new:
            raise ZeroDivisionError(passage.new)
        return 0.6 if self.shown.endswith("x") else 0.0


class Fading(Detector):
    """Finds much at first and ever less."""

    kind = "fading"

    def __init__(self) -> None:
        self.confidence = 0.8

    def look(self, passage: Passage) -> float:
        self.confidence /= 2
        return 2 * self.confidence


class Ending(Detector):
    """Finds drift when all that is known of the answer is what it expects."""

    kind = "ending"
    answer = ""

    def look(self, passage: Passage) -> float:
        known = (passage.length, passage.head, passage.window, passage.lower)
        window = self.answer[-WINDOW:]
        return 1.0 if known == (len(self.answer), self.answer[:HEAD], window, window.lower()) else 0.0


def small(*detectors: type[Detector], types: frozenset[str] | None = None) -> DriftMonitor:
    return DriftMonitor(DriftOptions(types=types), {detector.kind: detector for detector in detectors})


def test_the_detectors_on_offer() -> None:
    assert {name: detector.kind for name, detector in DETECTORS.items()} == {kind: kind for kind in KINDS}
    assert sorted(KINDS) == [
        "entropy_spike",
        "format_collapse",
        "hedging",
        "markdown_collapse",
        "meta_commentary",
        "repetition",
        "tone_shift",
    ]


def test_the_first_words_are_judged() -> None:
    judgement = DriftMonitor(DriftOptions()).check(OF_ITSELF)
    assert judgement == Judgement(0.9, {"meta_commentary": 0.9})
    assert DriftMonitor(DriftOptions()).check("Paris.") == Judgement(0.0, {})


@pytest.mark.parametrize("text", ["", " ", "\n\n\t", "...", "**", "🙂", "\ud800"])
def test_without_a_word_there_is_too_little_text(text: str) -> None:
    monitor = DriftMonitor(DriftOptions())
    assert monitor.check(text) == monitor.check("") == Skipped("too_little_text")
    assert monitor.check("a") == monitor.check("") == monitor.check("...") == Judgement(0.0, {})


def test_the_score_is_the_highest_confidence() -> None:
    monitor = small(Low, High)
    assert monitor.check("axy") == Judgement(0.9, {"low": 0.4, "high": 0.9})
    assert monitor.check("ax") == Judgement(0.4, {"low": 0.4})
    assert monitor.check("a") == Judgement(0.0, {})


def test_kinds_fall_in_confidence_and_follow_the_alphabet_among_equals() -> None:
    assert Judgement(0.9, {"c": 0.4, "b": 0.9, "a": 0.4}).kinds == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("score", "threshold", "detected"),
    [(0.5, 0.5, True), (0.5, 0.51, False), (0.4, 0.0, True), (0.0, 0.0, False)],
)
def test_drift_begins_at_the_threshold(score: float, threshold: float, detected: bool) -> None:
    judgement = Judgement(score, {"low": score} if score else {})
    assert judgement.detected(threshold) is detected


def test_only_the_chosen_kinds_are_looked_for() -> None:
    assert small(Low, High, types=frozenset({"low"})).check("xy") == Judgement(0.4, {"low": 0.4})
    assert small(Low, High, types=frozenset()).check("xy") == Judgement(0.0, {})
    with pytest.raises(KeyError, match="loud"):
        small(Low, types=frozenset({"loud"}))


def test_a_detector_that_fails_costs_one_check() -> None:
    monitor = small(Fragile, Low)
    assert monitor.check("a") == Judgement(0.0, {})
    skipped = monitor.check("zx" + "a" * 3 * STEP)
    assert skipped == Skipped("detector_failed")
    assert isinstance(skipped, Skipped)
    assert isinstance(skipped.cause, ZeroDivisionError)
    assert monitor.check("x") == Judgement(0.6, {"fragile": 0.6, "low": 0.4})


def test_a_detector_that_fails_at_what_is_kept_fails_no_check() -> None:
    monitor = small(Fragile)
    monitor.take("z")
    assert monitor.check("x") == Judgement(0.6, {"fragile": 0.6})


def test_the_others_see_what_one_failed_at() -> None:
    class Other(Fragile):
        kind = "other"

        def look(self, passage: Passage) -> float:
            self.shown += passage.new
            return 0.7 if self.shown == "azx" else 0.0

    monitor = small(Fragile, Other)
    assert [monitor.check("a"), monitor.check("z")] == [Judgement(0.0, {}), Skipped("detector_failed")]
    assert monitor.check("x") == Judgement(0.7, {"fragile": 0.6, "other": 0.7})


def test_what_comes_at_once_is_seen_part_by_part() -> None:
    assert small(Low).check("x" + "a" * 10 * WINDOW) == Judgement(0.4, {"low": 0.4})
    assert small(Fading).check("a" * 3 * STEP) == Judgement(0.8, {"fading": 0.8})


@pytest.mark.parametrize("size", [0, 1, STEP, STEP + 1, WINDOW, KEPT, KEPT + STEP, KEPT + STEP + 1, 3 * KEPT])
def test_what_is_kept_fills_the_window(size: int) -> None:
    kept, new = prose(size)[:size], "and then"

    class Expected(Ending):
        answer = kept + new

    monitor = small(Expected)
    monitor.take(kept)
    assert monitor.check(new) == Judgement(1.0, {"ending": 1.0})


def test_what_is_kept_is_the_answers_beginning() -> None:
    monitor = DriftMonitor(DriftOptions())
    monitor.take("Sure!\n" + prose(3 * KEPT))
    assert monitor.check("a") == Judgement(0.5, {"hedging": 0.5})
    other = DriftMonitor(DriftOptions())
    other.take(prose(3 * KEPT))
    assert other.check("Sure!\n\na") == Judgement(0.0, {})


def test_a_word_that_is_kept_is_enough_text() -> None:
    monitor = DriftMonitor(DriftOptions())
    monitor.take("a")
    assert monitor.check(" ") == Judgement(0.0, {})


@pytest.mark.parametrize("pattern", ["*.md", "docs/**/*.md", "app/**/*.py", "tests/data/*.json"])
def test_texts_like_those_of_this_project_have_no_drift(pattern: str) -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in ROOT.glob(pattern)}
    assert texts
    assert {path: kinds for path, text in texts.items() if (kinds := found(text))} == {}
