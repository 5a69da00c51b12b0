"""Let people decide about tool calls that wait for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pydantic_core import from_json

from app.core.access import Principal
from app.core.action.normalize import argument_faults, digest
from app.core.errors import FieldError, Forbidden, Invalid, UnknownTool
from app.core.json_text import dumps
from app.ports.ambient import Clock
from app.ports.approvals import Approvals as Store
from app.ports.approvals import Ruling, Verb
from app.ports.catalog import Once, Page, Slice
from app.ports.tool import ToolCatalog
from app.ports.waiting import ApprovalRecord


class Approvals:
    """See the port; here it is checked who may decide, and what an edit may say."""

    def __init__(
        self, store: Store, catalog: ToolCatalog, clock: Clock, decided: Callable[[], None] = lambda: None
    ) -> None:
        """`decided` is called after each decision, so that its run need not wait for anybody to look."""
        self._store = store
        self._catalog = catalog
        self._clock = clock
        self._decided = decided

    async def page(self, who: Principal, filters: Mapping[str, Any], part: Slice) -> Page[ApprovalRecord]:
        """The project's approvals."""
        return await self._store.page(who.project_id, filters, part)

    async def decide(
        self,
        who: Principal,
        function_call_id: UUID,
        decision: Verb,
        *,
        arguments: Mapping[str, Any] | None = None,
        comment: str | None = None,
        once: Once | None = None,
    ) -> ApprovalRecord:
        """Approve, deny, or have the call made with other arguments.

        Raises NotFound, Forbidden for who started the run, Invalid for arguments that do not fit the tool,
        and AlreadyDecided.
        """
        question = await self._store.question(who.project_id, function_call_id)
        own = who.key_id is not None and who.key_id == question.asked_for_by
        if own and not question.self_approval:
            raise Forbidden("A key does not decide about calls of a run that it started itself.")
        ruling = Ruling(decision, who.key_id, comment)
        if decision == "edit":
            ruling = await self._edit(who, question.approval, ruling, arguments or {})
        at = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)
        made = await self._store.decide(who.project_id, function_call_id, ruling, at=at, once=once)
        self._decided()
        return made

    async def _edit(
        self, who: Principal, approval: ApprovalRecord, ruling: Ruling, arguments: Mapping[str, Any]
    ) -> Ruling:
        spec = (await self._catalog.tools(who.project_id)).get(approval.function)
        if spec is None:
            raise UnknownTool(f"There is no tool {approval.function!r} any more.")
        faults = argument_faults(arguments, spec.parameters, strict=spec.strict)
        if faults:
            at = [FieldError("/arguments" + fault.pointer, fault.message) for fault in faults]
            raise Invalid("The arguments do not fit the tool.", errors=at)
        text = dumps(arguments).decode()
        return Ruling(ruling.decision, ruling.by, ruling.comment, text, digest(from_json(text)))
