"""Post to webhook endpoints."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from datetime import UTC, datetime

from app.adapters.checked_network import CheckedNetwork
from app.adapters.model_faults import retry_after_ms
from app.adapters.outbound import BODY_BYTES, Outbound
from app.core.webhooks import Answer

__all__ = ["BODY_BYTES", "WebhookClient"]


class WebhookClient:
    """`ports.webhooks.WebhookSender` over HTTP/1.1."""

    def __init__(
        self,
        network: CheckedNetwork,
        *,
        timeout_s: float,
        connect_timeout_s: float = 5.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`timeout_s` bounds a whole request, and so its connection. Close it with `aclose()`."""
        self._outbound = Outbound(network, timeout_s=timeout_s, connect_timeout_s=connect_timeout_s, tls=tls)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._outbound.aclose()

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """See the port."""
        reply = await self._outbound.post(url, headers, body)
        return Answer(reply.status, reply.error, retry_after_ms(reply.headers, datetime.now(UTC)))
