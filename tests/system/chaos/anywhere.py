"""A way to the replicas as a careful client has it: whichever answers, over a connection of its own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

import httpx

SILENCE_S = 3.0
"""How long a client waits for a sign of life before it asks another replica; heartbeats come every second."""
_PAUSE_S = 0.05
_LATER = (429, 503)
"""Statuses that ask to come again."""


class Anywhere(httpx.AsyncBaseTransport):
    """Sends a request to some replica, and to others until one answers and does not ask to come again.

    An event stream is given back when it begins, and may break off; any other answer is whole.
    """

    def __init__(self, urls: Callable[[], Sequence[str]], draw: random.Random) -> None:
        self._urls = urls
        self._draw = draw
        # A connection that was left is not used again: it may lead to a process that stands still.
        self._limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._transport = httpx.AsyncHTTPTransport(limits=self._limits, trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The first answer that can be used; tries for ever."""
        while True:
            there = httpx.URL(self._draw.choice(self._urls()))
            request.url = request.url.copy_with(host=there.host, port=there.port)
            request.headers["Host"] = there.netloc.decode()
            try:
                answer = await self._transport.handle_async_request(request)
                streams = answer.headers.get("content-type", "").startswith("text/event-stream")
                if streams:
                    return answer
                await answer.aread()
                if answer.status_code not in _LATER and not _in_use(answer):
                    return answer
            except httpx.TransportError:
                pass
            await asyncio.sleep(_PAUSE_S)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()


def _in_use(answer: httpx.Response) -> bool:
    """Whether another request with the same key is under way at this moment."""
    return answer.status_code == 409 and answer.json()["code"] == "conflict"


def anywhere(urls: Callable[[], Sequence[str]], draw: random.Random) -> httpx.AsyncClient:
    """A client of all replicas together."""
    return httpx.AsyncClient(
        transport=Anywhere(urls, draw), base_url="http://127.0.0.1", timeout=SILENCE_S, trust_env=False
    )
