"""Start everything on one machine: embedded database, embedded model, service; and end it all together."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog
import uvloop

from app.adapters.embedded.errors import LocalModelMissing
from app.adapters.embedded.model import EmbeddedModel
from app.adapters.embedded.postgres import EmbeddedPostgres
from app.adapters.embedded.supervise import keep_alive
from app.ports.catalog import ModelSpec
from app.ports.provider import ModelEndpoint
from app.server import Server
from app.services.models import OperatorModels
from app.settings import Settings
from app.wiring import application

Say = Callable[[str], None]

log = structlog.get_logger("launch")

MODEL = "SmolLM2-135M-Instruct"


def say(line: str) -> None:
    """Tell the person at the terminal; a pipe gets each line at once too."""
    print(line, flush=True)


def say_aside(line: str) -> None:
    """The same on standard error, for commands whose output is a result."""
    print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class LocalDatabase:
    """Where the data is."""

    url: str
    server: EmbeddedPostgres | None
    """None for a database that somebody else runs."""


@contextlib.contextmanager
def database(settings: Settings, say: Say = say) -> Iterator[LocalDatabase]:
    """The given database, or the embedded server, which runs for the block."""
    if settings.database_url is not None:
        yield LocalDatabase(settings.database_url.get_secret_value(), None)
        return
    say(f"Starting the embedded Postgres in {settings.data_dir}")
    with EmbeddedPostgres(settings.data_dir / "postgres", say=say) as server:
        yield LocalDatabase(server.url, server)


@dataclass(frozen=True, slots=True)
class LocalModel:
    """The model that `branchline run` brings along, for trying out."""

    name: str
    offered: OperatorModels
    engine: EmbeddedModel | None
    """None where a script takes the model's place."""


ENGINE_OPTIONS = {
    "native_tools": False,
    "schema_profile": "llama.cpp",
    "extra_body": {"max_tokens": 512},  # so small a model does not always find an end
}
PATIENCE = {"timeout": {"initial_token_ms": 60_000, "inter_token_ms": 30_000}}
"""The small model reads a long prompt at a few hundred tokens a second, and may wait for a free slot."""

SCRIPT = {
    "streams": [
        {
            "attempts": [
                [
                    {"text": "Let me add that up. "},
                    {
                        "tool_call": {
                            "index": 0,
                            "id": "call_1",
                            "name": "add",
                            "arguments": '{"a": 19, "b": 23}',
                        }
                    },
                    {"end": "tool_calls"},
                ]
            ]
        }
    ]
}


@contextlib.contextmanager
def local_model(settings: Settings) -> Iterator[LocalModel]:
    """A model for trying out, which runs for the block: a small real one, or a script where it is missing."""
    offered = OperatorModels()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    engine = EmbeddedModel(settings.model_weights, log=settings.data_dir / "model.log", say=say)
    try:
        engine.start()
    except LocalModelMissing as missing:
        say(f"{missing} Until then a script takes the model's place.")
        offered.add("scripted", ModelEndpoint("scripted", "scripted", "scripted", options=SCRIPT))
        yield LocalModel("scripted", offered, None)
        return
    with contextlib.ExitStack() as stack:
        stack.callback(engine.stop)
        spec = ModelSpec("local", "openai", MODEL, options=ENGINE_OPTIONS, lifecycle=PATIENCE)
        offered.add(
            "local",
            lambda: ModelEndpoint(
                "local", "openai", MODEL, engine.base_url, engine.api_key, ENGINE_OPTIONS, trusted=True
            ),
            lifecycle=PATIENCE,
            spec=spec,
        )
        yield LocalModel("local", offered, engine)


def serve(
    settings: Settings,
    listener: socket.socket,
    data: LocalDatabase,
    *,
    model: LocalModel | None = None,
    once_up: Callable[[], bool] | None = None,
) -> None:
    """Serve on `listener` until told to stop; `once_up` is run in a thread as soon as requests are answered,
    and says whether to go on.

    Raises BadSettings, and what keeps the database from being reached.
    """

    async def running() -> None:
        offered = model.offered if model is not None else None
        async with application(settings, data.url, offered) as made, _kept_alive(data, model):
            _spare_the_collector()

            def stopping() -> None:
                if not made.closing.is_set():
                    say_aside("Stopping: runs have a few seconds to end.")
                made.closing.set()

            server = Server(made.app, stopping)
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            up = asyncio.create_task(server.up.wait())
            try:
                await asyncio.wait({serving, up}, return_when=asyncio.FIRST_COMPLETED)
                if server.started and once_up is not None and not await asyncio.to_thread(once_up):
                    server.stop()
                await serving
            finally:
                up.cancel()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(running())


def _spare_the_collector() -> None:
    """Hide what the start has made from the garbage collector: it stays, and to look at all of it again and
    again takes a tenth of a busy service's time. Requests leave little that is not freed at once.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@contextlib.asynccontextmanager
async def _kept_alive(data: LocalDatabase, model: LocalModel | None) -> AsyncIterator[None]:
    """Bring embedded parts back when they die or hang."""
    kept: list[asyncio.Task[None]] = []
    if (server := data.server) is not None:

        async def revive() -> None:
            await asyncio.to_thread(server.revive)

        kept.append(asyncio.create_task(keep_alive(server.is_ready, revive, log.warning)))
    if model is not None and (engine := model.engine) is not None:
        kept.append(asyncio.create_task(keep_alive(engine.is_ready, engine.revive, log.warning)))
    try:
        yield
    finally:
        for task in kept:
            task.cancel()
        if kept:
            await asyncio.wait(kept)


def complain(error: Exception) -> int:
    """Say what is wrong, for the exit status 2."""
    say_aside(f"branchline: {error}")
    return 2


def absolute(folder: Path) -> Path:
    """A folder that stays the same wherever the process goes."""
    return folder.expanduser().absolute()
