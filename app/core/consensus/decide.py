"""From the outputs of voters to one result, and how far it can be relied on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from app.core.consensus.analysis import NO_MORE, Analysis, Group, Output, analyse
from app.core.consensus.merge import CannotMerge, merge

Strategy = Literal["unanimous", "majority", "weighted", "best"]
Conflict = Literal["vote", "merge", "best", "fail"]
Status = Literal["agreed", "partial", "failed"]

MERGED = 0.5
"""Confidence in a merged result: nobody gave it as it is."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How a consensus is found."""

    strategy: Strategy = "majority"
    conflict: Conflict = "vote"
    """What decides when the strategy finds no agreement."""
    threshold: float = 0.8
    """Similarity from which on two outputs count as alike."""
    minimum_agreement: float = 0.6
    """Part of all voters' weight that a majority needs."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What came of a consensus."""

    status: Status
    """`agreed` by the strategy, `partial` when a conflict was resolved, `failed` without a result."""
    method: str
    """The strategy, or the conflict rule that decided: `vote`, `merge`, `best` or `fail`."""
    result: Any
    """None when it failed."""
    confidence: float
    """From 0 to 1; 0 when it failed."""
    index: int | None
    """The voter whose output the result is; None when it is made of several, or when there is none."""
    analysis: Analysis


def decide(
    outputs: Sequence[Output], rules: Rules, *, fits: Callable[[Any], bool] = lambda value: True
) -> Decision:
    """Find what the voters agree on; where they do not, the conflict rule decides. Raises nothing.

    Agreed, what the result is, and the confidence in it:

    - `unanimous`, when every voter gave an output and every pair is alike: the representative of all; the
      least similarity of a pair.
    - `majority`, when the heaviest group has `minimum_agreement` of all weight: its representative; its part
      of all weight.
    - `weighted`, always: the representative of the heaviest group; its part of all weight.
    - `best`, always: the output of the heaviest voter; the part of all weight in its group.

    In a conflict:

    - `vote`: the representative of the group with the most voters, whatever they weigh; its part of all
      voters.
    - `merge`: one value made of all, or a vote where that cannot be, or does not fit; 0.5.
    - `best`: the output of the heaviest voter; its part of all weight.
    - `fail`: nothing; 0.

    A voter without an output is no reason to fail, but its weight counts as disagreement: one answer out of
    three is no agreement. Of equals the earlier in the list counts. `fits` says whether a merged value may be
    the result.
    """
    analysis = analyse(outputs, threshold=rules.threshold)
    if not analysis.groups:
        return Decision("failed", rules.strategy, None, 0.0, None, analysis)
    found = _by_strategy(analysis, rules)
    if found is not None:
        index, confidence = found
        return _chosen("agreed", rules.strategy, index, confidence, analysis)
    return _by_conflict_rule(analysis, rules, fits)


def _by_strategy(analysis: Analysis, rules: Rules) -> tuple[int, float] | None:
    """Whose output is agreed on, and the confidence in it; None for a conflict."""
    first = analysis.groups[0]
    match rules.strategy:
        case "unanimous":
            agreed = analysis.complete and analysis.least_similarity >= rules.threshold - NO_MORE
            return (first.representative, analysis.least_similarity) if agreed else None
        case "majority":
            agreed = analysis.agreement_ratio >= rules.minimum_agreement - NO_MORE
            return (first.representative, analysis.agreement_ratio) if agreed else None
        case "weighted":
            return first.representative, analysis.agreement_ratio
        case "best":
            best = _heaviest_voter(analysis)
            group = next(group for group in analysis.groups if best in group.members)
            return best, analysis.part_of(group.members)


def _by_conflict_rule(analysis: Analysis, rules: Rules, fits: Callable[[Any], bool]) -> Decision:
    match rules.conflict:
        case "fail":
            return Decision("failed", "fail", None, 0.0, None, analysis)
        case "best":
            best = _heaviest_voter(analysis)
            return _chosen("partial", "best", best, analysis.part_of([best]), analysis)
        case "merge":
            try:
                value = _merged(analysis)
            except CannotMerge:
                pass
            else:
                if fits(value):
                    return Decision("partial", "merge", value, MERGED, None, analysis)
    winner = max(analysis.groups, key=_voters)
    confidence = len(winner.members) / len(analysis.outputs)
    return _chosen("partial", "vote", winner.representative, confidence, analysis)


def _voters(group: Group) -> int:
    return len(group.members)


def _chosen(status: Status, method: str, index: int, confidence: float, analysis: Analysis) -> Decision:
    return Decision(status, method, analysis.outputs[index].value, confidence, index, analysis)


def _heaviest_voter(analysis: Analysis) -> int:
    given = [at for at, output in enumerate(analysis.outputs) if output.ok]
    return max(given, key=lambda at: (analysis.outputs[at].weight, -at))


def _merged(analysis: Analysis) -> Any:
    """All outputs as one, the heaviest groups first."""
    outputs = analysis.outputs
    order = [at for group in analysis.groups for at in group.members]
    texts = [outputs[group.representative].value for group in analysis.groups]
    return merge([(outputs[at].value, outputs[at].weight) for at in order], texts)
