"""The HTTP server: uvicorn, bounded where it is not, and ready to stop in an orderly way."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.api.problems import problem_of
from app.core.errors import HeadersTooLarge, Malformed
from app.settings import BadSettings, Settings

DRAIN_S = 15
"""How long open connections may last after the service was told to stop."""
HEAD_BYTES = 64 * 1024
"""How long the line and the headers of a request may be together."""
HEAD_S = 30.0
"""How long a connection may take to send its first ones."""
LINGER_S = 1.0
"""How long the rest of a refused request is thrown away, for its answer to be read."""
UNREAD_S = 60
"""How long a client may leave unread what it was sent, before its connection is dropped."""


class Protocol(HttpToolsProtocol):
    """Uvicorn's, with bounds on the head of a request, and a problem as its answer to what is no HTTP."""

    _head_bytes = 0
    _in_head = True
    _too_long = False
    _refused = False
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there; it has to say what it wants."""
        super().connection_made(transport)
        self._patience = asyncio.get_running_loop().call_later(HEAD_S, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._be_patient()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on."""
        if self._refused:
            return
        super().data_received(data)
        if self._in_head and not self._refused:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._too_long = True
                self.send_400_response("")

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its head is there."""
        self._be_patient()
        self._in_head = False
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > HEAD_BYTES:
            self._too_long = True
            raise ValueError("the head is too long")  # the parser's caller answers
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be read, and hear no more of it."""
        refusal = (
            HeadersTooLarge(f"The head of a request may have {HEAD_BYTES} bytes.")
            if self._too_long
            else Malformed("This is no HTTP request that can be read.")
        )
        answer = problem_of(refusal, None)
        head = b"".join(name + b": " + value + b"\r\n" for name, value in answer.raw_headers)
        line = f"HTTP/1.1 {answer.status_code} Refused\r\n".encode()
        self.transport.write(line + head + b"connection: close\r\n\r\n" + answer.body)
        if self.cycle is not None and not self.cycle.response_complete:
            # Its head could be read, and so it is being answered: this here is the only answer.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        # Closed at once, with data still to come, the connection would be reset and the answer lost.
        self._refused = True
        self.transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, self.transport.close)

    def _be_patient(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


class Server(uvicorn.Server):
    """Uvicorn, which tells the application of a stop before it waits for open connections to end."""

    def __init__(self, app: Any, on_stop: Callable[[], None]) -> None:
        """`on_stop` is called at each request to stop, in the event loop's thread."""
        super().__init__(
            uvicorn.Config(
                app,
                loop="uvloop",
                http=Protocol,
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


def bound(settings: Settings) -> socket.socket:
    """The listening socket. Raises BadSettings when the address cannot be used."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # With the protocol named, or asyncio leaves Nagle's algorithm on, which costs 40 ms an answer.
    listener = socket.socket(family, proto=socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # Accepted sockets inherit it. Without it a client that never reads keeps its connection for ever.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_S * 1000)
    try:
        listener.bind((settings.host, settings.port))
    except (OSError, OverflowError) as error:
        listener.close()
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise BadSettings(
            f"{settings.host}:{settings.port} cannot be used ({why}); choose another with --port."
        ) from None
    listener.set_inheritable(True)
    return listener


def url_of(listener: socket.socket) -> str:
    """Where clients on this machine find the service."""
    host, port = listener.getsockname()[:2]
    if host in {"0.0.0.0", "::"}:
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
