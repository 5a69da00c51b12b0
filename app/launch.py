"""Start everything on one machine: embedded database, embedded model, service; and end it all together."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
import uvloop

from app.adapters.embedded.postgres import EmbeddedPostgres
from app.ports.provider import ModelEndpoint
from app.services.models import OperatorModels
from app.settings import BadSettings, Settings
from app.wiring import application

Say = Callable[[str], None]

DRAIN_S = 15
"""How long open connections may last after the service was told to stop."""


def say(line: str) -> None:
    """Tell the person at the terminal; a pipe gets each line at once too."""
    print(line, flush=True)


@contextlib.contextmanager
def database(settings: Settings) -> Iterator[str]:
    """The database's URL: the given one, or that of the embedded server, which runs for the block."""
    if settings.database_url is not None:
        yield settings.database_url.get_secret_value()
        return
    say(f"Starting the embedded Postgres in {settings.data_dir} ...")
    with EmbeddedPostgres(settings.data_dir / "postgres", say=say) as server:
        yield server.url


@dataclass(frozen=True, slots=True)
class LocalModel:
    """The model that `branchline run` brings along."""

    name: str
    offered: OperatorModels


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
    """A model for trying out, which runs for the block."""
    offered = OperatorModels()
    offered.add("scripted", ModelEndpoint("scripted", "scripted", "scripted", options=SCRIPT))
    yield LocalModel("scripted", offered)


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


class Server(uvicorn.Server):
    """Uvicorn, which tells the application of a stop before it waits for open connections to end."""

    def __init__(self, app: Any, on_stop: Callable[[], None]) -> None:
        """`on_stop` is called once, in the event loop's thread."""
        super().__init__(
            uvicorn.Config(
                app,
                loop="uvloop",
                http="httptools",
                ws="none",
                access_log=False,
                log_config=None,
                server_header=False,
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
        """A signal to stop."""
        self._on_stop()
        super().handle_exit(sig, frame)

    def stop(self) -> None:
        """Stop as if by a signal."""
        self.handle_exit(signal.SIGTERM, None)


def serve(
    settings: Settings,
    listener: socket.socket,
    database_url: str,
    *,
    models: OperatorModels | None = None,
    once_up: Callable[[Server], None] | None = None,
) -> None:
    """Serve on `listener` until told to stop; `once_up` is run in a thread as soon as requests are answered.

    Raises BadSettings, and what keeps the database from being reached.
    """

    async def running() -> None:
        async with application(settings, database_url, models) as made:
            server = Server(made.app, made.closing.set)
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            up = asyncio.create_task(server.up.wait())
            await asyncio.wait({serving, up}, return_when=asyncio.FIRST_COMPLETED)
            if server.started and once_up is not None:
                await asyncio.to_thread(once_up, server)
            await serving
            up.cancel()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(running())


def complain(error: Exception) -> int:
    """Say what is wrong, for the exit status 2."""
    print(f"branchline: {error}", file=sys.stderr, flush=True)
    return 2


def absolute(folder: Path) -> Path:
    """A folder that stays the same wherever the process goes."""
    return folder.expanduser().absolute()
