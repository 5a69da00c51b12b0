"""Columns that many tables have, and what all tables are part of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Column, ForeignKey, MetaData
from sqlalchemy.dialects.postgresql import JSON

metadata = MetaData()


def id_column() -> Column[Any]:
    """What a row is known by."""
    return Column("id", sa.Uuid, primary_key=True)


def project_column() -> Column[Any]:
    """Whose it is."""
    return Column("project_id", sa.Uuid, ForeignKey("projects.id", ondelete="CASCADE"), nullable=False)


def stamp_column(name: str, *, null: bool = False, default: bool = False) -> Column[Any]:
    """A time; `default` is that of the transaction."""
    server = sa.func.now() if default else None
    return Column(name, sa.DateTime(timezone=True), nullable=null, server_default=server)


def text_column(name: str, *, null: bool = True, **kw: Any) -> Column[Any]:
    """Words."""
    return Column(name, sa.Text, nullable=null, **kw)


def policy_columns() -> Iterator[Column[Any]]:
    """What governs calls."""
    return (Column(name, JSON) for name in ("gate", "permissions", "hooks"))


def hold_column() -> Column[Any]:
    """Whether nothing of it may be deleted."""
    return Column("legal_hold", sa.Boolean, nullable=False, server_default="false")
