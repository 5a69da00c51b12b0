"""What is deleted together is found by indexes."""

from __future__ import annotations

import asyncpg
import pytest

pytestmark = pytest.mark.anyio

WITHOUT_INDEX = """
SELECT c.conrelid::regclass::text AS child, a.attname AS child_column
FROM pg_constraint c
JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[1]
WHERE c.contype = 'f' AND cardinality(c.conkey) = 1 AND c.confrelid <> 'projects'::regclass
  AND NOT EXISTS (
    SELECT 1 FROM pg_index i
    WHERE i.indrelid = c.conrelid AND i.indkey[0] = c.conkey[1] AND i.indpred IS NULL)
ORDER BY 1, 2"""


async def test_every_foreign_key_but_the_projects_has_an_index(database_url: str) -> None:
    # A row is deleted only after a look for those that point at it, one look for each row. Projects are never
    # deleted, and an index for them would cost every insert.
    connection = await asyncpg.connect(database_url)
    try:
        assert [tuple(row) for row in await connection.fetch(WITHOUT_INDEX)] == []
        await connection.execute("DROP INDEX function_calls_request")
        found = [tuple(row) for row in await connection.fetch(WITHOUT_INDEX)]
        assert found == [("function_calls", "action_request_id")]
    finally:
        await connection.close()
