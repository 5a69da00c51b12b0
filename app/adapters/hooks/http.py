"""Hooks that are asked by a post to a URL."""

from __future__ import annotations

import ssl
from typing import Any, Final

from app.adapters.checked_network import MayReach
from app.adapters.outbound import Outbound, Reply
from app.core.json_text import NotJson, dumps, read, storable
from app.ports.hooks import MAX_TIMEOUT_S, HookBlocked, Stop, ToolHookEvent

CONNECTIONS: Final = 256


class HttpHooks:
    """Makes hooks that post, over connections that they share."""

    def __init__(self, may_reach: MayReach, *, tls: ssl.SSLContext | None = None) -> None:
        """`may_reach` is asked with each host and the address that it was resolved to. Close it."""
        # Whoever calls a hook bounds it more tightly, by cancelling.
        self._outbound = Outbound(may_reach, timeout_s=MAX_TIMEOUT_S, max_connections=CONNECTIONS, tls=tls)

    def at(self, url: str) -> HttpHook:
        """The hook at a URL."""
        return HttpHook(url, self._outbound)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._outbound.aclose()


class HttpHook:
    """`ports.hooks.ToolHook` at a URL.

    A 2xx answer passes, and `{"stop": true}` in it ends the chain. Any other answer, and none, raises
    HookBlocked, with the words of `{"reason": "…"}` if the answer has some. Bodies that are long, late or
    no JSON count as empty.
    """

    def __init__(self, url: str, outbound: Outbound) -> None:
        self._url = url
        self._outbound = outbound

    async def call(self, event: ToolHookEvent) -> Stop | None:
        """See the port."""
        reply = await self._outbound.post(self._url, {}, dumps(_storable(event.wire())))
        said = _said(reply)
        if reply.error is not None:
            reason = said.get("reason")
            raise HookBlocked(reason if isinstance(reason, str) and reason else reply.error)
        return Stop() if said.get("stop") is True else None


def _said(reply: Reply) -> dict[str, Any]:
    try:
        body = read(reply.body)
    except NotJson:
        return {}
    return body if isinstance(body, dict) else {}


def _storable(value: Any) -> Any:
    """With halves of surrogate pairs replaced, which no UTF-8 can hold."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {name: _storable(member) for name, member in value.items()}
    return value
