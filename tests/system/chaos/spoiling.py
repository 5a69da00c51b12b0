"""What tests of the invariants share: a service that is well, and where to find what is to be spoilt."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.support.database import migrated
from tests.support.postgres import PostgresServer
from tests.support.service import running
from tests.system.chaos.anywhere import anywhere
from tests.system.chaos.clients import Client
from tests.system.chaos.conversations import OF_BRANCHES
from tests.system.chaos.evidence import Evidence, epochs, gathered
from tests.system.chaos.invariants import OF_RUNS
from tests.system.chaos.places import OF_PLACES
from tests.system.chaos.servers import Servers, flaky_servers
from tests.system.chaos.voters import OF_VOTERS
from tests.system.chaos.wishes import Wish
from tests.system.chaos.workers import Workers

ALL = (*OF_RUNS, *OF_BRANCHES, *OF_PLACES, *OF_VOTERS)

Spoil = Callable[[Any], None]
"""Makes a copy of the evidence wrong."""


@dataclass(slots=True)
class Calm:
    """A client, and those whom runs wait for, on a branch of a service whose servers are slow at worst."""

    url: str
    database_url: str
    servers: Servers
    client: Client
    workers: Workers
    branch: str

    async def gathered(self, wishes: list[Wish]) -> Evidence:
        """What is left."""
        assert self.client.odd == []
        return await gathered(
            self.url, self.database_url, self.servers, [self.branch], wishes, self.workers.approved
        )

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Have those work whom runs wait for, for the block."""
        working = asyncio.create_task(self.workers.work())
        try:
            yield
        finally:
            working.cancel()


@asynccontextmanager
async def calm(postgres: PostgresServer) -> AsyncIterator[Calm]:
    """All of it, for the block."""
    async with (
        migrated(postgres) as database_url,
        running(database_url) as service,
        flaky_servers() as servers,
    ):
        servers.model.ways, servers.tools.ways = {"slowly": 1}, {"well": 1}
        await servers.furnish(service.url)
        draw = random.Random(1)
        async with anywhere(lambda: [service.url], draw) as http:
            client = Client(http, epochs=partial(epochs, database_url))
            workers = Workers(http, servers.tools, draw, client.note)
            branch = await client.branch(governed=True)
            yield Calm(service.url, database_url, servers, client, workers, branch)


def complaints(seen: Evidence) -> dict[str, list[str]]:
    """By the invariant that is broken."""
    found = {invariant.__name__: list(invariant(seen)) for invariant in ALL}
    return {name: told for name, told in found.items() if told}


def of(seen: Any, task: str) -> Any:
    """The run of a task."""
    return next(recorded for recorded in seen.runs if recorded.key == task)


def wish_of(seen: Any, task: str) -> Any:
    """The wish of a task."""
    return next(wish for wish in seen.wishes if wish.task == task)


def event_of(seen: Any, task: str, kind: str) -> Any:
    """The first event of a type in the log of a task's run."""
    return next(event for event in of(seen, task).events if event["type"] == kind)
