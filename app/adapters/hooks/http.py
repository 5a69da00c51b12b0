"""Hooks that are asked by a post to a URL."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Final

from app.adapters.checked_network import CheckedNetwork
from app.adapters.outbound import Outbound, Reply
from app.adapters.signing import Signer
from app.core.json_text import NotJson, dumps, read, storable
from app.core.signing import Signing
from app.ports.hooks import MAX_TIMEOUT_S, HookBlocked, Stop, ToolHookEvent
from app.ports.signing import NotSigned

CONNECTIONS: Final = 256


class HttpHooks:
    """Makes hooks that post, over connections that they share."""

    def __init__(self, network: CheckedNetwork, signer: Signer, *, tls: ssl.SSLContext | None = None) -> None:
        """Close it with `aclose()`."""
        # Whoever calls a hook bounds it more tightly, by cancelling.
        self._outbound = Outbound(network, timeout_s=MAX_TIMEOUT_S, max_connections=CONNECTIONS, tls=tls)
        self._signer = signer

    def at(self, url: str, signing: Mapping[str, Any] | None = None) -> HttpHook:
        """The hook at a URL; `signing` is a `core.signing.Signing` as it is stored."""
        return HttpHook(url, signing, self._outbound, self._signer)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._outbound.aclose()


class HttpHook:
    """`ports.hooks.ToolHook` at a URL.

    A 2xx answer passes, and `{"stop": true}` in it ends the chain. Any other answer, and none, raises
    HookBlocked, with the words of `{"reason": "…"}` if the answer has some. Bodies that are long, late or
    no JSON count as empty.
    """

    def __init__(
        self, url: str, signing: Mapping[str, Any] | None, outbound: Outbound, signer: Signer
    ) -> None:
        self._url = url
        self._signing = signing
        self._outbound = outbound
        self._signer = signer

    async def call(self, event: ToolHookEvent) -> Stop | None:
        """See the port."""
        body = dumps(_storable(event.wire()))
        signing = None if self._signing is None else Signing.model_validate(self._signing)
        try:
            signed = await self._signer.headers(signing, event.project_id, body)
        except NotSigned as error:
            raise HookBlocked(str(error)) from None
        reply = await self._outbound.post(self._url, signed, body)
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
