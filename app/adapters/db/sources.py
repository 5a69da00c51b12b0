"""Rows as parameters of a statement: those of one kind are one array of a composite type.

An array for each column would do without types, but the server sets up a function with a store of its own
for each, at some 4 µs, and the driver looks at each value twice. Values that are spelled out are as quick,
but make a statement for each number of rows.

The types are the schema's (`migrations/`). They are never altered, for a process of the version before writes
with them: what has more columns has another type.
"""

from __future__ import annotations

from typing import NamedTuple


class Source(NamedTuple):
    """Rows of one kind."""

    type: str
    columns: str
    """Those of the type, each with its own, in the order in which values are given: "id uuid, epoch int"."""

    @property
    def names(self) -> list[str]:
        """Of the columns."""
        return [column.split()[0] for column in self.columns.split(", ")]

    def table(self, parameter: int) -> str:
        """The rows that the parameter of this number has, as a table `w`."""
        return f"unnest(${parameter}::{self.type}[]) AS w"
