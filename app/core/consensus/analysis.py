"""Compare what voters gave: who agrees with whom, and how far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from app.core.consensus.similarity import Sketch, similarity
from app.core.json_text import canonical

NO_MORE: Final = 1e-9
"""By how much a part may fall short through rounding alone."""
MAX_FIELDS: Final = 64
"""Properties of objects that are looked at one by one."""

_SEVERITIES: Final = ((0.8, "minor"), (0.6, "moderate"), (0.4, "major"), (0.0, "critical"))


@dataclass(frozen=True, slots=True)
class Output:
    """What one voter gave; its place in the list is the voter's index."""

    value: Any = None
    """Any JSON value; a plain text is a string."""
    weight: float = 1.0
    """Above 0."""
    ok: bool = True
    """False for a voter without an output: it agrees with nobody."""


@dataclass(frozen=True, slots=True)
class Group:
    """Voters whose outputs are like that of one of them."""

    members: tuple[int, ...]
    """Their indices, ascending."""
    representative: int
    """Whose output stands for all."""
    weight: float


@dataclass(frozen=True, slots=True)
class Analysis:
    """Who agrees with whom."""

    outputs: Sequence[Output]
    groups: tuple[Group, ...]
    """The heaviest first; every voter with an output is in one."""
    agreement_ratio: float
    """Weight of the heaviest group as a part of all voters' weight."""
    average_similarity: float
    least_similarity: float
    """Of all pairs of outputs; 1 for a single output."""
    severity: str | None
    """How grave the disagreement is; None when there is none."""
    fields: Mapping[str, float] | None
    """By property, the weight behind its commonest value as a part of all voters' weight; None unless every
    output is an object.
    """

    @property
    def complete(self) -> bool:
        """Whether every voter gave an output."""
        return all(output.ok for output in self.outputs)

    def part_of(self, voters: Sequence[int]) -> float:
        """The weight of some voters as a part of all voters' weight."""
        return part(self.outputs, voters)


def part(outputs: Sequence[Output], voters: Sequence[int]) -> float:
    """The weight of some voters as a part of all voters' weight, from 0 to 1, in whatever order they are."""
    whole = math.fsum(output.weight for output in outputs)
    return min(1.0, math.fsum(outputs[at].weight for at in voters) / whole)


def analyse(outputs: Sequence[Output], *, threshold: float) -> Analysis:
    """Group the outputs; two are alike when their similarity is at least `threshold`.

    A group is made around an output: of those that are left, the one with the most weight among its like,
    then the nearest to them, then the heavier, then the earlier. Every member is like that one, so no chain
    of small differences joins outputs that differ a lot, and the weight of the heaviest group does not depend
    on the order of the voters.
    """
    given = [at for at, output in enumerate(outputs) if output.ok]
    sketches = {at: Sketch(outputs[at].value) for at in given}
    alike = {(at, at): 1.0 for at in given}
    for one, other in combinations(given, 2):
        alike[one, other] = alike[other, one] = similarity(sketches[one], sketches[other])
    groups = _groups(outputs, given, alike, threshold)
    pairs = [alike[pair] for pair in combinations(given, 2)]
    ratio = part(outputs, groups[0].members) if groups else 0.0
    return Analysis(
        outputs,
        groups,
        agreement_ratio=ratio,
        average_similarity=math.fsum(pairs) / len(pairs) if pairs else 1.0,
        least_similarity=min(pairs, default=1.0),
        severity=severity_of(ratio),
        fields=_fields(outputs, given),
    )


def severity_of(ratio: float) -> str | None:
    """How grave a disagreement is, by the part that agrees; None when all do."""
    if ratio >= 1 - NO_MORE:
        return None
    return next(word for least, word in _SEVERITIES if ratio >= least - NO_MORE)


def _groups(
    outputs: Sequence[Output], given: Sequence[int], alike: Mapping[tuple[int, int], float], threshold: float
) -> tuple[Group, ...]:
    groups: list[Group] = []
    left = list(given)
    while left:
        near = {
            centre: tuple(at for at in left if alike[centre, at] >= threshold - NO_MORE) for centre in left
        }

        def rank(centre: int, near: Mapping[int, tuple[int, ...]] = near) -> tuple[float, ...]:
            weight = math.fsum(outputs[at].weight for at in near[centre])
            nearness = math.fsum(outputs[at].weight * alike[centre, at] for at in near[centre])
            return weight, nearness, outputs[centre].weight, -centre

        centre = max(left, key=rank)
        groups.append(Group(near[centre], centre, rank(centre)[0]))
        left = [at for at in left if at not in near[centre]]
    return tuple(groups)


def _fields(outputs: Sequence[Output], given: Sequence[int]) -> dict[str, float] | None:
    values = [outputs[at].value for at in given]
    if not values or not all(isinstance(value, dict) for value in values):
        return None
    names = sorted({name for value in values for name in value})[:MAX_FIELDS]
    return {name: _support(outputs, given, name) for name in names}


def _support(outputs: Sequence[Output], given: Sequence[int], name: str) -> float:
    behind: dict[bytes, list[int]] = {}
    for at in given:
        if name in outputs[at].value:
            behind.setdefault(canonical(outputs[at].value[name]), []).append(at)
    return max(part(outputs, voters) for voters in behind.values())
