"""A migration only adds: those who know the schema before it go on reading and writing beside it.

One that takes something away says so: `CONTRACTS` names the revision since which nobody uses it, and
`WIDENED` the rules that it replaces by wider ones.
"""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Connection, text

from app.adapters.db.engine import make_engine
from tests.support.postgres import PostgresServer
from tests.support.schemas import Schema, narrowings, revisions, schema_of, upgrade

pytestmark = pytest.mark.anyio


async def on_an_empty_database(postgres: PostgresServer, work: Any) -> Any:
    """What `work`, which is given a connection, gives."""
    async with postgres.database() as url:
        engine = make_engine(url)
        try:
            async with engine.connect() as connection:
                return await connection.run_sync(work)
        finally:
            await engine.dispose()


async def test_every_migration_only_adds_or_says_what_it_takes_away(postgres: PostgresServer) -> None:
    scripts = revisions()

    def walked(connection: Connection) -> list[Schema]:
        found = []
        for script in scripts:
            upgrade(connection, script.revision)
            found.append(schema_of(connection))
        return found

    schemas: list[Schema] = await on_an_empty_database(postgres, walked)
    for script, before, after in zip(scripts[1:], schemas, schemas[1:], strict=False):
        module, earlier = script.module, [s.revision for s in scripts if s.revision < script.revision]
        contracts = getattr(module, "CONTRACTS", None)
        if contracts is not None:
            assert contracts in earlier, f"{script.revision} has to name an earlier revision"
            continue
        widened = getattr(module, "WIDENED", ())
        faults = [line for line in narrowings(before, after) if line.split()[0] not in widened]
        assert faults == [], f"{script.revision} does not only add"


NARROWING = {
    "ALTER TABLE branches DROP COLUMN name": "branches.name is gone",
    "ALTER TABLE branches RENAME COLUMN name TO title": "branches.name is gone",
    "ALTER TABLE branches ALTER version TYPE bigint": "branches.version is bigint, no integer any more",
    "ALTER TABLE branches ALTER COLUMN name SET NOT NULL": "branches.name takes no null any more",
    "ALTER TABLE branches ADD COLUMN x int NOT NULL": "branches.x is asked of rows that know nothing of it",
    "ALTER TABLE branches ADD CONSTRAINT c CHECK (version > 0)": (
        "branches.c is asked of columns that were there before"
    ),
    "CREATE UNIQUE INDEX u ON branches (project_id, name)": (
        "branches.u is asked of columns that were there before"
    ),
    "DROP INDEX runs_one_active": "runs.runs_one_active says something else, or is gone",
    "DROP FUNCTION hand_over": "hand_over(uuid,uuid,interval,timestamp with time zone) SETOF runs is gone",
}
ADDING = (
    "ALTER TABLE branches ADD COLUMN x int",
    "ALTER TABLE branches ADD COLUMN x int NOT NULL DEFAULT 1 CHECK (x > 0)",
    "ALTER TABLE branches ALTER COLUMN tools DROP NOT NULL",
    "CREATE TABLE more (id uuid PRIMARY KEY, name text NOT NULL UNIQUE)",
    "CREATE INDEX i ON branches (name)",
)


@pytest.mark.parametrize("statement", [*NARROWING, *ADDING])
async def test_what_takes_something_away_is_seen(database_url: str, statement: str) -> None:
    def changed(connection: Connection) -> list[str]:
        before = schema_of(connection)
        connection.execute(text(statement))
        return list(narrowings(before, schema_of(connection)))

    engine = make_engine(database_url)
    async with engine.connect() as connection:
        found = await connection.run_sync(changed)
    await engine.dispose()
    assert found[:1] == ([NARROWING[statement]] if statement in NARROWING else [])
