"""Whether keys and projects may have a further run: looked at in the transaction that accepts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import asyncpg

from app.adapters.db.quotas import STANDING, standings
from app.core.limits.quota import LimitName, Standing
from app.core.limits.refusal import refusal

# Of several that are accepted at once each has to see the others. In one order, or two could wait for each
# other.
_HOLD: Final = """
SELECT FROM quotas WHERE id = ANY($1::uuid[]) AND concurrent_runs IS NOT NULL ORDER BY id FOR NO KEY UPDATE"""

# A statement of its own: it sees what was committed while the one before waited. It tells how things stood
# before this run was counted, the key's limits first. Each run is looked up: as a join, all could be read.
_COUNT: Final = f"""
WITH before AS MATERIALIZED ({STANDING} WHERE q.id = ANY($1::uuid[])),
over AS (
    DELETE FROM quota_runs o WHERE o.quota_id = ANY($1::uuid[])
      AND (SELECT r.id FROM runs r WHERE r.id = o.run_id AND r.ended_at IS NULL) IS NULL
),
counted AS (
    INSERT INTO quota_runs (quota_id, run_id) SELECT id, $2 FROM before WHERE runs < concurrent_runs
)
SELECT * FROM before ORDER BY of_key DESC"""


async def count_run(
    connection: asyncpg.Connection[Any], quota_ids: Sequence[UUID], run_id: UUID
) -> list[Standing]:
    """Have a run counted that is stored in the same transaction; where its limits stand then.

    Raises RunLimitReached, TokenLimitReached, CostLimitReached.
    """
    ids = list(quota_ids)
    await connection.execute(_HOLD, ids)
    rows = await connection.fetch(_COUNT, ids, run_id)
    found = [each for row in rows for each in standings(row) if each.limit is not LimitName.REQUESTS]
    for standing in found:
        if standing.is_reached:
            raise refusal(standing)
    return [
        replace(standing, used=standing.used + 1) if standing.limit is LimitName.RUNS else standing
        for standing in found
    ]
