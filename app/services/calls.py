"""What is recorded of the calls of one batch: the proposal, the question, each attempt and its end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from pydantic_core import from_json

from app.core.action.table import Passed, Phase
from app.core.action.transaction import ActionTransaction
from app.core.events.approval import ApprovalDecided, ApprovalRequested, GateDenied
from app.core.governance.decision import Decision
from app.core.json_text import dumps
from app.ports.ambient import Clock, IdSource
from app.ports.storage import CallEnd, CallRecord, CallStart, NewCall, NewMessage, Row
from app.ports.tool import ToolSpec
from app.ports.waiting import NewApproval, NewClientCall, WaitClosed
from app.services.execution import Execution


@dataclass(slots=True)
class Call:
    """One call on its way."""

    transaction: ActionTransaction
    row_id: UUID
    """Of its present attempt."""
    request_id: UUID
    """Of its request message."""
    spec: ToolSpec | None
    index: int
    started_ms: float = 0.0
    intended: bool = False
    """Whether the intent to make this attempt is committed."""
    begun: bool = False
    """Whether its TOOL_START is appended."""
    decision: Decision | None = None
    """What governance said of it; None before that, and where nothing governs."""
    waits_until: datetime | None = None
    """When nobody can decide, or bring the result, any more; None unless it waits for somebody."""
    waited_ms: float | None = None
    """How long a client had it; None for a call that was made here."""
    result: dict[str, Any] | None = None
    """What its caller is told; None until it has ended."""

    @property
    def runs(self) -> bool:
        """Whether it has neither ended nor waits."""
        return self.result is None and self.waits_until is None


class CallRecords:
    """Appends to a run's log; what is appended is committed together, or when `log.committed` is awaited."""

    def __init__(self, execution: Execution, batch: int, clock: Clock, ids: IdSource) -> None:
        self._execution = execution
        self._branch = str(execution.run.branch_id)
        self._batch = batch
        self._clock = clock
        self._ids = ids

    def proposed(self, call: Call) -> None:
        """The request message and the function call, `processing` or `pending`, and TOOL_REQUESTED."""
        transaction, execution = call.transaction, self._execution
        for event in transaction.requested():
            execution.log.event(event)
        ran = transaction.verdict is None
        message = NewMessage(
            call.request_id,
            "action_request",
            dumps(transaction.request().stored()).decode(),
            sender="assistant" if execution.run.kind == "operate" else "user",
            recipient=transaction.call.function if ran else self._branch,
        )
        execution.log.write(message, self._row(call))
        execution.calls.append(call.row_id)

    def tried_again(self, call: Call) -> None:
        """Another attempt at a call whose request message is stored already."""
        self._execution.log.write(self._row(call))
        self._execution.calls.append(call.row_id)

    def _row(self, call: Call) -> NewCall:
        transaction = call.transaction
        action = transaction.call
        waiting = transaction.phase is Phase.WAITING
        begins = transaction.verdict is None and not waiting
        return NewCall(
            id=call.row_id,
            call_id=transaction.call_id,
            attempt=transaction.attempt,
            batch=self._batch,
            index=call.index,
            function=action.function,
            action_request_id=call.request_id,
            status="pending" if waiting else "processing",
            arguments=None if action.arguments is None else dumps(action.arguments).decode(),
            raw_arguments=dumps(action.raw_arguments).decode(),
            arguments_digest=action.digest,
            provider_call_id=action.provider_call_id,
            started_at=self.now() if begins else None,
            gate=_told(call),
        )

    def asked(self, call: Call, lifetime: timedelta) -> None:
        """The question to a person."""
        transaction, decision = call.transaction, call.decision
        action = transaction.call
        assert decision is not None
        assert action.arguments is not None
        expires, id = self.now() + lifetime, self._ids.new()
        call.waits_until = expires
        self._execution.log.event(
            ApprovalRequested(
                tool_call_id=transaction.tool_call_id,
                tool_name=action.function,
                call_id=str(transaction.call_id),
                approval_id=str(id),
                arguments=action.arguments,
                arguments_digest=action.digest,
                by=decision.by or "",
                reason=decision.reason,
                expires_at=expires.isoformat(),
            )
        )
        self._execution.log.write(
            NewApproval(
                id=id,
                function_call_id=call.row_id,
                function=action.function,
                arguments=dumps(action.arguments).decode(),
                arguments_digest=action.digest,
                asked_by=decision.by or "",
                reason=decision.reason,
                expires_at=expires,
            )
        )

    def decided(
        self, call: Call, approval_id: UUID, decision: str, decided_by: UUID | None, reason: str | None
    ) -> None:
        """What the person said, or that nobody did; once, though the process may be lost before the call
        goes on.
        """
        transaction = call.transaction
        call.waits_until = None
        if str(approval_id) in self._execution.past.approvals_told:
            return
        self._execution.log.event(
            ApprovalDecided(
                tool_call_id=transaction.tool_call_id,
                tool_name=transaction.call.function,
                call_id=str(transaction.call_id),
                approval_id=str(approval_id),
                decision=decision,
                decided_by=None if decided_by is None else str(decided_by),
                reason=reason,
                arguments_digest=transaction.call.digest,
            )
        )

    def begun(self, call: Call) -> None:
        """A call that waited is processed from now on, with the arguments that were allowed."""
        action = call.transaction.call
        arguments = None if action.arguments is None else dumps(action.arguments).decode()
        self._execution.log.write(CallStart(call.row_id, arguments, action.digest, self.now()))

    def handed_over(self, call: Call, lifetime: timedelta, lease_s: float) -> None:
        """A client is to bring the result; the call is `pending` until then."""
        transaction = call.transaction
        action = transaction.call
        assert action.arguments is not None
        now = self.now()
        call.waits_until = now + lifetime
        self._execution.log.write(
            NewClientCall(
                function_call_id=call.row_id,
                call_id=transaction.call_id,
                attempt=transaction.attempt,
                function=action.function,
                arguments=dumps(action.arguments).decode(),
                arguments_digest=action.digest,
                lease_s=lease_s,
                created_at=now,
                expires_at=call.waits_until,
            )
        )

    def given_up(self, call: Call) -> None:
        """Nobody is waited for any more."""
        call.waits_until = None
        self._execution.log.write(WaitClosed(call.row_id, self.now()))

    def denied(self, call: Call, decision: Decision) -> None:
        """A gate said no."""
        transaction = call.transaction
        self._execution.log.event(
            GateDenied(
                tool_call_id=transaction.tool_call_id,
                tool_name=transaction.call.function,
                call_id=str(transaction.call_id),
                by=decision.by or "",
                rule=decision.rule,
                reason=decision.reason,
                arguments_digest=transaction.call.digest,
            )
        )

    def ended(self, call: Call, *, last: bool = True) -> None:
        """The end of an attempt; of the last one also the response message, and the result."""
        transaction = call.transaction
        took_ms = self.took_ms(call) or 0.0
        for event in transaction.end(round(took_ms), last=last):
            self._execution.log.event(event)
        ended = transaction.execution(took_ms)
        rows: list[Row] = [
            CallEnd(
                call.row_id,
                ended["status"],
                ended["duration"],
                None if ended["error"] is not None else dumps(ended["response"]).decode(),
                None if ended["error"] is None else dumps(ended["error"]).decode(),
                ended["retryable"],
                self.now(),
            )
        ]
        if last:
            rows.append(self._response(call))
            call.result = transaction.result()
        self._execution.log.write(*rows)
        transaction.advance(Passed())

    def closed(self, call: Call) -> None:
        """The end of a call whose last attempt was recorded as one that another would follow."""
        self._execution.log.event(call.transaction.closing())
        self._execution.log.write(self._response(call))
        call.result = call.transaction.result()

    def _response(self, call: Call) -> NewMessage:
        transaction = call.transaction
        return NewMessage(
            self._ids.new(),
            "action_response",
            dumps(transaction.response(call.request_id).wire()).decode(),
            sender=transaction.call.function if transaction.started else self._branch,
            recipient=self._branch,
            action_request_id=call.request_id,
        )

    def took_ms(self, call: Call) -> float | None:
        """How long its attempt has taken; None where the tool never began."""
        if call.waited_ms is not None:
            return call.waited_ms
        return self._clock.mono_ms() - call.started_ms if call.started_ms else None

    def now(self) -> datetime:
        """The time, as rows have it."""
        return datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)


def _told(call: Call) -> str | None:
    """What governance said, with what it saw."""
    if call.decision is None:
        return None
    seen = {**call.decision.wire(), "arguments_digest": call.transaction.call.digest}
    if call.spec is not None and call.spec.version is not None:
        seen["tool_version"] = call.spec.version
    return dumps(seen).decode()


def is_another(row: CallRecord, spec: ToolSpec) -> bool:
    """Whether the tool has become another since governance was asked about the call of this row."""
    if spec.version is None or row.gate is None:
        return False
    return bool(from_json(row.gate).get("tool_version") != spec.version)
