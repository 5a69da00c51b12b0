"""Tools that are called over HTTP: one POST for each call, never repeated from here."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import httpcore
import httpx

from app.adapters.checked_network import AddressRefused, CheckedNetwork, MayReach
from app.adapters.tools.headers import Unsendable, secrets_in, sent_headers
from app.adapters.tools.http_answers import (
    BLOCKED_ADDRESS,
    INVALID_RESPONSE,
    MAX_BYTES,
    Answer,
    output_in,
    too_large,
)
from app.core.http_tool import HttpSettings
from app.core.json_text import dumps
from app.ports.tool import Invocation, ToolFailure, ToolSpec

HTTP_KIND: Final = "http"

TIMEOUT: Final = "TIMEOUT"
OUTCOME_UNKNOWN: Final = "OUTCOME_UNKNOWN"
CONNECTION_FAILED: Final = "CONNECTION_FAILED"
CONNECTION_LOST: Final = "CONNECTION_LOST"
NOT_CONFIGURED: Final = "NOT_CONFIGURED"

IDLE_S: Final = 4.0
"""How long an unused connection is kept: less than the five seconds after which many servers close one, for a
call that meets its end is lost and may not be repeated."""
KEPT: Final = 64
"""Unused connections that are kept at most."""
WORDS_BYTES: Final = 65_536
"""How much is read of the body of an answer that is no success, and"""
WORDS_S: Final = 1.0
"""for how long, in seconds."""

_HEADERS: Final = {
    "user-agent": "branchline",
    "content-type": "application/json",
    "accept": "application/json",
    "accept-encoding": "identity",
}
_UNKNOWN: Final = "whether the tool took effect is unknown"


class HttpTools:
    """Calls tools over HTTP/1.1; a `ToolRunner`."""

    kind = HTTP_KIND

    def __init__(
        self, may_reach: MayReach, exposed: Mapping[str, str | None], *, tls: ssl.SSLContext | None = None
    ) -> None:
        """`exposed` are the variables that headers may name, None for those without a value.

        Close it with `aclose()`.
        """
        self._exposed = exposed
        # Without a limit: how many calls run at once is decided by whoever makes them, and a slow tool of one
        # project must not keep those of another waiting.
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls or httpx.create_ssl_context(),
            max_connections=None,
            max_keepalive_connections=KEPT,
            keepalive_expiry=IDLE_S,
            network_backend=CheckedNetwork(may_reach),
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()

    async def call(self, spec: ToolSpec, invocation: Invocation) -> Any:
        """Post the call and return the JSON of the answer. Raises `ToolFailure`.

        A cancelled call closes its connection.
        """
        http = HttpSettings.of(spec.settings)
        chosen = self._chosen(http)
        headers = {**_HEADERS, **chosen, "idempotency-key": str(invocation.call_id)}
        try:
            async with asyncio.timeout(http.total_ms / 1000):
                answer = await self._post(http, headers, _body(invocation))
        except TimeoutError:
            words = f"the answer did not end within {http.total_ms} ms; {_UNKNOWN}"
            raise ToolFailure(TIMEOUT, words) from None
        return output_in(answer, hidden=secrets_in(chosen))

    def _chosen(self, http: HttpSettings) -> dict[str, str]:
        """The tool's headers with their values, names in lower case, so that they replace ours."""
        try:
            return sent_headers(http.headers, self._exposed)
        except Unsendable as error:
            raise ToolFailure(NOT_CONFIGURED, str(error), retryable=False) from None

    async def _post(self, http: HttpSettings, headers: Mapping[str, str], body: bytes) -> Answer:
        limits: dict[str, float | None] = {
            "connect": http.connect_ms / 1000,
            "write": None,
            "read": http.first_byte_ms / 1000,
        }
        answered = False
        try:
            where, host = _target(http.url)
            sent: list[tuple[bytes | str, bytes | str]] = [("host", host), *headers.items()]
            async with self._pool.stream(
                "POST", where, headers=sent, content=body, extensions={"timeout": limits}
            ) as response:
                answered = True
                limits["read"] = None  # The pool looks again before each read; from here the total counts.
                given = _headers(response)
                succeeded = 200 <= response.status < 300
                content = await (_whole(response, given) if succeeded else _beginning(response))
                return Answer(response.status, given.get("content-type", ""), content)
        except AddressRefused as refused:
            raise ToolFailure(BLOCKED_ADDRESS, str(refused), retryable=False) from None
        except httpcore.ConnectTimeout:
            words = f"no connection within {http.connect_ms} ms; nothing was sent"
            raise ToolFailure(TIMEOUT, words, retryable=True) from None
        except httpcore.ConnectError as error:
            words = f"no connection, nothing was sent: {error}"
            raise ToolFailure(CONNECTION_FAILED, words, retryable=True) from None
        except httpcore.TimeoutException:
            words = f"no answer within {http.first_byte_ms} ms; {_UNKNOWN}"
            raise ToolFailure(TIMEOUT, words) from None
        except (httpcore.LocalProtocolError, httpcore.UnsupportedProtocol, httpx.InvalidURL):
            # Their words may hold a header's value.
            raise ToolFailure(NOT_CONFIGURED, "the request cannot be sent", retryable=False) from None
        except (httpcore.NetworkError, httpcore.RemoteProtocolError, OSError):
            raise _lost(answered) from None


def _target(url: str) -> tuple[httpcore.URL, str]:
    """The address as the pool takes it, and the Host header. Raises httpx.InvalidURL."""
    parts = httpx.URL(url)
    where = httpcore.URL(scheme=parts.raw_scheme, host=parts.raw_host, port=parts.port, target=parts.raw_path)
    return where, parts.netloc.decode("ascii")


def _headers(response: httpcore.Response) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}


async def _beginning(response: httpcore.Response) -> bytes:
    """Some of a body that is only looked at for the words in it: the answer has been given by its head."""
    pieces: list[bytes] = []
    size = 0
    with suppress(TimeoutError, httpcore.NetworkError, httpcore.ProtocolError):
        async with asyncio.timeout(WORDS_S):
            async for piece in response.aiter_stream():
                pieces.append(piece)
                size += len(piece)
                if size > WORDS_BYTES:
                    break
    return b"".join(pieces)


async def _whole(response: httpcore.Response, headers: Mapping[str, str]) -> bytes:
    """The body. Raises `ToolFailure` for one that is too large, by what it says of itself or by what came."""
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > MAX_BYTES:
        raise too_large()
    if headers.get("content-encoding", "identity") != "identity":
        words = f"HTTP {response.status}, but the body is compressed, which was not asked for"
        raise ToolFailure(INVALID_RESPONSE, words, retryable=False)
    pieces: list[bytes] = []
    size = 0
    async for piece in response.aiter_stream():
        size += len(piece)
        if size > MAX_BYTES:
            raise too_large()
        pieces.append(piece)
    return b"".join(pieces)


def _lost(answered: bool) -> ToolFailure:
    if answered:
        words = f"the connection was lost in the middle of the answer; {_UNKNOWN}"
        return ToolFailure(CONNECTION_LOST, words, retryable=True)
    words = f"the connection was lost, or spoke no HTTP, before an answer; {_UNKNOWN}"
    return ToolFailure(OUTCOME_UNKNOWN, words, retryable=True)


def _body(invocation: Invocation) -> bytes:
    return dumps(
        {
            "call_id": str(invocation.call_id),
            "function": invocation.function,
            "arguments": invocation.arguments,
            "run_id": str(invocation.run_id),
            "branch_id": str(invocation.branch_id),
            "project_id": str(invocation.project_id),
        }
    )
