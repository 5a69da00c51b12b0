"""Three replicas over one Postgres, a model server and a tool server, and what can be done to them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from app.adapters.db.lane import GONE
from app.adapters.embedded.layout import Layout
from app.adapters.embedded.postgres import EmbeddedPostgres
from tests.support.process import Process, serving_logged
from tests.system.chaos.evidence import epochs
from tests.system.chaos.servers import Servers, flaky_servers
from tests.system.chaos.troubles import LEASE_MS, Kind, Role, Trouble

REPLICAS = 3
START_S = 180.0
"""How long a replica may try to start, with the database away for some of it."""
_PAUSE_S = 0.1
STOP_S = 120.0
"""How long it may take to stop."""
SURVIVES_A_CRASH = {"fsync": "off", "max_connections": "200"}
"""Settings of a server whose contents outlive its process, if not the machine."""


@dataclass(slots=True)
class Replica:
    """A process of the service, and after it the next one in its place."""

    number: int
    database_url: str
    folder: Path
    process: Process | None = None
    role: Role = "all"
    url: str = ""
    """Where it is, or was last."""
    troubled: asyncio.Lock = field(default_factory=asyncio.Lock)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def log(self) -> Path:
        """What its processes have logged."""
        return self.folder / f"replica-{self.number}.log"

    async def start(self) -> None:
        """Serve, however often it takes: a process does not start while the database is away."""
        async with asyncio.timeout(START_S):
            while self.process is None:
                made = serving_logged(
                    self.log,
                    self.database_url,
                    self.folder / "data",
                    BRANCHLINE_LEASE_MS=str(LEASE_MS),
                    BRANCHLINE_HEARTBEAT_S="1",
                    BRANCHLINE_ROLE=self.role,
                )
                with suppress(AssertionError):
                    self.process = await self._stack.enter_async_context(made)
        self.url = str(self.process.http.base_url).rstrip("/")

    async def leave(self) -> None:
        """Be no more: killed, unless it has ended by itself."""
        self.process = None
        await self._stack.aclose()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if there is anybody to get it."""
        if self.process is not None and self.process.process.returncode is None:
            self.process.process.send_signal(number)

    async def ended(self, within_s: float) -> bool:
        """Whether it ends by itself in time."""
        assert self.process is not None
        with suppress(TimeoutError):
            await asyncio.wait_for(self.process.process.wait(), within_s)
            return True
        return False


class World:
    """See the module's words."""

    def __init__(
        self, postgres: EmbeddedPostgres, root: Path, replicas: list[Replica], servers: Servers
    ) -> None:
        self._postgres = postgres
        self._root = root
        self._database = asyncio.Lock()
        # One replica serves at any time, or on a slow machine, where starts take long, nothing would be done.
        self._troubled = asyncio.Semaphore(len(replicas) - 1)
        self.replicas = replicas
        self.servers = servers
        self._hit = asyncio.Event()
        self.complaints: list[str] = []
        """What went wrong with the world itself."""

    @property
    def database_url(self) -> str:
        """The database that all replicas share."""
        return self._postgres.url

    @property
    def urls(self) -> list[str]:
        """Where replicas are that answer clients, or were last."""
        return [replica.url for replica in self.replicas if replica.role != "worker"]

    async def cast(self, roles: Sequence[Role]) -> None:
        """Give the replicas roles; those that get another begin anew."""
        for replica, role in zip(self.replicas, roles, strict=True):
            if replica.role != role or replica.process is None:
                await replica.leave()
                replica.role = role
        await asyncio.gather(*(replica.start() for replica in self.replicas))

    async def hit(self) -> None:
        """Return when a replica is about to be hit."""
        await self._hit.wait()

    async def epochs(self, run_id: str) -> Mapping[str, int]:
        """See `evidence.epochs`; waits for the database."""
        while True:
            with suppress(*GONE, asyncpg.PostgresError):
                return await epochs(self.database_url, run_id)
            await asyncio.sleep(_PAUSE_S)

    async def befall(self, trouble: Trouble) -> None:
        """Let one thing happen, and be over."""
        if trouble.replica is None:
            async with self._database:
                await self._database_away(trouble)
            return
        replica = self.replicas[trouble.replica]
        async with replica.troubled, self._troubled:
            self._hit.set()
            self._hit.clear()  # whoever waits has been woken
            match trouble.kind:
                case Kind.KILL:
                    replica.signal(signal.SIGKILL)
                    await self._again(replica, trouble.for_s)
                case Kind.STOP:
                    replica.signal(signal.SIGTERM)
                    if not await replica.ended(STOP_S):
                        self.complaints.append(f"replica {replica.number} did not stop within {STOP_S} s")
                    await self._again(replica, trouble.for_s)
                case _:
                    replica.signal(signal.SIGSTOP)
                    await asyncio.sleep(trouble.for_s)
                    replica.signal(signal.SIGCONT)

    async def _again(self, replica: Replica, away_s: float) -> None:
        await replica.leave()
        await asyncio.sleep(away_s)
        await replica.start()

    async def _database_away(self, trouble: Trouble) -> None:
        server = Layout(self._root.absolute()).server()
        crash = trouble.kind is Kind.DATABASE_CRASH
        if not await asyncio.to_thread(server.halt, hangs=crash):
            self.complaints.append(f"the database did not end: {trouble}")
        await asyncio.sleep(trouble.for_s)
        await asyncio.to_thread(self._postgres.revive)


@asynccontextmanager
async def world(folder: Path, cast: Sequence[Role]) -> AsyncIterator[World]:
    """A world that is well, with replicas of these roles, for the block."""
    root = folder / "postgres"
    postgres = EmbeddedPostgres(root, settings=SURVIVES_A_CRASH, initdb_options=["--no-sync"])
    async with AsyncExitStack() as stack:
        await asyncio.to_thread(postgres.start)
        stack.callback(postgres.stop)
        replicas = [Replica(number, postgres.url, folder) for number in range(REPLICAS)]
        servers = await stack.enter_async_context(flaky_servers())
        for replica in replicas:
            stack.push_async_callback(replica.leave)
        made = World(postgres, root, replicas, servers)
        await made.cast(cast)
        await servers.furnish(made.urls[0])
        yield made
