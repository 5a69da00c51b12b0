"""Post one call to a tool, once, and tell what is known when no answer comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import httpcore
import httpx

from app.adapters.checked_network import AddressRefused
from app.adapters.model_faults import retry_after_ms
from app.adapters.tools.headers import NOT_CONFIGURED
from app.adapters.tools.http_answers import (
    BLOCKED_ADDRESS,
    INVALID_RESPONSE,
    MAX_BYTES,
    Answer,
    too_large,
)
from app.core.http_tool import HttpSettings
from app.ports.tool import ToolFailure

TIMEOUT: Final = "TIMEOUT"
OUTCOME_UNKNOWN: Final = "OUTCOME_UNKNOWN"
CONNECTION_FAILED: Final = "CONNECTION_FAILED"
CONNECTION_LOST: Final = "CONNECTION_LOST"

WORDS_BYTES: Final = 65_536
"""How much is read of the body of an answer that is no success, and"""
WORDS_S: Final = 1.0
"""for how long, in seconds."""

UNKNOWN: Final = "whether the tool took effect is unknown"
NOTHING: Final = "nothing was sent"


class Post:
    """One request, and how far it came."""

    sent = False
    """Whether anything of the request may have reached the tool."""
    answered = False
    """Whether the head of an answer has come."""
    retry_after_ms = 0
    """The pause before another request that the answer asks for."""

    def __init__(self, http: HttpSettings) -> None:
        self._http = http

    async def answer(
        self, pool: httpcore.AsyncConnectionPool, headers: Mapping[str, str], body: bytes
    ) -> Answer:
        """What the tool answers. Raises `ToolFailure`.

        The time that all of it takes is bounded by the caller, who cancels; the connection is then closed.
        """
        http = self._http
        try:
            return await self._through(pool, headers, body)
        except AddressRefused as refused:
            raise ToolFailure(BLOCKED_ADDRESS, f"{refused}; {NOTHING}", retryable=False) from None
        except httpcore.ConnectTimeout:
            words = f"no connection within {http.connect_ms} ms; {NOTHING}"
            raise ToolFailure(TIMEOUT, words, retryable=True) from None
        except httpcore.TimeoutException:
            words = f"no answer within {http.first_byte_ms} ms; {UNKNOWN}"
            raise ToolFailure(TIMEOUT, words) from None
        except httpx.InvalidURL:
            words = f"the address cannot be read, and so not be checked; {NOTHING}"
            raise ToolFailure(BLOCKED_ADDRESS, words, retryable=False) from None
        except (httpcore.LocalProtocolError, httpcore.UnsupportedProtocol):
            # Their words may hold a header's value.
            words = f"the request cannot be made; {NOTHING}"
            raise ToolFailure(NOT_CONFIGURED, words, retryable=False) from None
        except (httpcore.NetworkError, httpcore.RemoteProtocolError, OSError) as error:
            raise self._lost(error) from None

    async def _through(
        self, pool: httpcore.AsyncConnectionPool, headers: Mapping[str, str], body: bytes
    ) -> Answer:
        http = self._http
        limits: dict[str, float | None] = {
            "connect": http.connect_ms / 1000,
            "write": None,
            "read": http.first_byte_ms / 1000,
        }
        where, host = _target(http.url)
        sent: list[tuple[bytes | str, bytes | str]] = [("host", host), *headers.items()]
        watched = {"timeout": limits, "trace": self._watch}
        async with pool.stream("POST", where, headers=sent, content=body, extensions=watched) as response:
            self.answered = True
            limits["read"] = None  # The pool looks again before each read; from here the total counts.
            given = _headers(response)
            self.retry_after_ms = retry_after_ms(given, datetime.now(UTC)) or 0
            succeeded = 200 <= response.status < 300
            content = await (_whole(response, given) if succeeded else _beginning(response))
            return Answer(response.status, given.get("content-type", ""), content)

    async def _watch(self, event: str, _: Mapping[str, Any]) -> None:
        self.sent = self.sent or event == "http11.send_request_headers.started"

    def _lost(self, error: Exception) -> ToolFailure:
        if not self.sent:
            return ToolFailure(CONNECTION_FAILED, f"no connection, {NOTHING}: {error}", retryable=True)
        if self.answered:
            words = f"the connection was lost in the middle of the answer; {UNKNOWN}"
            return ToolFailure(CONNECTION_LOST, words, retryable=True)
        words = f"the connection was lost, or spoke no HTTP, before an answer; {UNKNOWN}"
        return ToolFailure(OUTCOME_UNKNOWN, words, retryable=True)


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
