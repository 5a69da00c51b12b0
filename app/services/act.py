"""Carry out tool calls: intent before effect, one record of each end, results in input order."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pydantic_core import from_json

from app.core.action.jsonable import output_of
from app.core.action.normalize import ActionCall, check_arguments, find_tool
from app.core.action.table import Outcome, Passed, Phase
from app.core.action.transaction import ActionTransaction
from app.core.action.verdict import Cancelled, Failed, Succeeded
from app.core.json_text import dumps
from app.core.operate.params import Batch
from app.ports.ambient import Clock, IdSource
from app.ports.storage import CallEnd, NewCall, NewMessage, OpenCall, Row
from app.ports.tool import Invocation, ToolFailure, ToolRunner, ToolSpec
from app.services.execution import Execution

MAX_CONCURRENT = 32
"""Calls of one batch that run at the same time, unless the caller wants fewer."""


@dataclass(frozen=True, slots=True)
class Proposals:
    """Calls to be carried out together."""

    calls: Sequence[ActionCall]
    tools: Mapping[str, ToolSpec]
    """The tools that exist."""
    offered: Collection[str]
    """Those of them that may be called here; any other is an error value."""
    announced: bool = False
    """Whether the stream has already emitted TOOL_REQUESTED for these calls."""
    batch: int = 0
    """Which batch of its run this is."""


@dataclass(slots=True)
class _Call:
    """One call on its way."""

    transaction: ActionTransaction
    row_id: UUID
    request_id: UUID
    spec: ToolSpec | None
    index: int
    started_ms: float = 0.0


class ToolsFailed(Exception):
    """A call failed and the caller wants to be told so; everything is recorded."""

    def __init__(self, result: Mapping[str, Any]) -> None:
        super().__init__(str(result["error"]))
        self.result = result

    def error(self) -> dict[str, Any]:
        """As the error of a run."""
        return {
            "code": "TOOL_FAILED",
            "message": f"{self.result['function']}: {self.result['error']}",
            "category": "tool",
            "retryable": False,
            "detail": {"call_id": self.result["call_id"], "function": self.result["function"]},
        }


class Acting:
    """Executes batches of calls for a run."""

    def __init__(
        self, runners: Mapping[str, ToolRunner], clock: Clock, ids: IdSource, *, timeout_s: float
    ) -> None:
        """`runners` by kind of tool; `timeout_s` is the longest that one call may take."""
        self._runners = runners
        self._clock = clock
        self._ids = ids
        self._timeout_s = timeout_s

    async def carry_out(self, execution: Execution, proposals: Proposals, how: Batch) -> list[dict[str, Any]]:
        """One result for each call, in input order.

        Raises ToolsFailed for a failure when errors are not suppressed; siblings are cancelled, and recorded.
        """
        if how.strategy == "sequential":
            results: list[dict[str, Any]] = []
            for index in range(len(proposals.calls)):
                call = self._propose(execution, proposals, index)
                results.append(await self._to_the_end(execution, call, how))
                if not how.suppress_errors and results[-1]["error"] is not None:
                    raise ToolsFailed(results[-1])
            return results
        return await self._concurrently(execution, proposals, how)

    async def _concurrently(
        self, execution: Execution, proposals: Proposals, how: Batch
    ) -> list[dict[str, Any]]:
        calls = [self._propose(execution, proposals, index) for index in range(len(proposals.calls))]
        room = asyncio.Semaphore(how.max_concurrent or MAX_CONCURRENT)
        tasks = [asyncio.create_task(self._in_turn(execution, call, how, room)) for call in calls]
        failed: dict[str, Any] | None = None
        try:
            for task in asyncio.as_completed(tasks):
                result = await task
                if not how.suppress_errors and result["error"] is not None and failed is None:
                    failed = result
                    for sibling in tasks:
                        sibling.cancel()
        except BaseException:
            for sibling in tasks:
                sibling.cancel()
            await asyncio.wait(tasks)
            raise
        if failed is not None:
            raise ToolsFailed(failed)
        return [task.result() for task in tasks]

    async def _in_turn(
        self, execution: Execution, call: _Call, how: Batch, room: asyncio.Semaphore
    ) -> dict[str, Any]:
        try:
            async with room:
                return await self._to_the_end(execution, call, how)
        except asyncio.CancelledError:
            # Cancelled while it waited for its turn, or by a sibling's failure: that is its end.
            return self._record(execution, call, Cancelled())

    def _propose(self, execution: Execution, proposals: Proposals, index: int) -> _Call:
        """Append the proposal and the intent: request message, `processing` call, TOOL_REQUESTED."""
        checked = find_tool(proposals.calls[index], proposals.offered)
        spec = proposals.tools.get(checked.function)
        if checked.error is None and spec is not None:
            checked = check_arguments(checked, spec.parameters, strict=spec.strict)
        transaction = ActionTransaction(checked, self._ids.new(), announced=proposals.announced)
        call = _Call(transaction, self._ids.new(), self._ids.new(), spec, index)
        if transaction.phase is Phase.AUTHORIZING:
            transaction.advance(Passed())
        for event in transaction.requested():
            execution.log.event(event)
        runs = transaction.verdict is None
        branch = str(execution.run.branch_id)
        execution.log.write(
            NewMessage(
                call.request_id,
                "action_request",
                dumps(transaction.request().stored()).decode(),
                sender="assistant" if execution.run.kind == "operate" else "user",
                recipient=checked.function if runs else branch,
            ),
            self._new_call(call, proposals.batch),
        )
        execution.calls.append(call.row_id)
        return call

    def _new_call(self, call: _Call, batch: int) -> NewCall:
        transaction = call.transaction
        action = transaction.call
        return NewCall(
            id=call.row_id,
            call_id=transaction.call_id,
            attempt=1,
            batch=batch,
            index=call.index,
            function=action.function,
            action_request_id=call.request_id,
            status="processing",
            arguments=None if action.arguments is None else dumps(action.arguments).decode(),
            raw_arguments=dumps(action.raw_arguments).decode(),
            arguments_digest=action.digest,
            provider_call_id=action.provider_call_id,
            started_at=self._now() if transaction.verdict is None else None,
        )

    async def _to_the_end(self, execution: Execution, call: _Call, how: Batch) -> dict[str, Any]:
        transaction = call.transaction
        if transaction.verdict is not None:
            return self._record(execution, call, None)
        execution.log.event(transaction.start())
        await execution.log.committed()
        transaction.advance(Passed())  # the intent is recorded
        transaction.advance(Passed())  # no hook speaks against it
        transaction.advance(Passed())  # the arguments are still those that were checked
        if execution.stop.source is not None:
            return self._record(execution, call, Cancelled())
        call.started_ms = self._clock.mono_ms()
        return self._record(execution, call, await self._invoke(execution, call, how))

    async def _invoke(self, execution: Execution, call: _Call, how: Batch) -> Outcome:
        """Run the tool, until it ends, the run is stopped, or its time is over."""
        limit_s = min(how.call_timeout_s or self._timeout_s, self._timeout_s)
        task = asyncio.create_task(self._run_tool(execution, call))
        try:
            await asyncio.wait(
                {task, execution.stop.requested},  # type: ignore[type-var]
                timeout=limit_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
        except asyncio.CancelledError:
            await _cut_off(task)
            return Cancelled()
        if task.done():
            return task.result()
        await _cut_off(task)
        if execution.stop.source is not None:
            return Cancelled()
        return Failed("TIMEOUT", f"the tool gave no result within {limit_s:g} s")

    async def _run_tool(self, execution: Execution, call: _Call) -> Outcome:
        run, transaction, spec = execution.run, call.transaction, call.spec
        assert spec is not None
        assert run.branch_id is not None
        invocation = Invocation(
            transaction.call_id,
            spec.name,
            transaction.call.arguments or {},
            run.id,
            run.branch_id,
            run.project_id,
        )
        try:
            output = output_of(await self._runners[spec.kind].call(spec, invocation))
        except ToolFailure as failure:
            return Failed(failure.type, failure.message, failure.retryable)
        except Exception as failure:
            return Failed(type(failure).__name__, str(failure))
        return Succeeded(output.value, output.truncated)

    def _record(self, execution: Execution, call: _Call, outcome: Outcome | None) -> dict[str, Any]:
        """Append the end: call, response message and events, which are committed together."""
        transaction = call.transaction
        if outcome is not None:
            transaction.advance(outcome)
        while transaction.phase is not Phase.DONE:
            transaction.advance(Passed())
        took_ms = self._clock.mono_ms() - call.started_ms if call.started_ms else 0.0
        append_end(
            execution, transaction, call.row_id, call.request_id, took_ms, self._ids.new(), self._now()
        )
        return transaction.result()

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)

    def abandon(self, execution: Execution, calls: Sequence[OpenCall]) -> None:
        """Append the end of calls whose process was lost: what they did is unknown."""
        for open_call in calls:
            call = ActionCall(
                open_call.function,
                None,
                None if open_call.arguments is None else from_json(open_call.arguments),
                provider_call_id=open_call.provider_call_id,
            )
            transaction = ActionTransaction.interrupted(call, open_call.call_id)
            transaction.advance(Passed())
            request_id = open_call.action_request_id
            append_end(execution, transaction, open_call.id, request_id, 0.0, self._ids.new(), self._now())


def append_end(
    execution: Execution,
    transaction: ActionTransaction,
    row_id: UUID,
    request_id: UUID,
    took_ms: float,
    message_id: UUID,
    now: datetime,
) -> None:
    """Append everything that a call's end leaves."""
    for event in transaction.end(round(took_ms)):
        execution.log.event(event)
    ended = transaction.execution(took_ms)
    response = transaction.response(request_id)
    branch = str(execution.run.branch_id)
    ran = transaction.started
    rows: tuple[Row, ...] = (
        CallEnd(
            row_id,
            ended["status"],
            ended["duration"],
            None if ended["error"] is not None else dumps(ended["response"]).decode(),
            None if ended["error"] is None else dumps(ended["error"]).decode(),
            ended["retryable"],
            now,
        ),
        NewMessage(
            message_id,
            "action_response",
            dumps(response.wire()).decode(),
            sender=transaction.call.function if ran else branch,
            recipient=branch,
            action_request_id=request_id,
        ),
    )
    execution.log.write(*rows)


async def _cut_off(task: asyncio.Task[Outcome]) -> None:
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()
