"""What holds of every consensus, whatever the voters say."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.core.consensus.analysis import Output
from app.core.consensus.decide import Decision, Rules, decide
from app.core.json_text import canonical
from tests.core.consensus.test_similarity import values

STRATEGIES = ("unanimous", "majority", "weighted", "best")
CONFLICTS = ("vote", "merge", "best", "fail")

words = st.sampled_from(["yes", "Yes.", "no", "the sea is salty", "the sea is deep", {"a": 1}, {"a": 2}])
outputs = st.lists(
    st.builds(Output, words | values, st.floats(0.01, 100), st.sampled_from([True, True, True, False])),
    min_size=2,
    max_size=8,
)
rules = st.builds(
    Rules,
    st.sampled_from(STRATEGIES),
    st.sampled_from(CONFLICTS),
    st.floats(0, 1),
    st.floats(0, 1),
)


@given(outputs, rules)
def test_a_decision_is_whole(outputs: list[Output], rules: Rules) -> None:
    decision = decide(outputs, rules)
    assert 0.0 <= decision.confidence <= 1.0
    assert 0.0 <= decision.analysis.agreement_ratio <= 1.0
    assert 0.0 <= decision.analysis.average_similarity <= 1.0
    assert (decision.analysis.severity is None) == (decision.analysis.agreement_ratio == 1.0)
    members = sorted(at for group in decision.analysis.groups for at in group.members)
    assert members == [at for at, output in enumerate(outputs) if output.ok]
    if decision.status == "failed":
        assert (decision.result, decision.confidence, decision.index) == (None, 0.0, None)
        assert not members or decision.method == "fail"
    if decision.index is not None:
        assert canonical(decision.result) == canonical(outputs[decision.index].value)


@given(values, st.integers(2, 16), st.floats(0.01, 100), rules)
def test_identical_outputs_are_agreed_on_without_a_doubt(
    value: Any, number: int, weight: float, rules: Rules
) -> None:
    decision = decide([Output(value, weight)] * number, rules)
    assert (decision.status, decision.confidence, decision.index) == ("agreed", 1.0, 0)
    assert decision.analysis.severity is None


@given(outputs, rules, st.randoms(use_true_random=False))
def test_the_order_of_the_voters_changes_no_weight_and_no_clear_winner(
    outputs: list[Output], rules: Rules, random: Random
) -> None:
    places = list(range(len(outputs)))
    random.shuffle(places)
    one, other = decide(outputs, rules), decide([outputs[at] for at in places], rules)
    assert one.status == other.status
    assert one.method == other.method
    assert one.analysis.agreement_ratio == other.analysis.agreement_ratio
    assert one.analysis.average_similarity == other.analysis.average_similarity
    assert one.analysis.fields == other.analysis.fields
    if is_clear(one):
        winners = {places[at] for at in other.analysis.groups[0].members}
        assert winners == set(one.analysis.groups[0].members)


def is_clear(decision: Decision) -> bool:
    """Whether no tie decides: the heaviest group holds most of the weight, and all in it said the same."""
    groups = decision.analysis.groups
    if not groups:
        return False
    rest = sum(group.weight for group in groups[1:])
    values = decision.analysis.outputs
    inside = [canonical(values[at].value) for at in groups[0].members]
    return groups[0].weight > rest * 1.01 and len(set(inside)) == 1


@given(outputs, st.sampled_from(CONFLICTS))
def test_failing_voters_never_make_an_agreement(outputs: list[Output], conflict: Any) -> None:
    rules = Rules("majority", conflict)
    before = decide(outputs, rules)
    after = decide([*outputs, *[Output(ok=False, weight=1000)] * 2], rules)
    assert after.confidence <= before.confidence or after.method != before.method
    assert after.status != "agreed"
