"""Which result the strategies and conflict rules come to, and how far it can be relied on."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase
from typing import Any

import pytest

from app.core.consensus.analysis import Output
from app.core.consensus.decide import Conflict, Decision, Rules, Strategy, decide

FAILED = Output(ok=False)


def given(*values: Any, weights: Sequence[float] = ()) -> list[Output]:
    """Outputs with these values; an `Output` stands for itself."""
    made = [value if isinstance(value, Output) else Output(value) for value in values]
    return [Output(o.value, w, o.ok) for o, w in zip(made, weights, strict=True)] if weights else made


def found(outputs: Sequence[Output], strategy: Strategy = "majority", **how: Any) -> Decision:
    return decide(outputs, Rules(strategy, **how))


def letters(start: int) -> str:
    """A text that is like those that start two letters before or after, and like no others."""
    return " ".join(ascii_lowercase[start : start + 19])


def told(decision: Decision) -> tuple[Any, ...]:
    return (
        decision.status,
        decision.method,
        decision.result,
        pytest.approx(decision.confidence),
        decision.index,
    )


@pytest.mark.parametrize(
    ("strategy", "outputs", "expected"),
    [
        ("unanimous", given("a", "a", "a"), ("agreed", "unanimous", "a", 1.0, 0)),
        ("unanimous", given("a", "a", "b"), ("partial", "vote", "a", 2 / 3, 0)),
        ("unanimous", given("a", "a", FAILED), ("partial", "vote", "a", 2 / 3, 0)),
        ("unanimous", given("a", "A.", "a", weights=(1, 1, 5)), ("agreed", "unanimous", "a", 1.0, 2)),
        ("majority", given("a", "b", "b"), ("agreed", "majority", "b", 2 / 3, 1)),
        ("majority", given("a", "b", "c"), ("partial", "vote", "a", 1 / 3, 0)),
        ("majority", given("a", "b", "b", weights=(4, 1, 1)), ("agreed", "majority", "a", 2 / 3, 0)),
        ("majority", given("a", "a", FAILED), ("agreed", "majority", "a", 2 / 3, 0)),
        ("majority", given(FAILED, "a", FAILED), ("partial", "vote", "a", 1 / 3, 1)),
        ("majority", given("a", "a", "a", "b", "c"), ("agreed", "majority", "a", 0.6, 0)),
        ("weighted", given("a", "b", weights=(1, 3)), ("agreed", "weighted", "b", 0.75, 1)),
        ("weighted", given("a", "b", "c", "c"), ("agreed", "weighted", "c", 0.5, 2)),
        ("best", given("a", "b", "b"), ("agreed", "best", "a", 1 / 3, 0)),
        ("best", given("a", "b", "b", weights=(1, 2, 1)), ("agreed", "best", "b", 0.75, 1)),
        ("best", given(FAILED, "b", weights=(9, 1)), ("agreed", "best", "b", 0.1, 1)),
        ("best", given(FAILED, FAILED), ("failed", "best", None, 0.0, None)),
        ("unanimous", given(FAILED, FAILED), ("failed", "unanimous", None, 0.0, None)),
    ],
)
def test_a_strategy(strategy: Strategy, outputs: list[Output], expected: Any) -> None:
    decision = found(outputs, strategy)
    assert told(decision) == expected


@pytest.mark.parametrize(
    ("conflict", "outputs", "expected"),
    [
        ("vote", given("a", "b", "b", "c", weights=(4, 1, 1, 1)), ("partial", "vote", "b", 0.5, 1)),
        ("vote", given("b", "a"), ("partial", "vote", "b", 0.5, 0)),
        ("best", given("a", "b", "b", "c", weights=(3, 2, 2, 2)), ("partial", "best", "a", 1 / 3, 0)),
        ("best", given(FAILED, "b", "c", weights=(9, 1, 2)), ("partial", "best", "c", 1 / 6, 2)),
        ("fail", given("a", "b"), ("failed", "fail", None, 0.0, None)),
        ("merge", given("one", "two"), ("partial", "merge", "one | two", 0.5, None)),
        ("merge", given("a", "b", "B."), ("partial", "merge", "b | a", 0.5, None)),
        (
            "merge",
            given({"a": 1, "x": [1]}, {"a": 2, "x": [2, 1], "z": 0}, weights=(1, 2)),
            ("partial", "merge", {"a": 2, "x": [2, 1], "z": 0}, 0.5, None),
        ),
        ("merge", given([1, {"a": 1}], [{"a": 1}, 2]), ("partial", "merge", [1, {"a": 1}, 2], 0.5, None)),
        ("merge", given(1, 2, 2), ("partial", "vote", 2, 2 / 3, 1)),
        ("merge", given({"a": 1}, "a"), ("partial", "vote", {"a": 1}, 0.5, 0)),
    ],
)
def test_a_conflict_rule(conflict: Conflict, outputs: list[Output], expected: Any) -> None:
    decision = found(outputs, conflict=conflict, minimum_agreement=0.7)
    assert told(decision) == expected


def test_within_an_object_the_heaviest_value_of_a_property_stays() -> None:
    outputs = given(
        {"a": 1, "deep": {"b": 1}}, {"a": 2, "deep": {"c": [1]}}, {"a": 2, "deep": {"c": [2]}}, {"a": 3}
    )
    decision = found(outputs, "unanimous", conflict="merge")
    assert decision.result == {"a": 2, "deep": {"b": 1, "c": [1, 2]}}


def test_a_merged_value_that_does_not_fit_gives_way_to_a_vote() -> None:
    outputs = given({"a": 1}, {"b": 1}, {"b": 1})
    rules = Rules("unanimous", "merge")
    assert decide(outputs, rules).result == {"a": 1, "b": 1}
    decision = decide(outputs, rules, fits=lambda value: len(value) == 1)
    assert (decision.method, decision.result, decision.index) == ("vote", {"b": 1}, 1)


def test_no_chain_of_small_differences_joins_what_differs_a_lot() -> None:
    outputs = given(*(letters(at) for at in (0, 2, 4)))
    analysis = found(outputs).analysis
    assert [(group.representative, group.members) for group in analysis.groups] == [(1, (0, 1, 2))]
    outputs = given(*(letters(at) for at in (0, 2, 4, 6)))
    analysis = found(outputs).analysis
    assert [group.members for group in analysis.groups] == [(0, 1, 2), (3,)]


def test_unanimity_asks_for_every_pair() -> None:
    outputs = given(*(letters(at) for at in (0, 2, 4)))
    decision = found(outputs, "unanimous")
    assert (decision.status, decision.method, decision.index) == ("partial", "vote", 1)
    loose = found(outputs, "unanimous", threshold=0.6)
    assert loose.status == "agreed"
    assert loose.confidence == loose.analysis.least_similarity < 0.8


@pytest.mark.parametrize(
    ("alike", "severity"),
    [(10, None), (9, "minor"), (8, "minor"), (7, "moderate"), (6, "moderate"), (4, "major"), (3, "critical")],
)
def test_severity_follows_from_what_agrees(alike: int, severity: str | None) -> None:
    outputs = given(*["same"] * alike, *(f"other{at}" for at in range(10 - alike)))
    analysis = found(outputs).analysis
    assert analysis.agreement_ratio == pytest.approx(alike / 10)
    assert analysis.severity == severity


def test_the_analysis_shows_the_agreement_on_each_property() -> None:
    outputs = given({"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 1}, FAILED)
    analysis = found(outputs).analysis
    assert analysis.fields == {"a": 0.75, "b": 0.25}
    assert found(given({"a": 1}, "a")).analysis.fields is None


def test_a_single_output_is_like_itself() -> None:
    analysis = found(given("a", FAILED)).analysis
    assert (analysis.average_similarity, analysis.agreement_ratio) == (1.0, 0.5)
