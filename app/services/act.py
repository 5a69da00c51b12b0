"""Carry out tool calls: intent before effect, one record of each end, results in input order."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import structlog
from pydantic_core import from_json

from app.core.action.normalize import ActionCall, check_arguments, find_tool
from app.core.action.table import Escalated, Outcome, Passed, Phase
from app.core.action.transaction import ActionTransaction
from app.core.action.verdict import CallStatus, Cancelled, Denied, Failed
from app.core.governance.decision import Decision
from app.core.operate.params import Batch
from app.ports.ambient import Clock, IdSource
from app.ports.storage import OpenCall
from app.ports.tool import ToolRunner, ToolSpec
from app.ports.waiting import Waits, WaitStore
from app.services.attempts import Attempts, Means
from app.services.calls import Call, CallRecords, is_another
from app.services.earlier import Earlier, bring, client_calls_of, left_open, taken_up
from app.services.execution import Execution
from app.services.oversight import FREE, Oversight, outcome_of, outcome_of_approval

MAX_CONCURRENT: Final = 32
"""Calls of one batch that run at the same time, unless the caller wants fewer."""
TOOL_CHANGED: Final = "TOOL_CHANGED"
PREVIEW: Final = 50
"""Characters of its arguments that are logged of a call, if the caller wants that."""

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
    """Nothing more can be done until a person has decided, or a client has brought a result; everything is
    recorded.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        self.until = min(call.waits_until for call in calls if call.waits_until is not None)
        asked = any(call.transaction.phase is Phase.WAITING for call in calls)
        self.reason = "approval" if asked else "client_result"
        super().__init__(f"until {self.until.isoformat()}")


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
        client_s: float,
        waits: WaitStore,
    ) -> None:
        """`runners` by kind of tool; `timeout_s` is the longest that one attempt at a call may take,
        `approval_s` how long a person has time to decide, `client_s` how long a client has for a result.
        """
        approval = timedelta(seconds=approval_s)
        self.means = Means(runners, clock, ids, timeout_s, approval, client_s, waits)

    async def carry_out(self, execution: Execution, proposals: Proposals, how: Batch) -> list[dict[str, Any]]:
        """One result for each call, in input order.

        Raises ToolsFailed for a failure when errors are not suppressed; siblings are cancelled, and recorded.
        Raises CallsWait when everything else is done, and a person or a client is waited for.
        """
        return await self.batch(execution, proposals, how).carry_out()

    def batch(self, execution: Execution, proposals: Proposals, how: Batch) -> ActionBatch:
        """The calls, to be carried out step by step."""
        return ActionBatch(self.means, execution, proposals, how)

    def abandon(self, execution: Execution, calls: Sequence[OpenCall], waits: Waits) -> None:
        """Append the end of calls whose process was lost: what they did is unknown.

        Of those that a client had, the result counts that it brought; nothing else is to come.
        """
        records = CallRecords(execution, 0, self.means.clock, self.means.ids)
        handed_over = client_calls_of(waits)
        for lost in calls:
            call = left_open(lost, handed_over.get(lost.id))
            if lost.error is not None:
                records.closed(call)
                continue
            if call.transaction.verdict is None:
                call.transaction.cancel()
                records.given_up(call)
            records.ended(call)


class ActionBatch:
    """One batch on its way."""

    def __init__(self, means: Means, execution: Execution, proposals: Proposals, how: Batch) -> None:
        self._means = means
        self._execution = execution
        self._proposals = proposals
        self._how = how
        self._oversight = proposals.oversight
        self._records = CallRecords(execution, proposals.batch, means.clock, means.ids)
        self._attempts = Attempts(means, execution, how, self._oversight, self._records)

        self._calls: list[Call] | None = None
        """Those that stand proposed."""

    def propose(self) -> None:
        """Append all proposals, and the intent, if nobody has to be asked and no call waits for another.

        The tools do not run before these are committed, by whoever it is.
        """
        how = self._how
        if how.strategy == "sequential" or how.throttle_s or self._oversight.governed:
            return
        self._calls = [self._found(index) for index in range(len(self._proposals.calls))]
        for call in self._calls:
            if call.transaction.phase is Phase.AUTHORIZING:
                call.transaction.advance(Passed())
            self._propose(call)
        self._attempts.begin([call for call in self._calls if call.runs], at_once=self._most)

    async def carry_out(self) -> list[dict[str, Any]]:
        """See `Acting.carry_out`."""
        return await (self._one_by_one() if self._how.strategy == "sequential" else self._together())

    @property
    def _most(self) -> int:
        return self._how.max_concurrent or MAX_CONCURRENT

    # The two strategies.

    async def _one_by_one(self) -> list[dict[str, Any]]:
        """Each call when the one before it has ended."""
        results: list[dict[str, Any]] = []
        for index in range(len(self._proposals.calls)):
            call = self._found(index)
            await self._authorize(call)
            await self._take_up(call)
            self._propose(call)
            await self._attempts.to_the_end(call)
            if call.waits_until is not None:
                await self._wait_for([call])
            assert call.result is not None
            results.append(call.result)
            if self._ends_the_request(call.result):
                raise ToolsFailed(call.result)
        return results

    async def _together(self) -> list[dict[str, Any]]:
        """All calls at the same time, their proposals recorded in input order."""
        calls = self._calls
        if calls is None:
            calls = [self._found(index) for index in range(len(self._proposals.calls))]
            await self._authorize(*calls)
            for call in calls:
                await self._take_up(call)
            for call in calls:
                self._propose(call)
        failed = await self._run_all([call for call in calls if call.runs])
        waiting = [call for call in calls if call.waits_until is not None]
        if failed is not None:
            await self._stop_waiting(waiting)
            raise ToolsFailed(failed)
        await self._wait_for(waiting)
        return [call.result for call in calls if call.result is not None]

    async def _wait_for(self, calls: Sequence[Call]) -> None:
        """Leave the run to wait, if it has to. Raises CallsWait, unless the run was stopped meanwhile."""
        if self._execution.stop.source is not None:
            await self._stop_waiting(calls)
        elif calls:
            raise CallsWait(calls)

    async def _stop_waiting(self, calls: Sequence[Call]) -> None:
        """End what waits; a result that a client has brought by now is kept."""
        handed_over = [call for call in calls if call.transaction.phase is Phase.HANDED_OVER]
        if handed_over:
            await self._execution.log.committed()  # what is not stored yet could still be answered
            run = self._execution.run
            waits = await self._means.waits.settled_waits(run.id, run.epoch, close=True)
            found = client_calls_of(waits)
            for call in handed_over:
                if bring(call, found.get(call.row_id)):
                    await self._attempts.record(call)
        for call in calls:
            if call.result is None:
                self._cancel(call)

    async def _run_all(self, calls: Sequence[Call]) -> dict[str, Any] | None:
        """The first result that ends the request, if one does; no call is on its way after that."""
        if not self._how.throttle_s and any(c.transaction.phase is Phase.RECORDING_INTENT for c in calls):
            await self._attempts.intend(calls, at_once=self._most)
        room = asyncio.Semaphore(self._most)
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

    async def _in_turn(self, call: Call, room: asyncio.Semaphore) -> dict[str, Any] | None:
        """Its result; None for a call that a client has now."""
        try:
            async with room:
                await self._attempts.to_the_end(call)
        except asyncio.CancelledError:
            # Cancelled while it waited for its turn, or by a sibling's failure: that is its end.
            if call.result is None:
                self._cancel(call)
        return call.result

    def _ends_the_request(self, result: Mapping[str, Any] | None) -> bool:
        if result is None or self._how.suppress_errors or self._how.keep_failures:
            return False
        if result["status"] == CallStatus.CANCELLED and self._execution.stop.source is not None:
            return False  # the whole run was stopped, and ends as that
        # What somebody did not allow is a value, whatever the caller says of failures.
        return result["error"] is not None and result["status"] != CallStatus.SKIPPED

    # One call: found, authorized, proposed, carried out.

    def _found(self, index: int) -> Call:
        """The call with its tool, as far as it got before the run waited."""
        proposals, ids = self._proposals, self._means.ids
        if (row := proposals.earlier.row(index)) is not None:
            handed_over = proposals.earlier.client_call(row.id) is not None
            return taken_up(row, proposals.tools.get(row.function), handed_over=handed_over)
        checked = find_tool(proposals.calls[index], proposals.offered)
        spec = proposals.tools.get(checked.function)
        if checked.error is None and spec is not None:
            checked = check_arguments(checked, spec.parameters, strict=spec.strict)
        transaction = ActionTransaction(checked, ids.new(), announced=proposals.announced)
        return Call(transaction, ids.new(), ids.new(), spec, index)

    async def _authorize(self, *calls: Call) -> None:
        """Ask gates and permissions about those that could run and were not asked about before."""
        asked = [call for call in calls if call.transaction.phase is Phase.AUTHORIZING]
        if self._oversight.governed and asked:
            decisions = await self._attempts.unless_cut_off(self._decisions(asked))
            if isinstance(decisions, Failed | Cancelled):
                for call in asked:
                    call.transaction.advance(decisions)
                return
            for call, decision in zip(asked, decisions, strict=True):
                call.decision = decision
        for call in asked:
            call.transaction.advance(outcome_of(call.decision))

    async def _decisions(self, calls: Sequence[Call]) -> list[Decision]:
        """What governance says of each."""
        transactions = [call.transaction for call in calls]
        return await asyncio.gather(*(self._oversight.authorize(t.call, t.call_id) for t in transactions))

    def _propose(self, call: Call) -> None:
        """Append the proposal: the request message, the function call, and what governance said."""
        if self._proposals.earlier.row(call.index) is not None:
            return  # it is stored already
        transaction = call.transaction
        if self._how.verbose:
            preview = str(transaction.call.raw_arguments)[:PREVIEW]
            log.info("tool call", function=transaction.call.function, arguments=preview)
        self._records.proposed(call)
        if transaction.phase is Phase.WAITING:
            if self._execution.stop.source is not None:
                self._cancel(call)  # nobody is asked about what is not wanted any more
            else:
                self._records.asked(call, self._means.approval)
        elif isinstance(transaction.verdict, Denied) and call.decision is not None:
            self._records.denied(call, call.decision)

    async def _take_up(self, call: Call) -> None:
        """What was decided while the run waited, for a call that is stored already."""
        transaction = call.transaction
        if transaction.phase is Phase.HANDED_OVER:
            bring(call, self._proposals.earlier.client_call(call.row_id))
            return
        if transaction.phase is not Phase.WAITING or self._proposals.earlier.row(call.index) is None:
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
        if edited:
            asked = transaction.call
            arguments = from_json(approval.edited or "")
            provider_id = asked.provider_call_id
            transaction.edited(
                ActionCall(asked.function, asked.raw_arguments, arguments, provider_call_id=provider_id)
            )
        words = {"approved": "edit" if edited else "approve", "denied": "deny", "expired": "expired"}
        self._records.decided(
            call, approval.id, words[approval.status], approval.decided_by, approval.comment
        )
        outcome = outcome_of_approval(approval.status, approval.comment)
        if isinstance(outcome, Passed):
            outcome = await self._judged_again(call)
        transaction.advance(outcome)
        if transaction.verdict is None:
            self._check_again(call)
        if transaction.verdict is None:
            self._records.begun(call)

    async def _judged_again(self, call: Call) -> Outcome:
        """A person can allow what asks for one, and nothing that is denied by now or with other words."""
        if not self._oversight.governed:
            return Passed()
        transaction = call.transaction
        decision = await self._attempts.unless_cut_off(
            self._oversight.authorize(transaction.call, transaction.call_id)
        )
        if isinstance(decision, Failed | Cancelled):
            return decision
        call.decision = decision
        outcome = outcome_of(decision)
        if isinstance(outcome, Denied):
            self._records.denied(call, decision)
        return Passed() if isinstance(outcome, Escalated) else outcome

    def _check_again(self, call: Call) -> None:
        """The tool, or the arguments, may have become others while the call waited."""
        transaction, spec = call.transaction, call.spec
        row = self._proposals.earlier.row(call.index)
        if row is not None and spec is not None and is_another(row, spec):
            transaction.refuse(TOOL_CHANGED, "its server has made it another tool while the call waited")
            return
        checked = find_tool(transaction.call, self._proposals.offered)
        if checked.error is None and spec is not None:
            checked = check_arguments(checked, spec.parameters, strict=spec.strict)
        if checked.error is not None:
            transaction.refuse(checked.error.type, checked.error.message)

    def _cancel(self, call: Call) -> None:
        """The end of a call that is not wanted any more."""
        if call.transaction.phase in (Phase.TELLING, Phase.DONE):
            self._records.closed(call)  # its attempt has ended, and another was to follow
            return
        if call.waits_until is not None:
            self._records.given_up(call)
        call.transaction.cancel()
        self._records.ended(call)
