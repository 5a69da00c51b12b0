"""What a run is told of its governance with its branch, and what is kept of a decision with its call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

from app.adapters.db.engine import make_engine
from app.adapters.db.listings import PostgresListings
from app.adapters.db.migrate import is_current, migrate
from app.adapters.db.session import Database
from app.core.governance.governance import StoredGovernance, StoredPolicies
from app.ports.catalog import Slice
from app.ports.storage import CallEnd, NewCall, NewMessage
from tests.adapters.db.test_run_store import NOW, PROJECT, World, world
from tests.conftest import ROOT
from tests.support.ambient import NOW_MS

pytestmark = pytest.mark.anyio

__all__ = ["world"]

GATE = {"rules": [{"when": "arguments.n == 9007199254740993", "effect": "deny"}]}
HOOKS = [{"point": "TOOL_PRE", "http": {"url": "https://hook.example"}}]


async def govern(world: World, table: str, id: Any, **values: Any) -> None:
    for name, value in values.items():
        text = value if isinstance(value, bool | str) else json.dumps(value)
        await world.connection.execute(f"UPDATE {table} SET {name} = $2 WHERE id = $1", id, text)


async def test_a_branch_comes_with_its_governance(world: World) -> None:
    plain, governed = await world.branch(), await world.branch()
    name = f"project {PROJECT.int}"
    assert (await world.store.branch_state(PROJECT, plain)).governance == StoredGovernance(project_name=name)
    await govern(world, "projects", PROJECT, gate={"default": "deny"}, hooks=HOOKS, self_approval=True)
    await govern(world, "branches", governed, gate=GATE, permissions={}, name="b", metadata={"tier": "gold"})
    project = StoredPolicies(gate={"default": "deny"}, hooks=HOOKS)
    expected = StoredGovernance(
        name, project, "b", {"tier": "gold"}, StoredPolicies(GATE, {}), self_approval=True
    )
    assert (await world.store.branch_state(PROJECT, governed)).governance == expected
    alone = (await world.store.no_branch_state(PROJECT)).governance
    assert alone == StoredGovernance(name, project, self_approval=True)


@pytest.mark.parametrize("at_once", [True, False], ids=["in one commit", "in two"])
async def test_a_decision_is_kept_with_its_call(world: World, database_url: str, at_once: bool) -> None:
    new = world.run(await world.branch())
    await world.store.accept(new)
    request, call = world.ids.new(), world.ids.new()
    decision = '{"effect": "deny", "by": "project.gate"}'
    opening = [
        NewMessage(request, "action_request", "{}"),
        NewCall(
            id=call,
            call_id=world.ids.new(),
            attempt=1,
            batch=0,
            index=0,
            function="f",
            action_request_id=request,
            status="processing",
            arguments="{}",
            raw_arguments="{}",
            arguments_digest="d",
            provider_call_id=None,
            started_at=NOW,
            gate=decision,
        ),
    ]
    end = CallEnd(call, "skipped", None, None, None, None, NOW)
    for rows in [[*opening, end]] if at_once else [opening, [end]]:
        await world.store.flush([world.flush(new, rows=rows)])
    engine = make_engine(database_url)
    stored = await PostgresListings(Database(engine)).call(PROJECT, call)
    page = await PostgresListings(Database(engine)).calls(PROJECT, {}, Slice(10, True))
    await engine.dispose()
    assert (stored.status, stored.gate) == ("skipped", decision)
    assert [call.gate for call in page.items] == [decision]


async def test_the_columns_come_and_go_and_leave_what_was_there(database_url: str) -> None:
    def take_back(connection: Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(ROOT / "migrations"))
        config.attributes["connection"] = connection
        command.downgrade(config, "0003")

    engine = make_engine(database_url)
    columns = text("SELECT count(*) FROM information_schema.columns WHERE column_name = 'gate'")
    async with engine.begin() as connection:
        await connection.execute(text("INSERT INTO projects (id, name) VALUES (gen_random_uuid(), 'kept')"))
        await connection.run_sync(take_back)
        assert await connection.scalar(columns) == 0
    assert not await is_current(engine)
    await migrate(engine, now_ms=NOW_MS)
    async with engine.connect() as connection:
        assert await connection.scalar(columns) == 3
        rows = await connection.execute(text("SELECT name, gate, self_approval FROM projects"))
        assert [tuple(row) for row in rows] == [("kept", None, False)]
    await engine.dispose()
