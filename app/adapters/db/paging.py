"""One stretch of a list by its sort key; one row more than asked for tells whether there is more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import sqlalchemy as sa

from app.ports.catalog import Page, Slice

T = TypeVar("T")


def sliced(query: sa.Select[Any], key: sa.ColumnElement[Any], part: Slice) -> sa.Select[Any]:
    """`query` cut to the part, in the order of `key`, which is unique."""
    if part.after is not None:
        query = query.where(key < part.after if part.descending else key > part.after)
    return query.order_by(key.desc() if part.descending else key.asc()).limit(part.limit + 1)


def page_of(rows: Sequence[T], part: Slice) -> Page[T]:
    """The rows of a `sliced` query."""
    return Page(rows[: part.limit], len(rows) > part.limit)
