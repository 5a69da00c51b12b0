"""Weekly partitions of the event log, made ahead of time."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

PARENTS = ("events", "token_blocks")
WEEK_MS = 7 * 24 * 3600 * 1000
MAKING = 0x7765656B73
"""Advisory lock of those who make partitions."""
AHEAD = 4
"""How many coming weeks have a partition."""


def week_of(ms: int) -> int:
    """Number of the week (since the epoch) that holds this moment."""
    return ms // WEEK_MS


def first_id(week: int) -> UUID:
    """The smallest UUIDv7 of a week: only its timestamp counts."""
    return UUID(int=(week * WEEK_MS) << 80)


async def ensure_partitions(connection: AsyncConnection, *, now_ms: int) -> None:
    """Make what is missing from last week (a slow clock) to `AHEAD` weeks from now. Does not commit."""
    this = week_of(now_ms)
    await make_partitions(connection, range(this - 1, this + AHEAD + 1))


async def make_partitions(connection: AsyncConnection, weeks: Iterable[int]) -> None:
    """Make those of these weeks that are missing. Does not commit.

    They are attached to their parents, which those who write need not wait for.
    """
    missing = set(weeks) - await partitions(connection)
    if not missing:
        return
    await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MAKING})
    for week in sorted(missing - await partitions(connection)):
        for parent in PARENTS:
            child = f"{parent}_w{week}"
            await connection.execute(
                text(f"CREATE TABLE {child} (LIKE {parent} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)")
            )
            await connection.execute(
                text(
                    f"ALTER TABLE {parent} ATTACH PARTITION {child} "
                    f"FOR VALUES FROM ('{first_id(week)}') TO ('{first_id(week + 1)}')"
                )
            )


async def weeks_ahead(connection: AsyncConnection, *, now_ms: int) -> int:
    """How many coming weeks both tables have a partition for."""
    have = await partitions(connection)
    ahead = 0
    while week_of(now_ms) + ahead + 1 in have:
        ahead += 1
    return ahead


async def partitions(connection: AsyncConnection) -> set[int]:
    """The weeks that both tables have a partition for."""
    rows = await connection.execute(
        text(
            "SELECT p.relname, c.relname FROM pg_inherits i "
            "JOIN pg_class p ON p.oid = i.inhparent JOIN pg_class c ON c.oid = i.inhrelid "
            "WHERE p.relname = ANY(:parents)"
        ),
        {"parents": list(PARENTS)},
    )
    have: dict[str, set[int]] = {parent: set() for parent in PARENTS}
    for parent, child in rows:
        have[parent].add(int(child.rsplit("_w", 1)[1]))
    return set.intersection(*have.values())
