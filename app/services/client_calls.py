"""Let clients carry out tool calls: a worker claims one, and brings what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from app.core.access import Principal
from app.core.action.jsonable import output_of
from app.core.action.normalize import digest
from app.core.json_text import dumps
from app.ports.ambient import Clock, IdSource
from app.ports.catalog import Once, Page, Slice
from app.ports.client_calls import Brought, Claim
from app.ports.client_calls import ClientCalls as Store
from app.ports.waiting import ClientCallRecord


class ClientCalls:
    """See the port; here it is said what time it is, and what is stored of a result."""

    def __init__(
        self, store: Store, clock: Clock, ids: IdSource, answered: Callable[[], None] = lambda: None
    ) -> None:
        """`answered` is called after each result, so that its run need not wait for anybody to look."""
        self._store = store
        self._clock = clock
        self._ids = ids
        self._answered = answered

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)

    async def page(self, who: Principal, filters: Mapping[str, Any], part: Slice) -> Page[ClientCallRecord]:
        """The project's calls that clients carry out."""
        return await self._store.page(who.project_id, filters, part)

    async def claim(
        self,
        who: Principal,
        function_call_id: UUID,
        *,
        held: UUID | None = None,
        lease_s: float | None = None,
        once: Once | None = None,
    ) -> ClientCallRecord:
        """Have the call for oneself, or for longer with the token that one `held`.

        Raises NotFound, CallNotWaiting, CallLeased, ClaimLost.
        """
        claim = Claim(who.key_id, held, self._ids.new(), lease_s)
        return await self._store.claim(who.project_id, function_call_id, claim, at=self._now(), once=once)

    async def bring(
        self,
        who: Principal,
        function_call_id: UUID,
        result: Mapping[str, Any],
        *,
        held: UUID | None = None,
        arguments_digest: str | None = None,
        once: Once | None = None,
    ) -> ClientCallRecord:
        """Say what came of the call: `result` has either an `output`, any JSON value, or an `error`.

        Of a large output the beginning is kept, as of every tool's. Raises NotFound, CallNotWaiting,
        AlreadyAnswered, CallLeased, ClaimLost, ArgumentsDiffer.
        """
        brought = Brought(who.key_id, held, digest(result), arguments_digest=arguments_digest)
        if "output" in result:
            output = output_of(result["output"])
            brought = replace(brought, output=dumps(output.value).decode(), truncated=output.truncated)
        else:
            brought = replace(brought, error=dumps(result["error"]).decode())
        made = await self._store.bring(who.project_id, function_call_id, brought, at=self._now(), once=once)
        self._answered()
        return made
