"""What endpoints are owed, in Postgres: leases, fencing, fairness, and what an acceptance leaves there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.adapters.db.engine import driver_arguments, make_engine
from app.adapters.db.outbox import PostgresOutbox
from app.adapters.db.run_store import PostgresRuns
from app.adapters.db.webhooks import forget_deliveries, secret_place
from app.adapters.sealing import AesGcmVault
from app.core.events.run import RunQueued, RunStarted
from app.core.webhooks import Answer
from app.ports.storage import NewRun, RunRecord
from app.ports.webhooks import Due, Settlement
from app.services.entries import entry_of
from tests.support.ambient import NOW_MS, CountingIds, FakeClock

pytestmark = pytest.mark.anyio

NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC)
PROJECT, OTHER = UUID(int=1), UUID(int=2)
MANY = 100
VAULT = AesGcmVault({"first": bytes(32)})


@dataclass
class World:
    """An outbox, and the store in which runs are accepted."""

    url: str
    connection: asyncpg.Connection[Any]
    store: PostgresRuns
    outbox: PostgresOutbox
    ids: CountingIds

    def another(self, lease_s: float = 60) -> PostgresOutbox:
        """The outbox of another process."""
        return PostgresOutbox(driver_arguments(self.url), VAULT, lease_s=lease_s)

    async def endpoint(self, project: UUID = PROJECT, **more: Any) -> UUID:
        """An endpoint."""
        values = {"id": self.ids.new(), "project_id": project, "url": "http://x", "secret": "s", **more}
        places = ", ".join(f"${n}" for n in range(1, len(values) + 1))
        await self.connection.execute(
            f"INSERT INTO webhook_endpoints ({', '.join(values)}) VALUES ({places})", *values.values()
        )
        found: UUID = values["id"]
        return found

    async def run(self, branch: UUID | None = None, project: UUID = PROJECT) -> UUID:
        """An accepted run, of a branch of its own unless one is named."""
        if branch is None:
            branch = await self.branch(project)
        record = RunRecord(self.ids.new(), project, branch, "operate", "queued", "{}", NOW)
        new = NewRun(
            record,
            seen_version=1,
            seen_position=0,
            entries=[entry_of(RunStarted(), 1, NOW_MS)],
            queued=[entry_of(RunQueued(), 1, NOW_MS)],
        )
        await self.store.accept(new)
        return record.id

    async def branch(self, project: UUID = PROJECT) -> UUID:
        """A branch."""
        branch = self.ids.new()
        await self.connection.execute(
            "INSERT INTO branches (id, project_id) VALUES ($1, $2)", branch, project
        )
        return branch

    async def owed(self) -> set[tuple[UUID, UUID]]:
        """Every delivery: (endpoint, run)."""
        rows = await self.connection.fetch("SELECT endpoint_id, run_id FROM webhook_deliveries")
        return {(row["endpoint_id"], row["run_id"]) for row in rows}

    async def row(self, due: Due) -> Any:
        """A delivery as it is stored, with its times as seconds from now."""
        return await self.connection.fetchrow(
            "SELECT *, extract(epoch FROM next_at - now())::float8 AS in_s FROM webhook_deliveries "
            "WHERE endpoint_id = $1 AND run_id = $2",
            due.endpoint_id,
            due.run_id,
        )


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    ids, arguments = CountingIds(), driver_arguments(database_url)
    connection = await asyncpg.connect(**arguments)
    for project in (PROJECT, OTHER):
        await connection.execute("INSERT INTO projects (id, name) VALUES ($1, $2)", project, str(project))
    store = PostgresRuns(arguments, owner=UUID(int=7), lease_ms=60_000, clock=FakeClock())
    outbox = PostgresOutbox(arguments, VAULT, lease_s=60)
    yield World(database_url, connection, store, outbox, ids)
    await outbox.close()
    await store.close()
    await connection.close()


async def claimed(outbox: PostgresOutbox) -> list[Due]:
    return list(await outbox.claim(room={}, each=MANY, limit=MANY))


async def test_an_accepted_run_is_owed_to_every_active_endpoint_of_its_project(world: World) -> None:
    mine = [await world.endpoint() for _ in range(2)]
    await world.endpoint(active=False, disabled_at=NOW)
    await world.endpoint(OTHER)
    branch = await world.branch()
    running, queued = await world.run(branch), await world.run(branch)
    late = await world.endpoint()
    assert await world.owed() == {(endpoint, run) for endpoint in mine for run in (running, queued)}
    third = await world.run()
    assert {(late, third)} <= await world.owed()


async def test_without_endpoints_nothing_is_owed(world: World) -> None:
    await world.endpoint(OTHER)
    await world.run()
    assert await world.owed() == set()
    assert await claimed(world.outbox) == []


async def test_of_several_processes_each_delivery_is_one_s(world: World) -> None:
    await world.endpoint()
    await world.endpoint()
    runs = [await world.run() for _ in range(10)]
    others = [world.another() for _ in range(3)]
    found = await asyncio.gather(*(claimed(outbox) for outbox in (world.outbox, *others) for _ in range(3)))
    got = [(due.endpoint_id, due.run_id) for dues in found for due in dues]
    assert len(got) == len(set(got)) == 2 * len(runs)
    assert await claimed(world.outbox) == []
    for outbox in others:
        await outbox.close()


async def test_a_lease_that_has_run_out_is_another_s_and_the_old_holder_writes_nothing(world: World) -> None:
    await world.endpoint()
    await world.run()
    hasty = world.another(lease_s=0)
    (old,) = await claimed(hasty)
    (new,) = await claimed(world.outbox)
    assert new.epoch == old.epoch + 1
    assert not await hasty.fix(old, 3)
    assert not await hasty.settle(old, Settlement("dead", 0, 0, disable="gone"))
    assert await world.outbox.fix(new, 3)
    row = await world.row(new)
    assert (row["status"], row["post_seq"]) == ("pending", 3)
    assert await world.connection.fetchval("SELECT active FROM webhook_endpoints")
    await hasty.close()


async def test_a_post_that_failed_is_remembered_with_its_end_until_it_is_taken(world: World) -> None:
    await world.endpoint()
    await world.run()
    (due,) = await claimed(world.outbox)
    assert await world.outbox.fix(due, 5)
    failed = Settlement("pending", 0, 0, failures=1, pause_s=0, answer=Answer(None, "x" * 9_999))
    assert await world.outbox.settle(due, failed)
    (again,) = await claimed(world.outbox)
    assert (again.post_seq, again.failures, again.delivered_seq) == (5, 1, 0)
    row = await world.row(again)
    assert (row["last_status"], len(row["last_error"])) == (None, 500)
    assert await world.outbox.settle(again, Settlement("pending", 5, 1, answer=Answer(204)))
    (onward,) = await claimed(world.outbox)
    assert (onward.post_seq, onward.failures, onward.delivered_seq, onward.posts) == (None, 0, 5, 1)
    assert await world.outbox.settle(onward, Settlement("done", 7, 1))
    row = await world.row(onward)
    assert (row["status"], row["last_status"], row["last_error"]) == ("done", 204, None)
    assert row["ended_at"] is not None
    assert await claimed(world.outbox) == []


async def test_news_bring_a_quiet_delivery_forward_but_not_a_failed_one(world: World) -> None:
    await world.endpoint()
    quiet, failed = await world.run(), await world.run()
    for due in await claimed(world.outbox):
        failures = int(due.run_id == failed)
        await world.outbox.settle(due, Settlement("pending", 0, 0, failures=failures, pause_s=900))
    assert await claimed(world.outbox) == []
    await world.outbox.touch([quiet, failed])
    assert [due.run_id for due in await claimed(world.outbox)] == [quiet]


async def test_news_of_what_is_under_way_are_looked_at_afterwards(world: World) -> None:
    await world.endpoint()
    run = await world.run()
    (due,) = await claimed(world.outbox)
    await world.outbox.touch([run])
    assert await claimed(world.outbox) == []
    await world.outbox.settle(due, Settlement("pending", 1, 0, pause_s=900))
    (again,) = await claimed(world.outbox)
    await world.outbox.settle(again, Settlement("pending", 1, 0, pause_s=900))
    assert await claimed(world.outbox) == []


async def test_each_endpoint_has_its_own_room(world: World) -> None:
    full, failing, free = [await world.endpoint() for _ in range(3)]
    for _ in range(5):
        await world.run()
    found = await world.outbox.claim(room={full: 0, failing: 1}, each=3, limit=MANY)
    count = [sum(due.endpoint_id == endpoint for due in found) for endpoint in (full, failing, free)]
    assert count == [0, 1, 3]
    assert len(await world.outbox.claim(room={}, each=MANY, limit=2)) == 2


async def test_a_receiver_that_is_gone_disables_its_endpoint(world: World) -> None:
    await world.endpoint()
    await world.run()
    await world.run()
    due, _ = await claimed(world.outbox)
    assert await world.outbox.settle(due, Settlement("dead", 0, 0, 1, answer=Answer(410), disable="gone"))
    row: Any = await world.connection.fetchrow("SELECT * FROM webhook_endpoints")
    assert (row["active"], row["disabled_reason"]) == (False, "gone")
    await world.connection.execute("UPDATE webhook_deliveries SET next_at = now()")
    assert await claimed(world.outbox) == []
    assert await world.outbox.interests() == {}


async def test_interests_tell_who_wants_more_than_stored_callbacks(world: World) -> None:
    assert await world.outbox.interests() == {}
    await world.endpoint()
    assert await world.outbox.interests() == {PROJECT: False}
    await world.endpoint(OTHER, callbacks=["on_start", "on_token"])
    await world.endpoint(event_types=["RUN_FAILED"])
    assert await world.outbox.interests() == {PROJECT: True, OTHER: True}


async def test_both_secrets_are_given_while_the_old_one_counts(world: World) -> None:
    await world.endpoint(secret="new", previous_secret="old", previous_until=datetime(2200, 1, 1, tzinfo=UTC))
    await world.endpoint(secret="new", previous_secret="old", previous_until=datetime(2000, 1, 1, tzinfo=UTC))
    await world.run()
    secrets = [list(due.secrets) for due in await claimed(world.outbox)]
    assert sorted(secrets, key=len) == [["new"], ["new", "old"]]


async def test_old_deliveries_and_those_of_no_endpoint_are_forgotten(world: World) -> None:
    gone, kept = await world.endpoint(), await world.endpoint()
    old, fresh = await world.run(), await world.run()
    await world.connection.execute("DELETE FROM webhook_endpoints WHERE id = $1", gone)
    await world.connection.execute(
        "UPDATE webhook_deliveries SET created_at = now() - interval '31 days' WHERE run_id = $1", old
    )
    engine = make_engine(world.url)
    async with engine.begin() as connection:
        assert await forget_deliveries(connection) == 3
        assert await forget_deliveries(connection) == 0
    await engine.dispose()
    assert await world.owed() == {(kept, fresh)}


async def test_deliveries_go_with_their_runs(world: World) -> None:
    await world.endpoint()
    branch = await world.branch()
    await world.run(branch)
    await world.connection.execute("DELETE FROM branches WHERE id = $1", branch)
    assert await world.owed() == set()


async def test_secrets_are_opened_and_those_that_do_not_open_left_out(
    world: World,
) -> None:
    ids = {name: world.ids.new() for name in ("sealed", "plain", "foreign", "half")}
    here = {name: VAULT.seal(secret_place(id), f"whsec_{name}") for name, id in ids.items()}
    foreign = AesGcmVault({"other": bytes(32)})
    theirs = {name: foreign.seal(secret_place(id), "whsec_x") for name, id in ids.items()}
    later: dict[str, Any] = {"previous_until": datetime(2100, 1, 1, tzinfo=UTC)}
    await world.endpoint(id=ids["sealed"], secret=here["sealed"], previous_secret="whsec_before", **later)
    await world.endpoint(id=ids["plain"], secret="whsec_plain")
    await world.endpoint(id=ids["foreign"], secret=theirs["foreign"])
    await world.endpoint(id=ids["half"], secret=here["half"], previous_secret=theirs["half"], **later)
    await world.run()
    found = {due.endpoint_id: due for due in await claimed(world.outbox)}
    assert {name: found[id].secrets for name, id in ids.items()} == {
        "sealed": ["whsec_sealed", "whsec_before"],
        "plain": ["whsec_plain"],
        "foreign": [],
        "half": ["whsec_half"],
    }
    assert "whsec" not in repr(found)
