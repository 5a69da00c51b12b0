"""Hot statements find rows by keys, also where they were planned while the tables were empty."""

from __future__ import annotations

from collections import Counter

import pytest

from app.core.events.run import RunStarted
from app.ports.storage import NewMessage
from app.services.entries import entry_of
from tests.adapters.db.test_groups import answers_to, calls_of
from tests.adapters.db.test_run_store import PROJECT, World, world
from tests.support.ambient import NOW_MS
from tests.support.polling import until_true

pytestmark = pytest.mark.anyio

__all__ = ["world"]

_SCANS = "SELECT relname, coalesce(seq_scan, 0), coalesce(idx_scan, 0) FROM pg_stat_user_tables"
_SMALL = {"projects", "webhook_endpoints", "quotas"}
"""Tables that stay so."""


async def scans(world: World) -> tuple[Counter[str], Counter[str]]:
    """How often tables were read whole, and by an index."""
    whole, by_index = Counter[str](), Counter[str]()
    for name, read_whole, looked_up in await world.connection.fetch(_SCANS):
        if name not in _SMALL:
            whole[name], by_index[name] = read_whole, looked_up
    return whole, by_index


async def test_no_table_that_grows_is_read_whole(world: World) -> None:
    new = world.run(await world.branch())
    assert new.run.branch_id is not None
    before, indexed = await scans(world)
    await world.store.accept(new)
    rows = calls_of(world, 2)
    await world.store.flush([world.flush(new, entry_of(RunStarted(), 2, NOW_MS), rows=rows)])
    end = world.end(new, seq=3)
    end.rows = [*answers_to(world, rows), NewMessage(world.ids.new(), "assistant_response", "{}")]
    await world.store.flush([end])
    await world.store.claim(1)
    await world.store.renew({new.run.id: 1})
    await world.store.page(new.run.id, after=0, limit=10)

    async def told() -> bool:
        """Servers tell of what they have done about once a second, when they have done something more."""
        assert new.run.branch_id is not None
        await world.store.branch_state(PROJECT, new.run.branch_id)
        await world.store.run(PROJECT, new.run.id)
        _, by_index = await scans(world)
        return all(by_index[name] > indexed[name] for name in ("runs", "branches", "messages"))

    await until_true(told)
    whole, _ = await scans(world)
    assert whole - before == Counter()
