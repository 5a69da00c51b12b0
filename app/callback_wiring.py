"""Put together what tells others of callbacks: handlers in this process, and webhook endpoints."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from app.adapters.checked_network import CheckedNetwork
from app.adapters.db.engine import driver_arguments
from app.adapters.db.outbox import PostgresOutbox
from app.adapters.db.run_store import PostgresRuns
from app.adapters.handlers.declare import Method
from app.adapters.handlers.python import PythonHandlers
from app.adapters.run_figures import RunFigures
from app.adapters.webhook_client import WebhookClient
from app.ports.ambient import Clock, IdSource
from app.ports.sealing import Vault
from app.services.background import background
from app.services.courier import Courier
from app.services.recorder import Listener
from app.settings import Settings

GRACE_S = 5.0
"""How long deliveries under way, and what handlers have still to be told, may hold up the end."""

LEAST_LEASE_S = 5.0
"""For how long a post is one process's at least; normally for twice the time that its request may take."""


@dataclass(frozen=True, slots=True)
class Telling:
    """Those who pass callbacks on."""

    handlers: PythonHandlers
    courier: Courier

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """For the recorder; without a handler none is asked, so that tokens cost nothing more."""
        return (self.courier.heard, *((self.handlers.heard,) if len(self.handlers) else ()))

    def show(self, figures: RunFigures) -> None:
        """Have the figures among the metrics."""
        courier, handlers = self.courier, self.handlers
        figures.counter("webhook_posts", "Webhook posts that were taken", lambda: courier.taken)
        figures.counter("webhook_failures", "Tries of webhook posts that failed", lambda: courier.failed)
        figures.counter("webhook_done", "Webhook deliveries that are complete", lambda: courier.done)
        figures.counter("webhook_dead", "Webhook deliveries that were given up", lambda: courier.dead)
        figures.counter("handler_dropped", "Callbacks dropped by slow handlers", lambda: handlers.dropped)
        figures.counter("handler_failures", "Calls of handlers that raised", lambda: handlers.failed)
        figures.counter("handler_late", "Calls of handlers that took too long", lambda: handlers.late)


@asynccontextmanager
async def telling(
    settings: Settings,
    found: Sequence[tuple[str, Mapping[str, Method]]],
    database_url: str,
    clock: Clock,
    ids: IdSource,
    network: CheckedNetwork,
    vault: Vault,
    *,
    executes: bool,
) -> AsyncIterator[Telling]:
    """Pass callbacks on, to the handlers that were `found` and to endpoints, until the block ends.

    A process that does not execute leaves that to those that do.
    """
    handlers = PythonHandlers(found, timeout_s=settings.handler_timeout_s)
    arguments = driver_arguments(database_url)
    async with AsyncExitStack() as stack:
        lease_s = max(2 * settings.webhook_timeout_s, LEAST_LEASE_S)
        outbox = PostgresOutbox(arguments, vault, lease_s=lease_s)
        stack.push_async_callback(outbox.close)
        # On connections of its own: whoever accepts and executes runs must not wait for readers of old logs.
        store = PostgresRuns(arguments, owner=ids.new(), lease_ms=settings.lease_ms, clock=clock)
        stack.push_async_callback(store.close)
        client = WebhookClient(network, timeout_s=settings.webhook_timeout_s)
        stack.push_async_callback(client.aclose)
        courier = Courier(outbox, store, client, clock, random.random, pauses_s=settings.webhook_pauses_s)
        stack.push_async_callback(courier.stop, GRACE_S)
        if executes:
            await stack.enter_async_context(background(courier.work()))
            await stack.enter_async_context(background(handlers.work()))
        stack.push_async_callback(handlers.drain, GRACE_S)
        yield Telling(handlers, courier)
