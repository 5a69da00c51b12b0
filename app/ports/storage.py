"""Keep runs, their log and their conversations; every method is one short transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from app.core.governance.governance import StoredGovernance
from app.core.limits.quota import Standing
from app.core.operate.history import History
from app.core.record import Entry, EventEntry
from app.ports.attempts import NewAttempt
from app.ports.waiting import NewApproval, NewClientCall, WaitClosed, WaitStore


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A row of `messages`; `content` is JSON text."""

    id: UUID
    branch_id: UUID
    position: int
    kind: str
    sender: str | None
    recipient: str | None
    content: str
    run_id: UUID | None
    action_request_id: UUID | None
    action_response_id: UUID | None
    created_at: datetime
    superseded: bool = False
    """Whether its run was rolled back, so that it does not count any more."""


@dataclass(frozen=True, slots=True)
class BranchState:
    """What a run needs to know of its branch."""

    id: UUID | None
    """None for a run without a branch: then only the project says anything."""
    project_id: UUID
    system: str | None
    chat_model: str | None
    parse_model: str | None
    tools: bool | list[str]
    lifecycle: Mapping[str, Any] | None
    project_lifecycle: Mapping[str, Any] | None
    version: int
    next_position: int
    conversation: History | None
    """At least up to `next_position`; None where it was not asked for."""
    governance: StoredGovernance = field(default_factory=StoredGovernance)
    """What its tool calls are judged by."""

    @property
    def history(self) -> History:
        """The conversation, for kinds of runs that read it."""
        assert self.conversation is not None, "the conversation was not asked for"
        return self.conversation


@dataclass(slots=True)
class RunRecord:
    """A row of `runs`. JSON payloads are JSON text."""

    id: UUID
    project_id: UUID
    branch_id: UUID | None
    kind: str
    status: str
    request: str
    created_at: datetime
    context: str | None = None
    key_id: UUID | None = None
    request_id: str | None = None
    traceparent: str | None = None
    epoch: int = 0
    cancel_requested_at: datetime | None = None
    expires_at: datetime | None = None
    result: str | None = None
    error: str | None = None
    validation: str | None = None
    finish_reason: str | None = None
    finish_reason_raw: str | None = None
    partial_text: str | None = None
    model: str | None = None
    usage: str | None = None
    attempts: int = 0
    fallback_index: int = 0
    last_seq: int = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None
    resume: str | None = None
    """What a waiting run goes on from; made and read by the planner of its kind."""
    wake_at: datetime | None = None
    """When a waiting run is taken up again although nothing has happened."""
    function_calls: Sequence[UUID] = ()

    @property
    def ended(self) -> bool:
        """Whether its status is terminal."""
        return self.ended_at is not None


@dataclass(slots=True)
class NewMessage:
    """A message to append; its position is given when it is committed."""

    id: UUID
    kind: str
    content: str
    sender: str | None = None
    recipient: str | None = None
    action_request_id: UUID | None = None


@dataclass(slots=True)
class NewCall:
    """A function call row to insert, `pending` or `processing`."""

    id: UUID
    call_id: UUID
    attempt: int
    batch: int
    index: int
    function: str
    action_request_id: UUID
    status: str
    arguments: str | None
    raw_arguments: str | None
    arguments_digest: str | None
    provider_call_id: str | None
    started_at: datetime | None
    gate: str | None = None
    """What was decided about it; JSON text."""


@dataclass(slots=True)
class CallEnd:
    """The terminal state of a function call row."""

    id: UUID
    status: str
    duration: float | None
    """Seconds."""
    response: str | None
    error: str | None
    retryable: bool | None
    ended_at: datetime


@dataclass(slots=True)
class CallStart:
    """A `pending` function call row that begins to be processed, with the arguments it runs with."""

    id: UUID
    arguments: str | None
    arguments_digest: str | None
    started_at: datetime


Row = NewMessage | NewCall | CallEnd | CallStart | NewApproval | NewClientCall | WaitClosed | NewAttempt


@dataclass(slots=True)
class Flush:
    """What one run has to be written: events, rows and, at its end, the run itself. All of it or nothing."""

    run_id: UUID
    project_id: UUID
    branch_id: UUID | None
    epoch: int
    entries: Sequence[Entry] = ()
    rows: Sequence[Row] = ()
    end: RunRecord | None = None
    """The run with its values, when this flush ends it, or has it wait and be taken up again by anybody."""

    @property
    def ends(self) -> bool:
        """Whether nothing of the run comes after this."""
        return self.end is not None and self.end.ended


@dataclass(frozen=True, slots=True)
class FlushResult:
    """What became of a group of flushes."""

    lost: Sequence[UUID] = ()
    """Runs whose lease is somebody else's by now: nothing of theirs was written."""
    rejected: Mapping[UUID, str] = field(default_factory=dict)
    """Runs whose data the database refused, with its words: nothing of theirs was written."""
    started: Sequence[RunRecord] = ()
    """Queued runs that the ended ones handed their branches to; this process holds their leases."""


@dataclass(slots=True)
class NewRun:
    """A run to be accepted."""

    run: RunRecord
    seen_version: int
    """The branch's version and next position when the run was prepared; a run prepared on others is stale.
    Without a branch they say nothing.
    """
    seen_position: int
    if_match: int | None = None
    if_busy: str = "enqueue"
    """`enqueue`, `reject`, `interrupt` or `rollback`: what becomes of it and of the active run."""
    entries: Sequence[Entry] = ()
    """First events, if it starts at once."""
    rows: Sequence[Row] = ()
    """What else is stored with them."""
    queued: Sequence[Entry] = ()
    """First events, if it has to queue."""
    idempotency: tuple[str, str, bytes] | None = None
    """Scope, key and fingerprint of the request."""
    quotas: Sequence[UUID] = ()
    """Those that limit runs of the key or its project."""
    starts: bool = True
    """Whether it may start at once; else it queues, to be taken up by another process."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The run is stored: running with this process's lease, or queued."""

    running: bool
    replaces: UUID | None = None
    """The active run that is to end for it, if that was asked for."""
    limits: Sequence[Standing] = ()
    """Where those of its quotas stand, this run counted."""


@dataclass(frozen=True, slots=True)
class Stale:
    """The branch changed since the run was prepared; prepare it again."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The idempotency key was used before, for this run."""

    run_id: UUID


Acceptance = Accepted | Stale | Replayed


@dataclass(frozen=True, slots=True)
class Claimed:
    """Runs that this process holds from now on."""

    orphans: Sequence[RunRecord] = ()
    """They ran in a process whose lease has run out."""
    given_up: Sequence[RunRecord] = ()
    """They ran in a process that was stopped, and left them to others."""
    started: Sequence[RunRecord] = ()
    """They were queued, and nothing was in their way."""
    woken: Sequence[RunRecord] = ()
    """They waited, and something has happened, or the time is over."""


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A function call without an end, or without its response; JSON payloads are JSON text."""

    id: UUID
    status: str
    """`pending`, `processing`, or `failed` when another attempt was to follow."""
    call_id: UUID
    function: str
    arguments: str | None
    provider_call_id: str | None
    action_request_id: UUID
    started_at: datetime | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A row of `function_calls`. JSON payloads are JSON text."""

    id: UUID
    run_id: UUID
    branch_id: UUID | None
    call_id: UUID
    attempt: int
    batch: int
    index: int
    function: str
    arguments: str | None
    raw_arguments: str | None
    arguments_digest: str | None
    provider_call_id: str | None
    status: str
    duration: float | None
    response: str | None
    error: str | None
    retryable: bool | None
    gate: str | None
    action_request_id: UUID
    action_response_id: UUID | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    output_truncated: bool = False
    """Whether the response is the beginning of a longer one; told only where a run is taken up again."""


class RunStore(WaitStore, Protocol):
    """Runs and all that is written for them."""

    async def branch_state(
        self, project_id: UUID, branch_id: UUID, *, conversation: bool = True
    ) -> BranchState:
        """The branch, with its whole conversation unless that is of no interest. Raises NotFound."""

    async def no_branch_state(self, project_id: UUID) -> BranchState:
        """What a run without a branch has in its place: no messages, and the project's options."""

    async def require_branch(self, project_id: UUID, branch_id: UUID) -> None:
        """Raises NotFound for a branch that is not the project's."""

    async def remembered(self, project_id: UUID, idempotency: tuple[str, str, bytes]) -> UUID | None:
        """The run for which this idempotency key was used. Raises KeyReused for another request's key."""

    async def accept(self, new: NewRun) -> Acceptance:
        """Store a run. Raises NotFound, PreconditionFailed, BranchBusy, TooMany, Conflict, Invalid.

        A run with quotas is refused where one of them is used up: LimitReached.
        """

    async def flush(self, flushes: Sequence[Flush]) -> FlushResult:
        """Write a group in one transaction, fenced by (run, epoch). Raises Unavailable."""

    async def written(self, flushes: Sequence[Flush]) -> tuple[Collection[UUID], Sequence[RunRecord]]:
        """What became of a group whose flush broke off, perhaps after its commit: the runs whose part was
        written, and those that were started by it. Raises Unavailable.
        """

    async def run(self, project_id: UUID, run_id: UUID) -> RunRecord:
        """One run. Raises NotFound."""

    async def last_seq(self, run_id: UUID) -> int:
        """Number of the last event of a log, 0 for an empty one; a run that has ended says it itself."""

    async def standings(self, runs: Sequence[UUID]) -> Mapping[UUID, tuple[int, str]]:
        """Of each run that is there: the number of its last event, and its status."""

    async def page(self, run_id: UUID, *, after: int, limit: int) -> Sequence[Entry]:
        """Entries that hold the events after `after`, in order, at least one if there is one.

        `limit` bounds events; the last block may go over it.
        """

    async def renew(self, leases: Mapping[UUID, int]) -> tuple[Sequence[UUID], Sequence[UUID]]:
        """Prolong leases (run -> epoch): (runs whose cancellation was asked for, runs that are lost)."""

    async def claim(self, limit: int, *, lost: bool = True) -> Claimed:
        """Take over what no living process holds; runs whose lease has run out only if `lost` ones are asked
        for. `last_seq` of each run is that of its log.
        """

    async def release(self, leases: Mapping[UUID, int]) -> None:
        """Leave running runs (run -> epoch) that this process holds to whoever claims next."""

    async def give_back(self, runs: Sequence[RunRecord]) -> None:
        """Queue runs again that this process holds and has written nothing for."""

    async def expire(self, *, at: datetime, expired: EventEntry) -> Sequence[UUID]:
        """End queued runs whose time is over, with `expired` as their last event (its seq is given here)."""

    async def open_calls(self, run_id: UUID) -> Sequence[OpenCall]:
        """The last attempts at the run's calls that have no end, or no response."""

    async def calls_of(self, run_id: UUID) -> Sequence[CallRecord]:
        """All function calls of a run, in order."""

    async def request_cancel(
        self, project_id: UUID, run_id: UUID, *, at: datetime, cancelled: EventEntry
    ) -> RunRecord:
        """Store the intent to cancel; a run that is still queued is ended here, with `cancelled` as its last
        event (its seq is given here). Raises NotFound, RunEnded.
        """
