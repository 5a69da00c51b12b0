"""What became of a batch's calls before its run waited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from pydantic_core import from_json

from app.core.action.normalize import ActionCall
from app.core.action.stored import stored_result
from app.core.action.table import Phase
from app.core.action.transaction import ActionTransaction
from app.core.action.verdict import Cancelled, Failed, Succeeded
from app.ports.storage import CallRecord, OpenCall
from app.ports.tool import ToolSpec
from app.ports.waiting import ApprovalRecord, ClientCallRecord, Waits
from app.services.calls import Call

NO_WAITS: Final = Waits()


class Earlier:
    """The stored rows of one batch, empty for a batch that has just begun."""

    def __init__(self, calls: Sequence[CallRecord] = (), waits: Waits = NO_WAITS, batch: int = 0) -> None:
        # Of several attempts the last one counts.
        self._rows = {row.index: row for row in calls if row.batch == batch}
        self._approvals = {approval.function_call_id: approval for approval in waits.approvals}
        self._client_calls = client_calls_of(waits)

    def row(self, index: int) -> CallRecord | None:
        """The last attempt at a call; None if it was never proposed."""
        return self._rows.get(index)

    def approval(self, row_id: UUID) -> ApprovalRecord | None:
        """What was asked about a call."""
        return self._approvals.get(row_id)

    def client_call(self, row_id: UUID) -> ClientCallRecord | None:
        """What became of a call that was handed over."""
        return self._client_calls.get(row_id)


def client_calls_of(waits: Waits) -> dict[UUID, ClientCallRecord]:
    """Those that were handed over, by function call."""
    return {handed.function_call_id: handed for handed in waits.client_calls}


def bring(call: Call, handed: ClientCallRecord | None) -> bool:
    """Give a call what became of it at its client; whether it is over. One that was never stored is."""
    if handed is not None and handed.status == "waiting":
        call.waits_until = handed.expires_at
        return False
    call.waits_until = None
    if handed is not None and handed.ended_at is not None:
        call.waited_ms = max(0.0, (handed.ended_at - handed.created_at).total_seconds() * 1000)
    call.transaction.advance(Cancelled() if handed is None else _outcome_of(handed))
    return True


def _outcome_of(handed: ClientCallRecord) -> Succeeded | Failed | Cancelled:
    match handed.status:
        case "answered" if handed.error is not None:
            told = from_json(handed.error)
            return Failed(told["type"], told["message"], told["retryable"])
        case "answered":
            return Succeeded(from_json(handed.output or "null"), handed.output_truncated)
        case "expired":
            limit_s = (handed.expires_at - handed.created_at).total_seconds()
            return Failed("TIMEOUT", f"no client brought a result within {limit_s:g} s")
        case _:
            return Cancelled()


def failure_of(error: str, retryable: bool | None = None) -> Failed:
    """The verdict that a row's `error`, JSON text, was made of."""
    told = from_json(error)
    return Failed(told["error"], told["message"], retryable)


def taken_up(row: CallRecord, spec: ToolSpec | None, *, handed_over: bool) -> Call:
    """The call of a row: ended, waiting, or lost with the process that had begun it, or was to repeat it.

    `handed_over`: what it waits, or waited, for is a client's result.
    """
    action = ActionCall(
        row.function,
        None if row.raw_arguments is None else from_json(row.raw_arguments),
        None if row.arguments is None else from_json(row.arguments),
        provider_call_id=row.provider_call_id,
    )
    if row.status == "pending" and handed_over:
        transaction = ActionTransaction.handed_over(action, row.call_id, row.attempt)
    elif row.status == "pending":
        transaction = ActionTransaction.waiting(action, row.call_id)
    elif row.ended_at is not None and row.action_response_id is None and row.error is not None:
        transaction = ActionTransaction.left_off(action, row.call_id, failure_of(row.error, row.retryable))
        transaction.attempt = row.attempt
    else:
        transaction = ActionTransaction.interrupted(action, row.call_id)
        transaction.attempt = row.attempt
    call = Call(transaction, row.id, row.action_request_id, spec, row.index)
    if row.ended_at is not None and transaction.phase is not Phase.TELLING:
        call.result = stored_result(
            function=row.function,
            arguments=action.raw_arguments if action.arguments is None else action.arguments,
            call_id=row.call_id,
            status=row.status,
            response=None if row.response is None else from_json(row.response),
            error=None if row.error is None else from_json(row.error),
            truncated=row.output_truncated,
        )
    return call


def left_open(lost: OpenCall, handed: ClientCallRecord | None) -> Call:
    """The call of a run that ends for it; one that waits, and for which nothing came, has no verdict yet."""
    action = ActionCall(
        lost.function,
        None,
        None if lost.arguments is None else from_json(lost.arguments),
        provider_call_id=lost.provider_call_id,
    )
    if lost.error is not None:
        transaction = ActionTransaction.left_off(action, lost.call_id, failure_of(lost.error))
    elif handed is not None:
        transaction = ActionTransaction.handed_over(action, lost.call_id)
    elif lost.status == "pending":
        transaction = ActionTransaction.waiting(action, lost.call_id)
    else:
        transaction = ActionTransaction.interrupted(action, lost.call_id)
    call = Call(transaction, lost.id, lost.action_request_id, None, 0)
    if transaction.phase is Phase.HANDED_OVER:
        bring(call, handed)
    return call
