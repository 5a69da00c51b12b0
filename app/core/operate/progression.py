"""Which messages of a branch a caller may have a model shown."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final
from uuid import UUID

from app.core.errors import FieldError, Invalid
from app.core.json_text import pointer

_AT: Final = "/progression"


def progression_of(
    asked: Sequence[str], known: Sequence[UUID], pairs: Mapping[UUID, UUID]
) -> tuple[UUID, ...]:
    """The ids of a progression. Raises `Invalid` naming every one that cannot stand there.

    `known` are the branch's messages in order, which a progression keeps; its system text is always shown.
    `pairs` leads from each half of a tool call to the other: one half alone would tell of a call without its
    result, or of a result of nothing.
    """
    places = {id: place for place, id in enumerate(known)}
    found = [_uuid(text) for text in asked]
    listed = {id for id in found if id is not None}
    faults: list[FieldError] = []
    last = -1
    for index, id in enumerate(found):
        place = -1 if id is None else places.get(id, -1)
        fault = _fault(id, place, last, listed, pairs)
        if fault is not None:
            faults.append(FieldError(_AT + pointer(index), *fault))
        last = max(last, place)
    if faults:
        raise Invalid("the progression cannot be shown", errors=faults)
    return tuple(id for id in found if id is not None)


def _fault(
    id: UUID | None, place: int, last: int, listed: Collection[UUID], pairs: Mapping[UUID, UUID]
) -> tuple[str, str] | None:
    if id is None or place < 0:
        return "is no instruction, answer or tool call of this branch", "unknown_message"
    if place <= last:
        return "messages are listed once each, in the order of the branch", "out_of_order"
    other = pairs.get(id)
    if other is not None and other not in listed:
        return f"is half of a tool call; list {other} too", "half_a_call"
    return None


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
