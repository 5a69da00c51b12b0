"""Accept runs, wait for them, stop them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import from_json

from app.core.errors import PreconditionFailed, RunEnded, Unavailable
from app.core.events.run import RunCancelled, RunQueued
from app.core.json_text import dumps
from app.core.limits.quota import Standing
from app.ports.ambient import Clock, IdSource
from app.ports.hints import Hints, Topic
from app.ports.storage import Accepted, BranchState, NewRun, Replayed, RunRecord, RunStore
from app.services.earlier import Earlier
from app.services.elsewhere import Elsewhere
from app.services.entries import entry_of
from app.services.execution import Execution
from app.services.executor import Executor
from app.services.feed import Feeds
from app.services.follow import Follower, Shows
from app.services.plan import Plan, Planner, placed

T = TypeVar("T")

STALE_TRIES = 20
"""How often a run is prepared anew because its branch changed meanwhile."""
QUEUE_TIME = timedelta(days=7)
CLOSING_S = 1.0
"""How often somebody who waits looks whether the service is about to stop."""
RESUME_TRIES, RESUME_PAUSE_S = 120, 0.25
"""How long a run that has got its branch waits for what it needs to be prepared."""
CANCEL_WAIT_S = 1.0
"""How long a cancellation waits to be able to say that it has taken place."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request comes from, and on what conditions."""

    project_id: UUID
    key_id: UUID | None = None
    request_id: str | None = None
    traceparent: str | None = None
    if_match: int | None = None
    idempotency: tuple[str, str, bytes] | None = None
    """Scope, key and fingerprint."""
    quotas: tuple[UUID, ...] = ()
    """Those that limit runs."""


@dataclass(frozen=True, slots=True)
class Submission:
    """What became of a request."""

    run: RunRecord
    replayed: bool = False
    """Whether its idempotency key had been used for this run before."""
    limits: Sequence[Standing] = ()
    """Where the limits on runs stand, this one counted."""


class Runs:
    """All runs of all projects, as their clients deal with them."""

    def __init__(
        self,
        store: RunStore,
        executor: Executor,
        feeds: Feeds,
        elsewhere: Elsewhere,
        hints: Hints,
        planners: Mapping[str, Planner[Any]],
        clock: Clock,
        ids: IdSource,
        *,
        executes: bool = True,
    ) -> None:
        """`planners` by kind of run; what is accepted here is for others to take up unless it `executes`."""
        self._store = store
        self._executor = executor
        self._feeds = feeds
        self._elsewhere = elsewhere
        self._hints = hints
        self._planners = planners
        self._clock = clock
        self._ids = ids
        self._executes = executes

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)

    async def submit(
        self, kind: str, branch_id: UUID | None, request: BaseModel, origin: Origin, *, if_busy: str
    ) -> Submission:
        """Store a run, and start it if its branch is free, or if it has none.

        Raises what planning raises, and NotFound, PreconditionFailed, BranchBusy, TooMany.
        """
        if origin.idempotency is not None:
            # Before anything is planned: the run may have used what is gone by now.
            known = await self._store.remembered(origin.project_id, origin.idempotency)
            if known is not None:
                return Submission(await self.get(origin.project_id, known), replayed=True)
        if branch_id is None and origin.if_match is not None:
            raise PreconditionFailed("If-Match names a branch's version, and the request no branch.")
        planner = self._planners[kind]
        # What becomes of the active run is settled at the acceptance; who takes this one up need not know.
        said = request.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"if_busy"})
        body = dumps(said).decode()
        for _ in range(STALE_TRIES):
            branch = await self._state(planner, origin.project_id, branch_id)
            now = self._now()
            run = RunRecord(
                id=self._ids.new(),
                project_id=origin.project_id,
                branch_id=branch_id,
                kind=kind,
                status="queued",
                request=body,
                created_at=now,
                key_id=origin.key_id,
                request_id=origin.request_id,
                traceparent=origin.traceparent,
                expires_at=now + QUEUE_TIME,
            )
            plan = placed(await planner.plan(run, branch, request), branch)
            ts = self._clock.wall_ms()
            execution = self._executor.draft(run)
            if self._executes:
                plan.begin(execution)
            first, _ = execution.log.take()
            outcome = await self._store.accept(
                NewRun(
                    run,
                    seen_version=branch.version,
                    seen_position=branch.next_position,
                    if_match=origin.if_match,
                    if_busy=if_busy,
                    entries=first.entries,
                    rows=first.rows,
                    queued=[entry_of(RunQueued(), 1, ts)],
                    idempotency=origin.idempotency,
                    quotas=origin.quotas,
                    starts=self._executes,
                )
            )
            match outcome:
                case Accepted(running=True, limits=limits):
                    run.status, run.epoch, run.started_at, run.expires_at = "running", 1, now, None
                    self._executor.start(execution, first.entries, plan.perform)
                    # A turn for the run's task, and one for its stream's: the model is asked before the
                    # client is answered, and thinks meanwhile.
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
                    return Submission(run, limits=limits)
                case Accepted(replaces=replaced, limits=limits):
                    run.last_seq = 1
                    if replaced is not None:
                        self._stop(replaced)
                    if not self._executes:
                        self._hints.tell(Topic.WORK)
                    return Submission(run, limits=limits)
                case Replayed(run_id):
                    return Submission(await self.get(origin.project_id, run_id), replayed=True)
        raise Unavailable(
            "The branch changes faster than the run can be prepared; try again.", retry_after_s=1
        )

    async def _state(self, planner: Planner[Any], project_id: UUID, branch_id: UUID | None) -> BranchState:
        if branch_id is None:
            return await self._store.no_branch_state(project_id)
        return await self._store.branch_state(project_id, branch_id, conversation=planner.converses)

    async def take_up(self, execution: Execution) -> None:
        """Carry a stored run on that has got its branch, that waited, or that another process had begun.

        Raises what planning raises.
        """
        run = execution.run
        plan = await self.patiently(execution, lambda: self.prepared(run))
        if run.resume is None and not execution.past.last_seq:
            plan.begin(execution)
            await plan.perform(execution)
            return
        earlier = await self.patiently(execution, lambda: self._earlier(execution))
        if run.resume is None or plan.go_on is None:
            await plan.recover(execution, earlier)
        else:
            await plan.go_on(execution, from_json(run.resume), earlier)

    async def prepared(self, run: RunRecord) -> Plan:
        """A stored run, planned anew. Raises what planning raises."""
        planner = self._planners[run.kind]
        branch = await self._state(planner, run.project_id, run.branch_id)
        return placed(await planner.plan(run, branch, planner.read(from_json(run.request))), branch)

    async def _earlier(self, execution: Execution) -> Earlier:
        run, stopped = execution.run, execution.stop.source is not None
        waits = await self._store.settled_waits(run.id, run.epoch, close=stopped)
        calls = await self._store.calls_of(run.id)
        execution.calls = [call.id for call in calls]
        return Earlier(calls, waits)

    async def patiently(self, execution: Execution, work: Callable[[], Awaitable[T]]) -> T:
        """What `work` gives; what is out of reach for a while is waited for."""
        for last in (*(False,) * RESUME_TRIES, True):
            try:
                return await work()
            except Unavailable:
                if last or execution.stop.source is not None:
                    raise
            await asyncio.sleep(RESUME_PAUSE_S)
        raise AssertionError("unreachable")

    async def get(self, project_id: UUID, run_id: UUID) -> RunRecord:
        """One run as it is now. Raises NotFound."""
        run = await self._store.run(project_id, run_id)
        feed = self._feeds.get(run_id)
        if not run.ended:
            run.last_seq = feed.last_seq if feed is not None else await self._store.last_seq(run_id)
        return run

    async def require_branch(self, project_id: UUID, branch_id: UUID) -> None:
        """Raises NotFound for a branch that is not the project's."""
        await self._store.require_branch(project_id, branch_id)

    async def wait(
        self, run: RunRecord, timeout_s: float, *, unless: asyncio.Event | None = None
    ) -> RunRecord:
        """The run when it has ended, or as it is when the time is over, or when `unless` is set."""
        deadline = self._clock.mono_ms() + timeout_s * 1000
        begun = replace(run)
        while not (unless and unless.is_set()):
            # What an execution says of its run is on record when it is done, and not before.
            execution = self._executor.get(run.id)
            if execution is None and (run.ended or run.status == "waiting"):
                return run
            left_s = (deadline - self._clock.mono_ms()) / 1000
            if left_s <= 0:
                break
            if execution is not None:
                await asyncio.wait({execution.done}, timeout=min(left_s, CLOSING_S if unless else left_s))
                # An end that could not be written is none: the run goes on with whoever has it now.
                if execution.done.done() and execution.done.result() and execution.run.ended:
                    return execution.run
            else:
                await self._ended_elsewhere(run, deadline, unless)
            if self._executor.get(run.id) is None:
                run = await self.get(run.project_id, run.id)
        return run if self._executor.get(run.id) is None else replace(begun, last_seq=run.last_seq)

    async def _ended_elsewhere(
        self, run: RunRecord, deadline_ms: float, unless: asyncio.Event | None
    ) -> None:
        """Wait until there is reason to look at the run again, or until the time is over."""
        with self._elsewhere.watching(run.id, ends_only=True) as watch:
            run = await self._store.run(run.project_id, run.id)  # it may just have ended
            while not (run.ended or run.status == "waiting" or (unless and unless.is_set())):
                left_s = (deadline_ms - self._clock.mono_ms()) / 1000
                if left_s <= 0 or await watch.news(min(left_s, CLOSING_S if unless else left_s)):
                    return

    async def cancel(self, project_id: UUID, run_id: UUID) -> RunRecord:
        """Have a run end: the run, ended as `cancelled` or not yet ended.

        Raises NotFound, and RunEnded for one that has ended, or that ends otherwise before the cancellation
        takes effect.
        """
        now = self._now()
        event = entry_of(RunCancelled("cancelled", usage=None, error=None), 0, self._clock.wall_ms())
        run = await self._store.request_cancel(project_id, run_id, at=now, cancelled=event)
        if run.ended:
            self._elsewhere.wake(run_id)
            self._hints.tell(Topic.END, [run_id])
            return run
        self._stop(run_id)
        ended = await self.wait(run, CANCEL_WAIT_S)
        if not ended.ended:
            return run
        if ended.status != "cancelled":
            raise RunEnded(f"The run ended before it could be cancelled: it is {ended.status}.")
        return ended

    def _stop(self, run_id: UUID) -> None:
        """Have whoever has a run feel at once that it is to end, as its row says by now."""
        if self._executor.cancel(run_id) is None:
            self._hints.tell(Topic.CANCEL, [run_id])
            self.look_for_work()  # one that waits is taken up to be ended

    def look_for_work(self) -> None:
        """Have a run taken up that has just become ready, here or elsewhere."""
        if self._executes:
            self._executor.hurry()
        else:
            self._hints.tell(Topic.WORK)

    def follow(self, run: RunRecord, after: int, reader: Shows, *, pace_s: float = 0) -> Follower:
        """Its log after an event, for a reader; see `Follower`."""
        return Follower(self._store, self._feeds, self._elsewhere, run, after, reader, pace_s)
