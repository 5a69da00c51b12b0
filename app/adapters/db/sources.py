"""Rows as parameters of a statement.

An array for each column takes any number of rows, but the server sets up a function with a store of its own
for each, at some 4 µs: with a hundred columns that is most of what a lone client waits for. So a few rows are
spelled out, value by value. Statements differ by size then, which is why sizes are rounded up: rows of nulls
fill them, and no join finds these.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any, Final

from app.adapters.db.columns import transposed

FEW: Final = 4
"""How many rows are spelled out at most."""
MANY: Final = -1
"""The size that stands for any number of rows."""

Sizes = tuple[int, ...]
"""For each list of rows 0, 1, FEW or MANY."""


def names_of(columns: str) -> list[str]:
    """Of "id uuid, epoch int" the names."""
    return [column.split()[0] for column in columns.split(", ")]


def source(columns: str, size: int, first: int) -> tuple[str, int]:
    """A table `w` of rows with these columns, with parameters from `first` on; and what number the next
    parameter has.
    """
    types = [column.split()[1] for column in columns.split(", ")]
    if size == MANY:
        values = ", ".join(f"${n}::{type}[]" for n, type in enumerate(types, first))
        table, after = f"unnest({values})", first + len(types)
    else:
        after = first + size * len(types)
        starts = range(first, after, len(types))
        rows = (", ".join(f"${n}::{type}" for n, type in enumerate(types, start)) for start in starts)
        table = f"(VALUES {', '.join(f'({row})' for row in rows)})"
    return f"{table} AS w ({', '.join(names_of(columns))})", after


def sizes_of(lists: Sequence[Sequence[Any]]) -> Sizes:
    """The sizes for these lists of rows: nothing is spelled out where there are many rows of any kind."""
    most = max(map(len, lists))
    if most > FEW:
        return tuple(MANY if rows else 0 for rows in lists)
    return tuple(FEW if len(rows) > 1 else len(rows) for rows in lists)


def parameters(lists: Sequence[Sequence[Sequence[Any]]], sizes: Sizes) -> list[Any]:
    """The values for `source`, for each of these lists of rows."""
    out: list[Any] = []
    for rows, size in zip(lists, sizes, strict=True):
        if size == MANY:
            out += transposed(rows)
        elif size:
            out += chain.from_iterable(rows)
            out += repeat(None, (size - len(rows)) * len(rows[0]))
    return out
