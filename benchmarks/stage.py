"""Everything that a load needs, each in a process of its own: fake model, Postgres, service."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from app.adapters.embedded.postgres import EmbeddedPostgres
from benchmarks import floors
from benchmarks.client import Address, load, request
from benchmarks.processes import (
    ROOT,
    ChildFailed,
    awaited_line,
    child,
    cpu_s,
    last_words,
    log_of,
    postgres_cpu_s,
    resident_mb,
)
from benchmarks.targets import Branchline, Direct, Target

START_S: Final = 60.0
_FAKE, _SERVICE = "benchmarks.fake_model", "app.cli"


@dataclass(frozen=True, slots=True)
class Stage:
    """What is there to be measured."""

    direct: Direct
    branchline: Branchline
    connection: asyncpg.Connection[Any]
    """To the service's database."""
    url: str
    """Of that database."""
    folder: Path
    """On the disk that the database is on, if that is the embedded one."""
    fake_pid: int
    service_pid: int
    backend_pid: int
    """The process that serves `connection`."""

    @property
    def others(self) -> Sequence[Target]:
        """What bears the same loads beside the service, under its own name among the figures."""
        return (self.direct,)

    def service_cpu_s(self) -> float:
        """CPU seconds of the service so far."""
        return cpu_s([self.service_pid])

    def postgres_cpu_s(self) -> float:
        """CPU seconds of the whole Postgres server so far; NaN where it is on another machine."""
        return postgres_cpu_s(self.backend_pid)

    def whole_cpu_s(self) -> float:
        """CPU seconds of everything that takes part so far."""
        ours = cpu_s([os.getpid(), self.fake_pid, self.service_pid])
        postgres = self.postgres_cpu_s()
        return ours if math.isnan(postgres) else ours + postgres

    def service_mb(self) -> float:
        """Resident memory of the service."""
        return resident_mb(self.service_pid)


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    """Start everything, and end it with the block. Raises ChildFailed, EmbeddedError."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(_folder())
        server_url = stack.enter_context(_server(folder))
        url = await stack.enter_async_context(_own_database(server_url))
        fake = stack.enter_context(child(_FAKE, folder=folder))
        fake_address = _address(awaited_line(fake, log_of(_FAKE, folder), "http://", START_S))
        service = stack.enter_context(_service(folder, url))
        log = log_of(_SERVICE, folder)
        address = _address(awaited_line(service, log, "Branchline ", START_S).rpartition(" on ")[2])
        await _ready(address, service, log)
        connection = await asyncpg.connect(url)
        stack.push_async_callback(connection.close, timeout=5)
        await floors.make_table(connection)
        yield Stage(
            Direct(fake_address),
            Branchline(address, fake_address),
            connection,
            url,
            folder,
            fake.pid,
            service.pid,
            connection.get_server_pid(),
        )


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder beside the service's usual one: the system's temporary folder may be no real disk."""
    home = ROOT / ".branchline"
    home.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=home))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            home.rmdir()


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    """The Postgres of DATABASE_URL, or an embedded one as the service would start it, durability included."""
    given = os.environ.get("DATABASE_URL")
    if given:
        yield given.replace("postgresql+asyncpg://", "postgresql://", 1)
        return
    with EmbeddedPostgres(folder / "postgres") as server:
        yield server.url


@asynccontextmanager
async def _own_database(server_url: str) -> AsyncIterator[str]:
    """An empty database for the length of the block: nobody else's rows are weighed or touched."""
    name = f"bench_{uuid.uuid4().hex}"
    connection = await asyncpg.connect(server_url)
    try:
        await connection.execute(f'CREATE DATABASE "{name}"')
        try:
            yield urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
        finally:
            await connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    finally:
        await connection.close(timeout=5)


def _service(folder: Path, database_url: str) -> contextlib.AbstractContextManager[Popen[bytes]]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BRANCHLINE_")}
    environment |= {
        "DATABASE_URL": database_url,
        "BRANCHLINE_TOOL_MODULES": "benchmarks.tools",
    }
    where = ("--host", "127.0.0.1", "--port", "0", "--data-dir", str(folder))
    return child(_SERVICE, "serve", *where, folder=folder, environment=environment)


def _address(url: str) -> Address:
    parts = urlsplit(url)
    if parts.hostname is None or parts.port is None:
        raise ChildFailed(f"{url!r} is no address")
    return parts.hostname, parts.port


async def _ready(address: Address, service: Popen[bytes], log: Path) -> None:
    """Wait until the service would take requests."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and service.poll() is None:
        with contextlib.suppress(OSError):
            outcome = await load(address, [request(address, "GET", "/readyz")], clients=1)
            if outcome.answers[0].status == 200:
                return
        await asyncio.sleep(0.05)
    raise ChildFailed(f"the service did not get ready; it said:\n{last_words(log)}")
