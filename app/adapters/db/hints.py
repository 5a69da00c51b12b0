"""Hints by NOTIFY and LISTEN, on a connection of their own.

A NOTIFY makes commits wait for each other, so none is part of a transaction that writes anything else. What
is told while one is on its way goes together with the next.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

import asyncpg
import structlog

from app.adapters.db.engine import APPLICATION_NAME
from app.adapters.db.lane import GONE
from app.ports.hints import Hearer, Topic

CHANNEL: Final = "branchline_hints"
MOST_IDS: Final = 300
"""Ids in one notification, which has less than 8,000 bytes: 22 for each."""
PING_S: Final = 5.0
"""Silence after which the connection is tried."""
PATIENCE_S: Final = 5.0
"""How long it may take to answer."""
AGAIN_S: Final = 0.5
"""Pause before the next try to connect."""

log = structlog.get_logger("hints")


class PostgresHints:
    """`ports.hints.Hints`."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        """`arguments` are those of `asyncpg.connect`."""
        self._arguments = arguments
        self._untold: dict[Topic, set[UUID]] = {}
        self._wake = asyncio.Event()
        self._passed_on = asyncio.Event()
        self._passed_on.set()
        self.deaf = True
        self.sent = self.received = 0
        """Notifications, since the start."""

    def tell(self, topic: Topic, runs: Iterable[UUID] = ()) -> None:
        """See the port."""
        if self.deaf:
            return  # the others look by themselves, and what is old news by then would only cost them
        self._untold.setdefault(topic, set()).update(runs)
        self._passed_on.clear()
        self._wake.set()

    async def drain(self, timeout_s: float) -> None:
        """Let everything that was told be passed on, within a time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._passed_on.wait()

    async def work(self, hearer: Hearer) -> None:
        """Tell and listen for ever; ends by cancellation."""
        while True:
            try:
                await self._connected(hearer)
            except (*GONE, asyncpg.PostgresError) as gone:
                if not self.deaf:
                    log.info("hints interrupted; processes look by themselves", why=type(gone).__name__)
            except Exception:
                log.exception("hints failed; processes look by themselves")
            finally:
                self.deaf = True
                self._untold.clear()
                self._passed_on.set()
            await asyncio.sleep(AGAIN_S)

    async def _connected(self, hearer: Hearer) -> None:
        connection = await asyncpg.connect(
            **self._arguments,
            timeout=10,
            command_timeout=PATIENCE_S,
            # A hint that a crash of the database loses is a hint that nobody needs.
            server_settings={"application_name": APPLICATION_NAME, "synchronous_commit": "off"},
        )

        def notified(_: object, sender: int, channel: str, payload: object) -> None:
            if sender != own:
                self.received += 1
                for topic, runs in _read(str(payload)):
                    hearer.heard(topic, runs)

        try:
            own = connection.get_server_pid()
            connection.add_termination_listener(lambda _: self._wake.set())
            await connection.add_listener(CHANNEL, notified)
            self.deaf = False
            hearer.missed()
            await self._pass_on(connection)
        finally:
            connection.terminate()

    async def _pass_on(self, connection: asyncpg.Connection[Any]) -> None:
        while not connection.is_closed():
            with suppress(TimeoutError):
                async with asyncio.timeout(PING_S):
                    await self._wake.wait()
            self._wake.clear()
            untold, self._untold = self._untold, {}
            payloads = [text for topic, runs in untold.items() for text in _written(topic, list(runs))]
            self.sent += len(payloads)
            # Without anything to tell it is a question whether the connection still is one.
            await connection.fetch(
                "SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload", CHANNEL, payloads
            )
            if not self._untold:
                self._passed_on.set()


def _written(topic: Topic, runs: Sequence[UUID]) -> Iterator[str]:
    for start in range(0, max(len(runs), 1), MOST_IDS):
        ids = b"".join(run.bytes for run in runs[start : start + MOST_IDS])
        yield topic + base64.b64encode(ids).decode()


def _read(payload: str) -> Iterator[tuple[Topic, Sequence[UUID]]]:
    """What was written; nothing where that is of another version, and not to be understood."""
    with suppress(ValueError, binascii.Error):
        topic, ids = Topic(payload[:1]), base64.b64decode(payload[1:], validate=True)
        yield topic, [UUID(bytes=ids[at : at + 16]) for at in range(0, len(ids), 16)]
