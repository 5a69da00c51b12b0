"""Carry out tool calls: intent before effect, one record of each end, results in input order."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import structlog
from pydantic_core import from_json

from app.core.action.jsonable import output_of
from app.core.action.normalize import ActionCall, check_arguments, find_tool
from app.core.action.table import Escalated, Outcome, Passed, Phase
from app.core.action.transaction import ActionTransaction
from app.core.action.verdict import CallStatus, Cancelled, Denied, Failed, Succeeded
from app.core.operate.params import Batch
from app.ports.ambient import Clock, IdSource
from app.ports.storage import OpenCall
from app.ports.tool import Invocation, PreparingRunner, ToolFailure, ToolRunner, ToolSpec
from app.services.calls import Call, CallRecords
from app.services.earlier import Earlier, failure_of, taken_up
from app.services.execution import Execution
from app.services.oversight import FREE, PERMISSION_DENIED, Oversight, outcome_of, outcome_of_approval

MAX_CONCURRENT: Final = 32
"""Calls of one batch that run at the same time, unless the caller wants fewer."""
PREVIEW: Final = 50
"""Characters of its arguments that are logged of a call, if the caller wants that."""

T = TypeVar("T")

log = structlog.get_logger("act")


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
    oversight: Oversight = FREE
    """Who may stop them, and who hears of them."""
    earlier: Earlier = field(default_factory=Earlier)
    """What became of them before the run waited."""


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


class CallsWait(Exception):
    """Nothing more can be done until a person has decided; everything is recorded."""

    def __init__(self, until: datetime) -> None:
        super().__init__(f"until {until.isoformat()}")
        self.until = until


class Acting:
    """Executes batches of calls for a run."""

    def __init__(
        self,
        runners: Mapping[str, ToolRunner],
        clock: Clock,
        ids: IdSource,
        *,
        timeout_s: float,
        approval_s: float,
    ) -> None:
        """`runners` by kind of tool; `timeout_s` is the longest that one attempt at a call may take,
        `approval_s` how long a person has time to decide.
        """
        self.runners = runners
        self.clock = clock
        self.ids = ids
        self.timeout_s = timeout_s
        self.approval = timedelta(seconds=approval_s)

    async def carry_out(self, execution: Execution, proposals: Proposals, how: Batch) -> list[dict[str, Any]]:
        """One result for each call, in input order.

        Raises ToolsFailed for a failure when errors are not suppressed; siblings are cancelled, and recorded.
        Raises CallsWait when everything else is done and a person has to decide.
        """
        batch = _Batch(self, execution, proposals, how)
        if how.strategy == "sequential":
            return await batch.one_by_one()
        return await batch.together()

    def abandon(self, execution: Execution, calls: Sequence[OpenCall]) -> None:
        """Append the end of calls whose process was lost: what they did is unknown."""
        records = CallRecords(execution, 0, self.clock, self.ids)
        for lost in calls:
            action = ActionCall(
                lost.function,
                None,
                None if lost.arguments is None else from_json(lost.arguments),
                provider_call_id=lost.provider_call_id,
            )
            if lost.error is not None:
                transaction = ActionTransaction.left_off(action, lost.call_id, failure_of(lost.error))
            elif lost.status == "pending":
                transaction = ActionTransaction.waiting(action, lost.call_id)
                transaction.advance(Cancelled())
            else:
                transaction = ActionTransaction.interrupted(action, lost.call_id)
            call = Call(transaction, lost.id, lost.action_request_id, None, 0)
            if lost.error is not None:
                records.closed(call)
                continue
            if lost.status == "pending":
                records.given_up(call)
            records.ended(call)


class _Batch:
    """One batch on its way."""

    def __init__(self, acting: Acting, execution: Execution, proposals: Proposals, how: Batch) -> None:
        self._acting = acting
        self._execution = execution
        self._proposals = proposals
        self._how = how
        self._oversight = proposals.oversight
        self._records = CallRecords(execution, proposals.batch, acting.clock, acting.ids)
        self._next_start_ms = 0.0

    # The two strategies.

    async def one_by_one(self) -> list[dict[str, Any]]:
        """Each call when the one before it has ended."""
        results: list[dict[str, Any]] = []
        for index in range(len(self._proposals.calls)):
            call = self._found(index)
            await self._authorize(call)
            self._propose(call)
            await self._to_the_end(call)
            if call.waits_until is not None:
                self._wait_for([call])
            assert call.result is not None
            results.append(call.result)
            if self._ends_the_request(call.result):
                raise ToolsFailed(call.result)
        return results

    async def together(self) -> list[dict[str, Any]]:
        """All calls at the same time, their proposals recorded in input order."""
        calls = [self._found(index) for index in range(len(self._proposals.calls))]
        await self._authorize(*calls)
        for call in calls:
            self._propose(call)
        failed = await self._run_all([call for call in calls if call.runs])
        waiting = [call for call in calls if call.waits_until is not None]
        if failed is not None:
            for call in waiting:
                self._cancel(call)
            raise ToolsFailed(failed)
        self._wait_for(waiting)
        return [call.result for call in calls if call.result is not None]

    def _wait_for(self, calls: Sequence[Call]) -> None:
        """Leave the run to wait, if it has to. Raises CallsWait, unless the run was stopped meanwhile."""
        if self._execution.stop.source is not None:
            for call in calls:
                self._cancel(call)
        elif calls:
            raise CallsWait(min(call.waits_until for call in calls if call.waits_until is not None))

    async def _run_all(self, calls: Sequence[Call]) -> dict[str, Any] | None:
        """The first result that ends the request, if one does; no call is on its way after that."""
        room = asyncio.Semaphore(self._how.max_concurrent or MAX_CONCURRENT)
        tasks = [asyncio.create_task(self._in_turn(call, room)) for call in calls]
        failed: dict[str, Any] | None = None
        try:
            for task in asyncio.as_completed(tasks):
                result = await task
                if failed is None and self._ends_the_request(result):
                    failed = result
                    for sibling in tasks:
                        sibling.cancel()
        except BaseException:
            for sibling in tasks:
                sibling.cancel()
            await asyncio.wait(tasks)
            raise
        return failed

    async def _in_turn(self, call: Call, room: asyncio.Semaphore) -> dict[str, Any]:
        try:
            async with room:
                await self._to_the_end(call)
        except asyncio.CancelledError:
            # Cancelled while it waited for its turn, or by a sibling's failure: that is its end.
            if call.result is None:
                self._cancel(call)
        assert call.result is not None
        return call.result

    def _ends_the_request(self, result: Mapping[str, Any]) -> bool:
        if self._how.suppress_errors or self._how.keep_failures:
            return False
        # What somebody did not allow is a value, whatever the caller says of failures.
        return result["error"] is not None and result["status"] != CallStatus.SKIPPED

    # One call: found, authorized, proposed, carried out.

    def _found(self, index: int) -> Call:
        """The call with its tool, as far as it got before the run waited."""
        proposals, ids = self._proposals, self._acting.ids
        if (row := proposals.earlier.row(index)) is not None:
            return taken_up(row, proposals.tools.get(row.function))
        checked = find_tool(proposals.calls[index], proposals.offered)
        spec = proposals.tools.get(checked.function)
        if checked.error is None and spec is not None:
            checked = check_arguments(checked, spec.parameters, strict=spec.strict)
        transaction = ActionTransaction(checked, ids.new(), announced=proposals.announced)
        return Call(transaction, ids.new(), ids.new(), spec, index)

    async def _authorize(self, *calls: Call) -> None:
        """Ask gates and permissions about those that could run, and again about what a person allowed."""
        new = [call for call in calls if call.transaction.phase is Phase.AUTHORIZING]
        asked = [(call, call.transaction.call) for call in new]
        asked += [(call, allowed) for call in calls if (allowed := self._allowed(call)) is not None]
        if self._oversight.governed and asked:
            deciding = asyncio.gather(
                *(self._oversight.authorize(action, call.transaction.call_id) for call, action in asked)
            )
            await self._unless_stopped(deciding)
            if not deciding.done():
                await _cut_off(deciding)
                for call in new:
                    call.transaction.advance(Cancelled())
                return
            for (call, _), decision in zip(asked, deciding.result(), strict=True):
                call.decision = decision
        for call in new:
            call.transaction.advance(outcome_of(call.decision))

    def _allowed(self, call: Call) -> ActionCall | None:
        """What a person has allowed of a call that waited, with other arguments perhaps."""
        if call.transaction.phase is not Phase.WAITING:
            return None
        approval, action = self._proposals.earlier.approval(call.row_id), call.transaction.call
        if approval is None or approval.status != "approved":
            return None
        if approval.edited is None:
            return action
        return ActionCall(
            action.function,
            action.raw_arguments,
            from_json(approval.edited),
            provider_call_id=action.provider_call_id,
        )

    def _propose(self, call: Call) -> None:
        """Append the proposal: the request message, the function call, and what governance said."""
        if self._proposals.earlier.row(call.index) is not None:
            self._go_on(call)
            return
        transaction = call.transaction
        if self._how.verbose:
            preview = str(transaction.call.raw_arguments)[:PREVIEW]
            log.info("tool call", function=transaction.call.function, arguments=preview)
        self._records.proposed(call)
        if transaction.phase is Phase.WAITING:
            if self._execution.stop.source is not None:
                self._cancel(call)  # nobody is asked about what is not wanted any more
            else:
                self._records.asked(call, self._acting.approval)
        elif isinstance(transaction.verdict, Denied) and call.decision is not None:
            self._records.denied(call, call.decision)

    def _go_on(self, call: Call) -> None:
        """What was decided while the run waited."""
        transaction = call.transaction
        if transaction.phase is not Phase.WAITING:
            return
        approval = self._proposals.earlier.approval(call.row_id)
        if self._execution.stop.source is not None:
            call.waits_until = None if approval is None else approval.expires_at
            self._cancel(call)
            return
        if approval is None or approval.status == "pending":
            call.waits_until = self._records.now() if approval is None else approval.expires_at
            return
        edited = approval.status == "approved" and approval.edited is not None
        if edited and (allowed := self._allowed(call)) is not None:
            transaction.edited(allowed)
        words = {"approved": "edit" if edited else "approve", "denied": "deny", "expired": "expired"}
        self._records.decided(
            call, approval.id, words[approval.status], approval.decided_by, approval.comment
        )
        outcome = outcome_of_approval(approval.status, approval.comment)
        if isinstance(outcome, Passed) and call.decision is not None and call.decision.effect == "deny":
            outcome = outcome_of(call.decision)  # an escalation is what the person has answered
            if isinstance(outcome, Denied):
                self._records.denied(call, call.decision)
        transaction.advance(outcome)
        if transaction.verdict is None:
            self._check_again(call)
        if transaction.verdict is None:
            self._records.begun(call)

    def _check_again(self, call: Call) -> None:
        """The tool, or the arguments, may have become others while the call waited."""
        transaction, spec = call.transaction, call.spec
        checked = find_tool(transaction.call, self._proposals.offered)
        if checked.error is None and spec is not None:
            checked = check_arguments(checked, spec.parameters, strict=spec.strict)
        if checked.error is not None:
            transaction.refuse(checked.error.type, checked.error.message)

    async def _to_the_end(self, call: Call) -> None:
        """Attempt after attempt, until the call has ended."""
        how, transaction = self._how, call.transaction
        if not call.runs:
            return
        if transaction.phase is Phase.RECORDING:
            await self._record(call)
            return
        if transaction.verdict is not None:
            self._records.closed(call)
            return
        delay_s = how.retry_delay_s
        while True:
            await self._throttled()
            transaction = call.transaction
            transaction.advance(await self._attempt(call))
            if not self._may_try_again(call):
                await self._record(call)
                return
            await self._record(call, last=False)
            await self._pause(delay_s)
            delay_s *= how.retry_backoff
            call.transaction = transaction.again()
            call.row_id, call.started_ms = self._acting.ids.new(), 0.0
            self._records.tried_again(call)

    async def _attempt(self, call: Call) -> Outcome:
        """Everything from the recorded intent to what came of it; the phase is left at the end's."""
        execution, transaction = self._execution, call.transaction
        # Where nothing can still stop it, its beginning is committed together with the intent.
        sure = not self._oversight.hooked and call.spec is not None and not call.spec.prepares
        if sure:
            execution.log.event(transaction.start())
        await execution.log.committed()
        transaction.advance(Passed())  # the intent is recorded
        if execution.stop.source is not None:
            return Cancelled()
        if self._oversight.hooked:
            asked = asyncio.create_task(self._oversight.before(transaction))
            await self._unless_stopped(asked)
            if not asked.done():
                await _cut_off(asked)
                return Cancelled()
            if (blocked := asked.result()) is not None:
                return Failed("HOOK_BLOCKED", blocked)
        transaction.advance(Passed())  # no hook speaks against it
        preparing = self._prepared(call)
        prepares = call.spec is not None and call.spec.prepares
        invocation = await (self._in_time(preparing) if prepares else preparing)
        if not isinstance(invocation, Invocation):
            return invocation
        transaction.advance(Passed())  # the arguments are those that were checked and authorized
        if not sure:
            execution.log.event(transaction.start())
        call.started_ms = self._acting.clock.mono_ms()
        return await self._in_time(self._run_tool(call, invocation))

    async def _prepared(self, call: Call) -> Invocation | Outcome:
        """What the tool is to be called with, authorized again where its own preprocessor changed it."""
        run, transaction, spec = self._execution.run, call.transaction, call.spec
        assert spec is not None
        assert run.branch_id is not None
        asked = transaction.call
        invocation = Invocation(
            transaction.call_id,
            spec.name,
            asked.arguments or {},
            run.id,
            run.branch_id,
            run.project_id,
        )
        runner = self._acting.runners[spec.kind]
        if not spec.prepares or not isinstance(runner, PreparingRunner):
            return invocation
        try:
            prepared = await runner.prepare(spec, invocation)
        except ToolFailure as failure:
            return Failed(failure.type, failure.message, failure.retryable)
        changed = ActionCall(asked.function, asked.raw_arguments, dict(prepared.arguments))
        if not self._oversight.governed or changed.digest == asked.digest:
            return prepared
        decision = await self._oversight.authorize(changed, transaction.call_id)
        outcome = outcome_of(decision)
        if isinstance(outcome, Passed):
            return prepared
        if isinstance(outcome, Denied):
            self._records.denied(call, decision)
            return outcome
        if isinstance(outcome, Escalated):
            if call.decision is not None and call.decision.same_rule(decision):
                return prepared  # that is what a person was asked, and has answered
            # Nobody can be asked any more: what waits is asked about before anything of it has run.
            message = "the tool's preprocessor changed the arguments to some that need an approval"
            return Failed(PERMISSION_DENIED, message, False)
        assert isinstance(outcome, Failed)
        return outcome

    async def _in_time(self, work: Coroutine[Any, Any, T]) -> T | Cancelled | Failed:
        """What the tool makes of the call, unless the run is stopped first, or its time is over."""
        most_s = self._acting.timeout_s
        limit_s = min(self._how.call_timeout_s or most_s, most_s)
        task = asyncio.create_task(work)
        try:
            await self._unless_stopped(task, limit_s)
        except asyncio.CancelledError:
            await _cut_off(task)
            return Cancelled()
        if task.done():
            return task.result()
        await _cut_off(task)
        if self._execution.stop.source is not None:
            return Cancelled()
        return Failed("TIMEOUT", f"the tool gave no result within {limit_s:g} s")

    async def _unless_stopped(self, task: asyncio.Future[Any], limit_s: float | None = None) -> None:
        """Wait until the task is done, the run is stopped, or the time is over."""
        await asyncio.wait(
            {task, self._execution.stop.requested},
            timeout=limit_s,
            return_when=asyncio.FIRST_COMPLETED,
        )

    async def _run_tool(self, call: Call, invocation: Invocation) -> Outcome:
        assert call.spec is not None
        try:
            output = output_of(await self._acting.runners[call.spec.kind].call(call.spec, invocation))
        except ToolFailure as failure:
            return Failed(failure.type, failure.message, failure.retryable)
        except Exception as failure:
            return Failed(type(failure).__name__, str(failure))
        return Succeeded(output.value, output.truncated)

    def _may_try_again(self, call: Call) -> bool:
        transaction, how = call.transaction, self._how
        verdict = transaction.verdict
        return (
            isinstance(verdict, Failed)
            and transaction.started
            and verdict.retryable is not False
            and transaction.attempt <= how.retries
            and call.spec is not None
            and (call.spec.idempotent or how.retry_any_tool)
            and self._execution.stop.source is None
        )

    async def _record(self, call: Call, *, last: bool = True) -> None:
        """Append the end, then tell the hooks: they cannot change what is recorded."""
        self._records.ended(call, last=last)
        transaction = call.transaction
        if self._oversight.hooked:
            took_ms = self._acting.clock.mono_ms() - call.started_ms if call.started_ms else None
            await self._oversight.after(transaction, took_ms)
        transaction.advance(Passed())

    def _cancel(self, call: Call) -> None:
        """The end of a call that is not wanted any more."""
        if call.transaction.phase in (Phase.TELLING, Phase.DONE):
            self._records.closed(call)  # its attempt has ended, and another was to follow
            return
        if call.waits_until is not None:
            self._records.given_up(call)
        call.transaction.cancel()
        self._records.ended(call)

    async def _throttled(self) -> None:
        """Wait until the next call may begin."""
        if not self._how.throttle_s:
            return
        now_ms = self._acting.clock.mono_ms()
        start_ms = max(now_ms, self._next_start_ms)
        self._next_start_ms = start_ms + self._how.throttle_s * 1000
        await self._pause((start_ms - now_ms) / 1000)

    async def _pause(self, seconds: float) -> None:
        """Wait, unless the run is stopped."""
        if seconds > 0 and self._execution.stop.source is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._execution.stop.requested), seconds)


async def _cut_off(task: asyncio.Future[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()
