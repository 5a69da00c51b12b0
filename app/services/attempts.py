"""Carry one call through its attempts: intent, hooks, preparation, the tool, and the record of each end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from app.core.action.jsonable import output_of
from app.core.action.normalize import ActionCall
from app.core.action.table import Escalated, HandedOver, Outcome, Passed, Phase
from app.core.action.verdict import Cancelled, Denied, Failed, Lost, Succeeded
from app.core.client_tool import CLIENT, ClientSettings
from app.core.operate.params import Batch
from app.ports.ambient import Clock, IdSource
from app.ports.tool import Invocation, PreparingRunner, ToolFailure, ToolRunner, ToolSpec
from app.ports.waiting import WaitStore
from app.services.calls import Call, CallRecords
from app.services.cut_off import unless_cut_off
from app.services.execution import Execution
from app.services.oversight import PERMISSION_DENIED, Oversight, outcome_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Means:
    """What calls are made with."""

    runners: Mapping[str, ToolRunner]
    """By kind of tool."""
    clock: Clock
    ids: IdSource
    timeout_s: float
    """The longest that one attempt may take."""
    approval: timedelta
    """How long a person has time to decide."""
    client_s: float
    """How long a client has time to bring a result, unless the tool says so."""
    waits: WaitStore


class Attempts:
    """Makes the calls of one batch; the caller says which of them may run at the same time."""

    def __init__(
        self, means: Means, execution: Execution, how: Batch, oversight: Oversight, records: CallRecords
    ) -> None:
        self._means = means
        self._execution = execution
        self._how = how
        self._oversight = oversight
        self._records = records
        self._next_start_ms = 0.0

    async def intend(self, calls: Sequence[Call], *, at_once: int) -> None:
        """Commit the intent of all these calls together; `at_once` of them are about to begin."""
        self.begin(calls, at_once=at_once)
        await self._execution.log.committed()
        for call in calls:
            call.intended = True

    def begin(self, calls: Sequence[Call], *, at_once: int) -> None:
        """Where nothing can still stop a call, its beginning is committed together with the intent."""
        if self._oversight.hooked or self._execution.stop.source is not None:
            return
        for call in calls[:at_once]:
            sure = call.spec is not None and not call.spec.prepares
            if sure and call.transaction.phase is Phase.RECORDING_INTENT:
                self._begin(call)

    def _begin(self, call: Call) -> None:
        if not call.begun:
            call.begun = True
            self._execution.log.event(call.transaction.start(None if call.spec is None else call.spec.origin))

    async def to_the_end(self, call: Call) -> None:
        """Attempt after attempt, until the call has ended."""
        transaction = call.transaction
        if not call.runs:
            return
        if transaction.verdict is not None and transaction.phase is not Phase.RECORDING:
            # Its process was lost between two attempts.
            if not self._may_try_again(call):
                self._records.closed(call)
                return
            await self._begin_again(call)
        while True:
            transaction = call.transaction
            if transaction.phase is not Phase.RECORDING:
                await self._throttled()
                transaction.advance(await self._attempt(call))
            if transaction.phase is Phase.HANDED_OVER:
                return
            if not self._may_try_again(call):
                await self.record(call)
                return
            await self.record(call, last=False)
            await self._begin_again(call)

    async def _begin_again(self, call: Call) -> None:
        """Append the next attempt, after the pause for a failure; one that was lost is made again at once."""
        how, transaction = self._how, call.transaction
        if not isinstance(transaction.verdict, Lost):
            await self._pause(how.retry_delay_s * how.retry_backoff ** (transaction.attempt - 1))
        call.transaction = transaction.again()
        call.row_id, call.started_ms, call.waited_ms = self._means.ids.new(), 0.0, None
        call.intended = call.begun = False
        self._records.tried_again(call)

    async def _attempt(self, call: Call) -> Outcome:
        """Everything from the recorded intent to what came of it; the phase is left at the end's."""
        execution, transaction = self._execution, call.transaction
        if not call.intended:
            await self.intend([call], at_once=1)
        transaction.advance(Passed())  # the intent is recorded
        if execution.stop.source is not None:
            return Cancelled()
        if self._oversight.hooked:
            blocked = await self.unless_cut_off(self._oversight.before(transaction))
            if isinstance(blocked, Failed | Cancelled):
                return blocked
            if blocked is not None:
                return Failed("HOOK_BLOCKED", blocked)
        transaction.advance(Passed())  # no hook speaks against it
        try:
            invocation = await self._prepared(call)
        except ToolFailure as failure:
            return Failed(failure.type, failure.message, failure.retryable)
        if isinstance(invocation, Failed | Denied | Cancelled):
            return invocation
        transaction.advance(Passed())  # the arguments are those that were checked and authorized
        self._begin(call)
        assert call.spec is not None
        if call.spec.kind == CLIENT:
            self._hand_over(call, call.spec)
            return HandedOver()
        call.started_ms = self._means.clock.mono_ms()
        return await self.unless_cut_off(self._run_tool(call, invocation), self._limit_s)

    def _hand_over(self, call: Call, spec: ToolSpec) -> None:
        """Leave it to a client; what limits an attempt limits the time that this may take."""
        client = ClientSettings.of(spec.settings)
        limit_s = client.expires_s or self._means.client_s
        limit_s = min(limit_s, self._how.call_timeout_s or limit_s)
        self._records.handed_over(call, timedelta(seconds=limit_s), client.lease_s)

    async def _prepared(self, call: Call) -> Invocation | Failed | Denied | Cancelled:
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
        runner = self._means.runners.get(spec.kind)
        if not spec.prepares or not isinstance(runner, PreparingRunner):
            return invocation
        prepared = await self.unless_cut_off(runner.prepare(spec, invocation), self._limit_s)
        if isinstance(prepared, Failed | Cancelled):
            return prepared
        changed = ActionCall(asked.function, asked.raw_arguments, dict(prepared.arguments))
        if not self._oversight.governed or changed.digest == asked.digest:
            return prepared
        decision = await self.unless_cut_off(self._oversight.authorize(changed, transaction.call_id))
        if isinstance(decision, Failed | Cancelled):
            return decision
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

    async def unless_cut_off(
        self, work: Coroutine[Any, Any, T], limit_s: float | None = None
    ) -> T | Failed | Cancelled:
        """What comes of the work; it is cut off when the run is stopped, or its time is over."""
        return await unless_cut_off(work, self._execution.stop, limit_s)

    @property
    def _limit_s(self) -> float:
        """How long the tool may take, and what prepares its arguments."""
        most_s = self._means.timeout_s
        return min(self._how.call_timeout_s or most_s, most_s)

    async def _run_tool(self, call: Call, invocation: Invocation) -> Outcome:
        assert call.spec is not None
        try:
            output = output_of(await self._means.runners[call.spec.kind].call(call.spec, invocation))
        except ToolFailure as failure:
            return Failed(failure.type, failure.message, failure.retryable)
        except Exception as failure:
            return Failed(type(failure).__name__, str(failure))
        return Succeeded(output.value, output.truncated)

    def _may_try_again(self, call: Call) -> bool:
        transaction, how = call.transaction, self._how
        verdict = transaction.verdict
        if isinstance(verdict, Lost):
            # What it did is not known, so it may be done once more only where that is no matter.
            return call.spec is not None and call.spec.idempotent and self._execution.stop.source is None
        return (
            isinstance(verdict, Failed)
            and transaction.started
            and verdict.retryable is not False
            and transaction.attempt <= how.retries
            and call.spec is not None
            and (call.spec.idempotent or how.retry_any_tool)
            and self._execution.stop.source is None
        )

    async def record(self, call: Call, *, last: bool = True) -> None:
        """Append the end, then tell the hooks: they cannot change what is recorded."""
        self._records.ended(call, last=last)
        transaction = call.transaction
        if self._oversight.hooked:
            await self._oversight.after(transaction, self._records.took_ms(call))
        transaction.advance(Passed())

    async def _throttled(self) -> None:
        """Wait until the next call may begin."""
        if not self._how.throttle_s:
            return
        now_ms = self._means.clock.mono_ms()
        start_ms = max(now_ms, self._next_start_ms)
        self._next_start_ms = start_ms + self._how.throttle_s * 1000
        await self._pause((start_ms - now_ms) / 1000)

    async def _pause(self, seconds: float) -> None:
        """Wait, unless the run is stopped."""
        if seconds > 0 and self._execution.stop.source is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._execution.stop.requested), seconds)
