"""Call tools over HTTP, without a service around them."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any
from uuid import UUID

import pytest

from app.adapters.checked_network import CheckedNetwork
from app.adapters.signing import Signer
from app.adapters.tools.http import HttpTools
from app.core.http_tool import HttpSettings
from app.ports.tool import Invocation, ToolFailure, ToolSpec
from tests.support.credentials import FakeCredentials
from tests.support.model_server import Attempt
from tests.support.network import unsigned

JSON = "application/json"
CALL, RUN, BRANCH, PROJECT = (UUID(int=n) for n in (1, 2, 3, 4))
SILENCE = Attempt(head=b"", then="hang")
"""Takes a request and never answers."""


def gives(body: bytes, status: int = 200, **more: Any) -> Attempt:
    """An answer with a body of known length."""
    return Attempt([body], status, JSON, framing="length", **more)


@contextmanager
def full() -> Iterator[int]:
    """The port of a server that takes no connection any more."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        port = int(server.getsockname()[1])
        for _ in range(8):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        yield port


@asynccontextmanager
async def tools(
    may_reach: Callable[[str, str], bool] = lambda host, address: True,
    exposed: Mapping[str, str | None] | None = None,
    signer: Signer | None = None,
    credentials: Mapping[str, str] | None = None,
) -> AsyncIterator[HttpTools]:
    """A runner whose pauses are as short as they may be."""
    stored = FakeCredentials(credentials or {})
    made = HttpTools(CheckedNetwork(may_reach), exposed or {}, stored, signer or unsigned(), draw=lambda: 0.0)
    yield made
    await made.aclose()


async def post(
    runner: HttpTools,
    url: str,
    arguments: dict[str, Any] | None = None,
    *,
    idempotent: bool = False,
    **said: Any,
) -> Any:
    """The output of a call of the tool at a URL."""
    settings = HttpSettings(url, **said).settings()
    spec = ToolSpec("t", "http", "", {"type": "object"}, idempotent=idempotent, settings=settings)
    return await runner.call(spec, Invocation(CALL, "t", arguments or {}, RUN, BRANCH, PROJECT))


async def failure(runner: HttpTools, url: str, **said: Any) -> ToolFailure:
    """How such a call fails."""
    with pytest.raises(ToolFailure) as caught:
        await post(runner, url, **said)
    return caught.value
