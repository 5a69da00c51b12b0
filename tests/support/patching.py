"""A client's side of a partial view: the changes, carried out."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

UNSET: Any = Ellipsis
"""No value yet."""


def patched(value: Any, changes: Iterable[Mapping[str, Any]]) -> Any:
    """The value after the changes; objects and arrays in it are changed in place."""
    for change in changes:
        steps = [part.replace("~1", "/").replace("~0", "~") for part in change["path"].split("/")[1:]]
        if not steps:
            assert (value is UNSET) == (change["op"] == "add")
            value = change["value"] if value is UNSET else value + change["value"]
            continue
        *way, last = steps
        holder = value
        for step in way:
            holder = holder[int(step)] if isinstance(holder, list) else holder[step]
        if change["op"] == "append":
            key: Any = int(last) if isinstance(holder, list) else last
            holder[key] += change["value"]
        elif isinstance(holder, list):
            assert int(last) == len(holder)
            holder.append(change["value"])
        else:
            assert last not in holder, "nothing is ever replaced"
            holder[last] = change["value"]
    return value


def adds_to(before: Any, after: Any) -> bool:
    """Whether `after` holds all that `before` held."""
    if before is UNSET:
        return True
    if isinstance(before, dict):
        return isinstance(after, dict) and all(n in after and adds_to(v, after[n]) for n, v in before.items())
    if isinstance(before, list):
        pairs = zip(before, after, strict=False) if isinstance(after, list) else ()
        return isinstance(after, list) and len(before) <= len(after) and all(adds_to(a, b) for a, b in pairs)
    if isinstance(before, str):
        return isinstance(after, str) and after.startswith(before)
    return type(before) is type(after) and bool(before == after)


class PartialClient:
    """What a client makes of the frames; it believes nothing that contradicts what it was told before."""

    def __init__(self) -> None:
        self.value: Any = UNSET
        self.resets: list[tuple[str, int]] = []
        self.final: dict[str, Any] | None = None

    def take(self, frame: Mapping[str, Any]) -> None:
        """The data of one frame."""
        match frame.get("type"):
            case "partial":
                assert frame["changes"]
                before = copy.deepcopy(self.value)
                self.value = patched(self.value, frame["changes"])
                assert adds_to(before, self.value)
            case "reset":
                self.resets.append((frame["reason"], frame["attempt"]))
                self.value = UNSET if frame["value"] is None else frame["value"]
            case "final":
                assert frame["continues"] == adds_to(self.value, frame["value"])
                self.final = dict(frame)
