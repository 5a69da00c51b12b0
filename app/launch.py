"""Start everything on one machine: embedded database, embedded model, service; and end it all together."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.adapters.embedded.errors import LocalModelMissing
from app.adapters.embedded.model import EmbeddedModel
from app.adapters.embedded.postgres import EmbeddedPostgres
from app.adapters.embedded.supervise import keep_alive
from app.api.problems import problem
from app.ports.catalog import ModelSpec
from app.ports.provider import ModelEndpoint
from app.services.models import OperatorModels
from app.settings import BadSettings, Settings
from app.wiring import application

Say = Callable[[str], None]

log = structlog.get_logger("launch")

MODEL = "SmolLM2-135M-Instruct"
DRAIN_S = 15
"""How long open connections may last after the service was told to stop."""


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
            lambda: ModelEndpoint("local", "openai", MODEL, engine.base_url, engine.api_key, ENGINE_OPTIONS),
            lifecycle=PATIENCE,
            spec=spec,
        )
        yield LocalModel("local", offered, engine)


def bound(settings: Settings) -> socket.socket:
    """The listening socket. Raises BadSettings when the address is taken."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise BadSettings(
            f"{settings.host}:{settings.port} cannot be used ({error.strerror}); choose another with --port."
        ) from None
    listener.set_inheritable(True)
    return listener


def url_of(listener: socket.socket) -> str:
    """Where clients on this machine find the service."""
    host, port = listener.getsockname()[:2]
    if host in {"0.0.0.0", "::"}:
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Protocol(HttpToolsProtocol):
    """Uvicorn's, whose answer to what is no HTTP is a problem like every other."""

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be read and close the connection."""
        answer = problem(
            400, "malformed_request", "This is no HTTP request that can be read.", request_id=None
        )
        head = b"".join(name + b": " + value + b"\r\n" for name, value in answer.raw_headers)
        self.transport.write(
            b"HTTP/1.1 400 Bad Request\r\n" + head + b"connection: close\r\n\r\n" + answer.body
        )
        self.transport.close()


class Server(uvicorn.Server):
    """Uvicorn, which tells the application of a stop before it waits for open connections to end."""

    def __init__(self, app: Any, on_stop: Callable[[], None]) -> None:
        """`on_stop` is called once, in the event loop's thread."""
        super().__init__(
            uvicorn.Config(
                app,
                loop="uvloop",
                http=_Protocol,
                ws="none",
                access_log=False,
                log_config=None,
                server_header=False,
                proxy_headers=False,  # nothing here asks for the client's address
                timeout_graceful_shutdown=DRAIN_S,
                timeout_keep_alive=75,
            )
        )
        self._on_stop = on_stop
        self.up = asyncio.Event()
        """Set when requests are answered."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to answer requests."""
        await super().startup(sockets=sockets)
        if self.started:
            self.up.set()

    def handle_exit(self, sig: int, frame: Any) -> None:
        """A signal to stop. Uvicorn's own handler would raise it again when the server has ended, before the
        rest of the process is put away.
        """
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.stop()

    def stop(self) -> None:
        """Stop serving; from the event loop's thread."""
        self.should_exit = True
        self._on_stop()


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
            server = Server(made.app, made.closing.set)
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            up = asyncio.create_task(server.up.wait())
            await asyncio.wait({serving, up}, return_when=asyncio.FIRST_COMPLETED)
            if server.started and once_up is not None and not await asyncio.to_thread(once_up):
                server.stop()
            await serving
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
