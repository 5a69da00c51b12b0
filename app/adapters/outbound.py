"""Post to addresses that clients chose: nothing is followed or repeated, and no private host is reached."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import httpcore
import httpx

from app.adapters.checked_network import AddressRefused, CheckedNetwork

MAX_CONNECTIONS: Final = 64
IDLE_S: Final = 20.0
"""How long an unused connection is kept."""
BODY_BYTES: Final = 16_384
"""How much of an answer's body is read; a longer one is cut off, and its connection closed."""
BODY_S: Final = 1.0
"""How long its body may take."""

_HEADERS: Final = {
    "user-agent": "branchline",
    "content-type": "application/json",
    "accept-encoding": "identity",
}


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of a post."""

    status: int | None
    """The HTTP status; None when no answer came."""
    error: str | None = None
    """Why no answer came, or what is wrong with the status, for people."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case."""
    body: bytes = b""
    """All of a short body; empty when it was too long, or not there in time."""


class Outbound:
    """Makes posts over HTTP/1.1."""

    def __init__(
        self,
        network: CheckedNetwork,
        *,
        timeout_s: float,
        connect_timeout_s: float = 5.0,
        max_connections: int = MAX_CONNECTIONS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`timeout_s` bounds a whole request, and so its connection. Close it with `aclose()`."""
        self._timeout_s = timeout_s
        connect_s = min(connect_timeout_s, timeout_s)
        self._limits = {"connect": connect_s, "read": timeout_s, "write": timeout_s, "pool": timeout_s}
        self._pool = network.pool(idle_s=IDLE_S, most=max_connections, tls=tls)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Post JSON, once. Never raises: what goes wrong is a reply too."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._post(url, {**_HEADERS, **headers}, body)
        except (TimeoutError, httpcore.TimeoutException) as error:
            what = "connection" if isinstance(error, httpcore.ConnectTimeout) else "answer"
            return Reply(None, f"no {what} in time")
        except AddressRefused as refused:
            return Reply(None, str(refused))
        except (httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
            return Reply(None, f"{type(error).__name__}: {error}".rstrip(": "))
        except (ValueError, httpx.InvalidURL, httpcore.UnsupportedProtocol) as error:
            return Reply(None, f"the request cannot be sent: {error}")

    async def _post(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        parts = httpx.URL(url)
        where = httpcore.URL(
            scheme=parts.raw_scheme, host=parts.raw_host, port=parts.port, target=parts.raw_path
        )
        sent: list[tuple[bytes | str, bytes | str]] = [("host", parts.netloc), *headers.items()]
        async with self._pool.stream(
            "POST", where, headers=sent, content=body, extensions={"timeout": self._limits}
        ) as response:
            answered = await _short_body(response)
        given = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
        return Reply(response.status, _complaint(response.status), given, answered)


async def _short_body(response: httpcore.Response) -> bytes:
    """Read it, also so that the connection can be used again. The answer has been given by its head."""
    body = b""
    with suppress(TimeoutError, httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError):
        async with asyncio.timeout(BODY_S):
            async for piece in response.aiter_stream():
                body += piece
                if len(body) > BODY_BYTES:
                    return b""
            return body
    return b""


def _complaint(status: int) -> str | None:
    if 200 <= status < 300:
        return None
    if 300 <= status < 400:
        return f"HTTP {status}: redirects are not followed"
    return f"HTTP {status}"
