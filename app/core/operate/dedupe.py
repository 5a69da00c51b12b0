"""Collapse tool calls that ask for the same, and give each of them its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from app.core.action.normalize import ActionCall

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Batched:
    """What is carried out for the calls that were asked for."""

    calls: tuple[ActionCall, ...]
    slots: tuple[int, ...]
    """For each call that was asked for, in order, which of `calls` answers it."""

    def spread(self, answers: Sequence[T]) -> list[T]:
        """One answer for each call that was asked for; `answers` are those of `calls`."""
        return [answers[slot] for slot in self.slots]


def one_by_one(calls: Sequence[ActionCall]) -> Batched:
    """Every call for itself."""
    return Batched(tuple(calls), tuple(range(len(calls))))


def collapsed(calls: Sequence[ActionCall]) -> Batched:
    """Calls of the same function with the same arguments become the first of them.

    The order of keys makes no difference; 1, 1.0 and true are three values.
    """
    first: dict[tuple[str, str, bool], int] = {}
    kept: list[ActionCall] = []
    slots: list[int] = []
    for call in calls:
        # What cannot run is told apart from what can: their digests are of different things.
        key = (call.function, call.digest, call.arguments is None)
        if key not in first:
            first[key] = len(kept)
            kept.append(call)
        slots.append(first[key])
    return Batched(tuple(kept), tuple(slots))
