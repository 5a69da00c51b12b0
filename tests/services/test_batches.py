"""Whatever happens to a batch of calls, each leaves one end, one linked pair of messages, and its events."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.action.normalize import ActionCall, proposed
from app.core.client_tool import ClientSettings
from app.core.governance.decision import Decision
from app.core.json_text import dumps
from app.core.operate.params import Batch
from app.core.record import EventEntry
from app.ports.storage import (
    CallEnd,
    CallRecord,
    CallStart,
    Flush,
    FlushResult,
    NewCall,
    NewMessage,
    RunRecord,
    RunStore,
)
from app.ports.tool import Invocation, ToolFailure, ToolSpec
from app.ports.waiting import (
    ApprovalRecord,
    ClientCallRecord,
    NewApproval,
    NewClientCall,
    WaitClosed,
    Waits,
    WaitStore,
)
from app.services.act import Acting, CallsWait, Proposals, ToolsFailed
from app.services.earlier import Earlier
from app.services.execution import Execution
from app.services.feed import Feeds
from app.services.oversight import FREE, Oversight
from app.services.recorder import Recorder
from tests.support.ambient import CountingIds, FakeClock

BATCHES = int(os.environ.get("BRANCHLINE_TEST_BATCHES", "300"))
"""Random batches; raise it to look harder."""
TERMINAL = {"completed", "failed", "skipped", "cancelled", "aborted"}
DOES = ("works", "gives null", "fails", "fails once", "hangs", "is cancelled")
CLIENTS = ("brings", "brings null", "brings an error", "brings an error once", "is late", "never comes")
"""What clients do with calls of tools of these names."""
SAYS = ("allow", "gate denies", "permissions deny", "approve", "deny", "edit", "expire", "leave")
IDS = CountingIds()


@dataclass
class Table:
    """What is stored, kept as the rows say, and checked as the database would."""

    messages: dict[UUID, NewMessage] = field(default_factory=dict)
    calls: dict[UUID, dict[str, Any]] = field(default_factory=dict)
    approvals: dict[UUID, dict[str, Any]] = field(default_factory=dict)
    handed: dict[UUID, ClientCallRecord] = field(default_factory=dict)
    events: list[EventEntry] = field(default_factory=list)
    end: RunRecord | None = None

    async def flush(self, flushes: Sequence[Flush]) -> FlushResult:
        """Keep all of it."""
        for flush in flushes:
            self.events += [entry for entry in flush.entries if isinstance(entry, EventEntry)]
            for row in flush.rows:
                self._keep(row)
            self.end = flush.end or self.end
        return FlushResult()

    def _keep(self, row: Any) -> None:
        match row:
            case NewMessage():
                assert row.id not in self.messages
                self.messages[row.id] = row
            case NewCall():
                assert row.id not in self.calls
                self.calls[row.id] = {"row": row, "status": row.status, "end": None}
            case CallStart():
                assert self.calls[row.id]["status"] == "pending"
                self.calls[row.id]["status"] = "processing"
            case CallEnd():
                assert self.calls[row.id]["end"] is None, "a call ends once"
                self.calls[row.id] |= {"status": row.status, "end": row}
            case NewClientCall():
                assert self.calls[row.function_call_id]["status"] == "processing"
                self.calls[row.function_call_id]["status"] = "pending"
                self.handed[row.function_call_id] = _client_call_record(row)
            case NewApproval():
                self.approvals[row.function_call_id] = {"row": row, "status": "pending"}
            case WaitClosed():
                assert row.function_call_id not in self.handed, "these are closed before they are read"
                asked = self.approvals[row.function_call_id]
                asked["status"] = "cancelled" if asked["status"] == "pending" else asked["status"]

    async def settled_waits(self, run_id: UUID, epoch: int, *, close: bool = False) -> Waits:
        """What clients have brought; at the last moment too, but nothing after that."""
        assert close
        self.clients_come()
        for id, handed in self.handed.items():
            if handed.status == "waiting":
                self.handed[id] = replace(handed, status="cancelled", ended_at=handed.created_at)
        return Waits((), list(self.handed.values()))

    def clients_come(self) -> None:
        """Each does with the calls that wait for it what it always does."""
        for id, handed in self.handed.items():
            if handed.status != "waiting" or handed.function == "never comes":
                continue
            error = None
            if handed.function == "brings an error" or (
                handed.function == "brings an error once" and handed.attempt == 1
            ):
                error = '{"type": "NO", "message": "no", "retryable": true}'
            late = handed.function == "is late"
            self.handed[id] = replace(
                handed,
                status="expired" if late else "answered",
                output="null" if handed.function == "brings null" else "3",
                error=error,
                ended_at=handed.expires_at if late else handed.created_at,
            )

    def earlier(self, says: Sequence[str]) -> Earlier:
        """What a process that takes the run up finds, after people have said this by index of call."""
        calls, approvals = [], []
        for id, kept in self.calls.items():
            row, end = kept["row"], kept["end"]
            responses = (m.id for m in self.messages.values() if m.action_request_id == row.action_request_id)
            calls.append(_call_record(row, kept["status"], end, next(responses, None)))
            if id in self.approvals:
                asked = self.approvals[id]
                if asked["status"] == "pending":
                    asked["status"] = _STATUS[says[row.index]]
                approvals.append(_approval_record(asked["row"], asked["status"], says[row.index] == "edit"))
        self.clients_come()
        return Earlier(calls, Waits(approvals, list(self.handed.values())))


_STATUS = {
    "approve": "approved",
    "edit": "approved",
    "deny": "denied",
    "expire": "expired",
    "leave": "pending",
}


def _call_record(row: NewCall, status: str, end: CallEnd | None, response: UUID | None) -> CallRecord:
    made = {name: getattr(row, name) for name in CallRecord.__slots__ if hasattr(row, name)}
    ended = {
        name: getattr(end, name, None) for name in ("duration", "response", "error", "retryable", "ended_at")
    }
    more: dict[str, Any] = {
        "run_id": UUID(int=1),
        "branch_id": UUID(int=2),
        "status": status,
        "action_response_id": response,
        "created_at": datetime.now(UTC),
    }
    return CallRecord(**{**made, **ended, **more})


def _client_call_record(row: NewClientCall) -> ClientCallRecord:
    made = {name: getattr(row, name) for name in ClientCallRecord.__slots__ if hasattr(row, name)}
    more = dict.fromkeys(name for name in ClientCallRecord.__slots__ if name not in made)
    return ClientCallRecord(**{**more, **made, "status": "waiting", "output_truncated": False})


def _approval_record(row: NewApproval, status: str, edited: bool) -> ApprovalRecord:
    made = {name: getattr(row, name) for name in ApprovalRecord.__slots__ if hasattr(row, name)}
    more: dict[str, Any] = {
        "run_id": UUID(int=1),
        "status": status,
        "edited": dumps({"n": 1}).decode() if edited and status == "approved" else None,
        "edited_digest": None,
        "comment": None,
        "decided_by": None,
        "decided_at": None,
        "created_at": datetime.now(UTC),
    }
    return ApprovalRecord(**{**made, **more})


class Tools:
    """A tool that does what its call says."""

    kind = "python"

    def __init__(self) -> None:
        self.ran: Counter[UUID] = Counter()

    async def prepare(self, spec: ToolSpec, invocation: Invocation) -> Invocation:
        """See the port."""
        return invocation

    async def call(self, spec: ToolSpec, invocation: Invocation) -> Any:
        """See the port."""
        self.ran[invocation.call_id] += 1
        match spec.name:
            case "gives null":
                return None
            case "fails":
                raise ValueError("no")
            case "fails once" if self.ran[invocation.call_id] == 1:
                raise ToolFailure("BUSY", "later", retryable=True)
            case "hangs":
                await asyncio.Event().wait()
            case "is cancelled":
                raise ToolFailure("CancelledError", "from within")
        return 3


class Ruled(Oversight):
    """Says of each call what was drawn for it."""

    def __init__(self, by_index: Sequence[str]) -> None:
        super().__init__()
        self._by_index = by_index

    @property
    def governed(self) -> bool:
        """Everything is decided."""
        return True

    async def authorize(self, call: ActionCall, call_id: UUID) -> Decision:
        """By the number among the call's arguments."""
        said = self._by_index[int((call.arguments or {}).get("index", 0))]
        if said == "gate denies":
            return Decision("deny", "branch.gate")
        if said == "permissions deny":
            return Decision("deny", "branch.permissions")
        return Decision("allow") if said == "allow" else Decision("escalate", "branch.gate")


SPECS = {name: ToolSpec(name, "python", "", {"type": "object"}, idempotent=True) for name in DOES}
SPECS |= {
    name: ToolSpec(
        name, "client", "", {"type": "object"}, idempotent=True, settings=ClientSettings().settings()
    )
    for name in CLIENTS
}

REQUESTS = st.lists(
    st.tuples(st.sampled_from([*DOES, *CLIENTS, "unknown"]), st.sampled_from(SAYS), st.booleans()),
    min_size=1,
    max_size=6,
)


@given(
    requests=REQUESTS,
    strategy=st.sampled_from(["concurrent", "sequential"]),
    suppress=st.booleans(),
    keep=st.booleans(),
    retries=st.integers(0, 2),
    stop_after=st.none() | st.integers(0, 12),
    governed=st.booleans(),
)
@settings(max_examples=BATCHES, deadline=None)
def test_every_call_ends_once_and_is_linked(
    requests: list[tuple[str, str, bool]],
    strategy: Any,
    suppress: bool,
    keep: bool,
    retries: int,
    stop_after: int | None,
    governed: bool,
) -> None:
    how = Batch(
        strategy,
        suppress_errors=suppress,
        keep_failures=keep,
        retries=retries,
        call_timeout_s=0.01,
        max_concurrent=3,
    )
    table, tools = anyio.run(_through, requests, how, stop_after, governed)
    _check(table, tools)


async def _through(
    requests: Sequence[tuple[str, str, bool]], how: Batch, stop_after: int | None, governed: bool
) -> tuple[Table, Tools]:
    """A batch to its end, waiting and being taken up again as often as it takes.

    One that nothing governs is proposed with the acceptance of its run.
    """
    table, tools, clock = Table(), Tools(), FakeClock()
    recorder = Recorder(cast(RunStore, table), Feeds(), clock, lambda started: None)
    work = asyncio.create_task(recorder.work())
    acting = Acting(
        {"python": tools},
        clock,
        IDS,
        timeout_s=1,
        approval_s=60,
        client_s=60,
        waits=cast(WaitStore, table),
    )
    run = RunRecord(IDS.new(), IDS.new(), IDS.new(), "act", "running", "{}", datetime.now(UTC))
    says = [said for _, said, _ in requests]
    calls = [
        proposed({"function": name, "arguments": {"index": index} if fine else [index]})
        for index, (name, _, fine) in enumerate(requests)
    ]
    proposals = Proposals(calls, SPECS, list(SPECS), oversight=Ruled(says) if governed else FREE)
    try:
        most = 4 * len(requests)  # a person's word, and three attempts of a client
        for round_ in range(most + 2):
            first = round_ == 0
            execution = Execution(run, recorder.draft(run) if first else recorder.open(run))
            if round_ == most + 1:
                execution.stop.request("user")  # what nobody decides is cancelled in the end
            batch = acting.batch(execution, proposals, how)
            if first:
                batch.propose()
                accepted, _ = execution.log.take()
                await table.flush([accepted])
                recorder.adopt(execution.log, accepted.entries)
            carrying = asyncio.create_task(batch.carry_out())
            if stop_after is not None and first:
                for _ in range(stop_after):
                    await asyncio.sleep(0)
                execution.stop.request("user")
            try:
                with suppress(ToolsFailed):
                    await carrying
                execution.finish("completed", result="null")
                await execution.log.committed()
                return table, tools
            except CallsWait as wait:
                execution.wait("{}", wait.until, wait.reason)
                await execution.log.committed()
                proposals = replace(proposals, earlier=table.earlier(says))
        raise AssertionError("it never ended")
    finally:
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work


def _check(table: Table, tools: Tools) -> None:
    requests = {m.id: m for m in table.messages.values() if m.kind == "action_request"}
    answered = Counter(m.action_request_id for m in table.messages.values() if m.kind == "action_response")
    assert answered == Counter(requests.keys()), "one response for each request"
    assert {kept["status"] for kept in table.calls.values()} <= TERMINAL
    assert {kept["row"].action_request_id for kept in table.calls.values()} == requests.keys()
    assert "pending" not in {asked["status"] for asked in table.approvals.values()}
    for id, handed in table.handed.items():
        status = table.calls[id]["status"]
        fits = {"expired": "failed", "cancelled": "cancelled"}.get(
            handed.status, "failed" if handed.error else "completed"
        )
        assert status == fits, "what a client brought is what is recorded"
    ran = Counter(kept["row"].call_id for kept in table.calls.values())
    assert all(times <= ran[call_id] for call_id, times in tools.ran.items()), "each attempt has its row"
    for id, kept in table.calls.items():
        if kept["status"] == "skipped":
            assert tools.ran[kept["row"].call_id] == 0, id
