"""What became of a batch's calls before its run waited."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from pydantic_core import from_json

from app.core.action.normalize import ActionCall
from app.core.action.stored import stored_result
from app.core.action.table import Phase
from app.core.action.transaction import ActionTransaction
from app.core.action.verdict import Failed
from app.ports.storage import ApprovalRecord, CallRecord
from app.ports.tool import ToolSpec
from app.services.calls import Call


class Earlier:
    """The stored rows of one batch, empty for a batch that has just begun."""

    def __init__(
        self, calls: Sequence[CallRecord] = (), approvals: Sequence[ApprovalRecord] = (), batch: int = 0
    ) -> None:
        # Of several attempts the last one counts.
        self._rows = {row.index: row for row in calls if row.batch == batch}
        self._approvals = {approval.function_call_id: approval for approval in approvals}

    def row(self, index: int) -> CallRecord | None:
        """The last attempt at a call; None if it was never proposed."""
        return self._rows.get(index)

    def approval(self, row_id: UUID) -> ApprovalRecord | None:
        """What was asked about a call."""
        return self._approvals.get(row_id)


def failure_of(error: str, retryable: bool | None = None) -> Failed:
    """The verdict that a row's `error`, JSON text, was made of."""
    told = from_json(error)
    return Failed(told["error"], told["message"], retryable)


def taken_up(row: CallRecord, spec: ToolSpec | None) -> Call:
    """The call of a row: ended, waiting, or lost with the process that had begun it, or was to repeat it."""
    action = ActionCall(
        row.function,
        None if row.raw_arguments is None else from_json(row.raw_arguments),
        None if row.arguments is None else from_json(row.arguments),
        provider_call_id=row.provider_call_id,
    )
    if row.status == "pending":
        transaction = ActionTransaction.waiting(action, row.call_id)
    elif row.ended_at is not None and row.action_response_id is None and row.error is not None:
        transaction = ActionTransaction.left_off(action, row.call_id, failure_of(row.error, row.retryable))
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
