"""A dedicated connection for one kind of hot statement.

A pool resets a connection at each return, which costs a round trip and its prepared statements; a lane keeps
both. It reconnects by itself when the database comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

import asyncpg

from app.adapters.db.engine import APPLICATION_NAME
from app.core.errors import Unavailable

T = TypeVar("T")

GONE = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a connection that broke in the middle of an answer
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TooManyConnectionsError,
    asyncpg.DiskFullError,
    asyncpg.OutOfMemoryError,
    asyncpg.ReadOnlySQLTransactionError,
)
"""Faults of the database's state, not of what was asked of it."""

STANDSTILL_S = 5.0
"""How long a process may stand still inside of a transaction: others wait for what it has locked, and with
them everything that they write together.
"""

_PLANS: Final = {
    "plan_cache_mode": "force_generic_plan",
    **dict.fromkeys(("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit"), "off"),
}
"""Have a statement planned once, and not for its values: left to itself the server does so for those that
take arrays, each time, which takes longer than to execute them.

And have rows looked up by keys, one by one: a plan that was made while a table was small would read all of
it, or of an index of it, until its statistics are renewed. What has no index is small: no reason to compile
anything.
"""

_TYPES = (
    "bool",
    "smallint",
    "int",
    "bigint",
    "float8",
    "numeric",
    "text",
    "json",
    "uuid",
    "timestamptz",
    "bytea",
)

AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
"""The transaction lost a race and may simply be tried again."""


def crowded() -> Unavailable:
    """What is told to somebody who has waited long enough for a connection."""
    return Unavailable("Too many requests wait for a connection to the database; try again.", retry_after_s=1)


class Lane:
    """One connection, used by one task at a time."""

    def __init__(
        self,
        arguments: dict[str, Any],
        *,
        command_timeout_s: float = 30,
        standstill_s: float = STANDSTILL_S,
        types: Sequence[str] = (),
    ) -> None:
        """`arguments` are those of `asyncpg.connect`; `types` are the schema's own that statements take."""
        self._arguments = arguments
        self._types = (*_TYPES, *types)
        self._timeout = command_timeout_s
        self._standstill_ms = round(standstill_s * 1000)
        self._connection: asyncpg.Connection[Any] | None = None
        self._lock = asyncio.Lock()
        self._failures = 0
        """How often it could not connect."""

    async def _connected(self) -> asyncpg.Connection[Any]:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(
                **self._arguments,
                timeout=10,
                command_timeout=self._timeout,
                server_settings={"application_name": APPLICATION_NAME},
            )
            # Said here and not when connecting, where poolers let few settings through.
            settings = {"idle_in_transaction_session_timeout": self._standstill_ms, **_PLANS}
            await self._connection.execute("; ".join(f"SET {name} = {to}" for name, to in settings.items()))
            # The driver asks for a type that it does not know when it first meets it, which takes as long as
            # the statement of a small run three times over.
            named = ", ".join(f"${number}::{name}[]" for number, name in enumerate(self._types, 1))
            with suppress(asyncpg.UndefinedObjectError):  # the schema is older: who needs the type is told
                await self._connection.prepare(f"SELECT {named}")
        return self._connection

    async def _reached(self) -> asyncpg.Connection[Any]:
        try:
            return await self._connected()
        except GONE:
            self._failures += 1
            raise

    @asynccontextmanager
    async def _turn(self, wait_s: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(wait_s):
                await self._lock.acquire()
        except TimeoutError as late:
            raise crowded() from late
        try:
            yield
        finally:
            self._lock.release()

    @asynccontextmanager
    async def use(self, *, wait_s: float | None = None) -> AsyncIterator[asyncpg.Connection[Any]]:
        """The connection, for the length of the block, once it is free: within `wait_s` if that is given.

        Raises Unavailable when the database is not there, or the connection not free in time.
        """
        failures = self._failures
        async with self._lock if wait_s is None else self._turn(wait_s):
            if self._failures != failures and self._connection is None:
                # Whoever was before has waited for the database as long as it takes; one after the other all
                # who wait would.
                raise Unavailable("The database is not available: it cannot be reached.", retry_after_s=1)
            try:
                yield await self._reached()
            except GONE as gone:
                await self._drop()
                raise Unavailable(
                    f"The database is not available: {type(gone).__name__}.", retry_after_s=1
                ) from gone
            except asyncpg.PostgresError:
                raise  # the server said so, and the connection is as good as before
            except BaseException:
                # Whatever else broke off in the middle, a new connection is cheap and certainly clean.
                await self._drop()
                raise

    async def run(self, work: Callable[[asyncpg.Connection[Any]], Awaitable[T]], *, tries: int = 5) -> T:
        """`work` on the connection, again when it lost a race."""
        for left in reversed(range(tries)):
            try:
                async with self.use() as connection:
                    return await work(connection)
            except AGAIN as lost:
                if not left:
                    raise Unavailable(
                        "The database is too busy with rival transactions.", retry_after_s=1
                    ) from lost
        raise AssertionError("unreachable")

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def close(self) -> None:
        """Close the connection; the lane may not be used afterwards."""
        async with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                try:
                    await connection.close(timeout=2)
                except (TimeoutError, *GONE):
                    connection.terminate()
