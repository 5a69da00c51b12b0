"""Make one value of several that differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from app.core.json_text import canonical

Weighed = Sequence[tuple[Any, float]]
"""Values with their weights, those that count most first."""


class CannotMerge(Exception):
    """The values are of kinds that cannot be joined."""


def merge(values: Weighed, texts: Sequence[str] = ()) -> Any:
    """Objects property by property, arrays as the union of their items, texts one after the other.

    Within an object every property keeps the heaviest of its values; objects and arrays in it are merged in
    turn. `texts` are those to be joined when all values are texts, without near repeats. Raises `CannotMerge`
    for numbers, truth values, nulls, and values of several kinds.
    """
    found = [value for value, _ in values]
    if found and all(isinstance(value, str) for value in found):
        return " | ".join(texts)
    if found and (_all_are(found, dict) or _all_are(found, list)):
        return _joined(values)
    raise CannotMerge


def _joined(values: Weighed) -> Any:
    found = [value for value, _ in values]
    if _all_are(found, dict):
        names = dict.fromkeys(name for value in found for name in value)
        return {
            name: _joined([(value[name], weight) for value, weight in values if name in value])
            for name in names
        }
    if _all_are(found, list):
        items: dict[bytes, Any] = {}
        for value in found:
            for item in value:
                items.setdefault(canonical(item), item)
        return list(items.values())
    return _heaviest(values)


def _heaviest(values: Weighed) -> Any:
    behind: dict[bytes, list[float]] = {}
    for value, weight in values:
        behind.setdefault(canonical(value), []).append(weight)
    best = max(behind, key=lambda key: math.fsum(behind[key]))
    return next(value for value, _ in values if canonical(value) == best)


def _all_are(values: Sequence[Any], kind: type) -> bool:
    return all(isinstance(value, kind) for value in values)
