"""What has to hold whatever befell: of branches, their messages, and the calls that were made for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, groupby, pairwise
from operator import itemgetter

from tests.system.chaos.evidence import TERMINAL, Evidence, Json, Recorded
from tests.system.chaos.flaky import CHARGE, ECHO, ERRAND, LOOK, TASK, tasks_in
from tests.system.chaos.invariants import Invariant

TRIES = 3
"""How often an attempt at an idempotent call may be posted."""
OPEN = ("pending", "processing")
PLANNED = frozenset(
    {
        *("RUN_STARTED", "SESSION_START", "STREAM_INIT", "TIMEOUT_START", "TOOL_REQUESTED", "TOOL_START"),
        *("ADAPTER_WRAP_START", "ADAPTER_DETECTED", "ADAPTER_WRAP_END"),
    }
)
"""What a run that starts at once may begin with, stamped when it is planned and not when it is accepted. The
run before it, if that left the conversation as it was, may have ended only in between.
"""


def every_call_has_ended(seen: Evidence) -> Iterator[str]:
    """And its request and its response know each other."""
    requests = _of_kind(seen, "action_request")
    responses = _of_kind(seen, "action_response")
    for recorded in seen.runs:
        for call in recorded.calls:
            request = requests.get(call["action_request_id"])
            response = responses.get(str(call["action_response_id"]))
            if call["status"] in OPEN or call["ended_at"] is None:
                yield f"{recorded} left the call {call['id']} {call['status']}"
            elif request is None or response is None:
                yield f"{recorded}: the call {call['id']} has no request or no response"
            elif request["content"]["action_response_id"] != response["id"]:
                yield f"{recorded}: the request of {call['id']} does not know its response"
            elif response["content"]["action_request_id"] != request["id"]:
                yield f"{recorded}: the response of {call['id']} does not know its request"
        ended = Counter(e["meta"]["callId"] for e in recorded.events if e["type"] == "TOOL_COMPLETED")
        if doubled := {call for call, count in ended.items() if count > 1}:
            yield f"{recorded}: the calls {doubled} ended more than once in the log"
    answered = Counter(message["content"]["action_request_id"] for message in responses.values())
    for id in requests:
        if answered[id] != 1:
            yield f"the request message {id} has {answered[id]} responses"


def _of_kind(seen: Evidence, kind: str) -> dict[str, Json]:
    return {m["id"]: m for messages in seen.messages.values() for m in messages if m["kind"] == kind}


def every_post_to_a_tool_has_a_record(seen: Evidence) -> Iterator[str]:
    """One that must not be repeated is made once for each attempt on record, at most."""
    calls: dict[str, list[Json]] = {}
    for recorded in seen.runs:
        for call in recorded.calls:
            calls.setdefault(call["call_id"], []).append(call)
    posted = Counter(request.body["call_id"] for request in seen.tool_requests)
    for request in seen.tool_requests:
        told = request.body
        rows = calls.get(told["call_id"], [])
        if not any(row["run_id"] == told["run_id"] and row["arguments"] == told["arguments"] for row in rows):
            yield f"the tool was posted {told}, of which there is no record"
    for call_id, times in posted.items():
        rows = calls.get(call_id, [])
        most = len(rows) * (TRIES if rows and rows[0]["function"] == LOOK else 1)
        if times > most:
            yield f"the call {call_id} was posted {times} times: {[row['status'] for row in rows]}"
    for rows in calls.values():
        for row in rows:
            yield from _given(seen, row)


def _given(seen: Evidence, row: Json) -> Iterator[str]:
    """The output of a call is one that the tool gave to this call."""
    if row["status"] == "completed" and row["function"] in (CHARGE, LOOK, ERRAND):
        number = row["execution"]["response"]["number"]
        if seen.given.get(number) != row["call_id"]:
            yield f"the call {row['call_id']} has the output {number}, given to {seen.given.get(number)}"


def nothing_is_done_unapproved(seen: Evidence) -> Iterator[str]:
    """A call that people had to be asked about was made only if one of them has approved it."""
    for recorded in seen.runs:
        for call in recorded.calls:
            asked = call["gate"] is not None and call["function"] == ECHO
            if asked and call["status"] == "completed" and call["id"] not in seen.approved:
                yield f"{recorded}: the call {call['id']} was made, and nobody had approved it"


def one_run_at_a_time(seen: Evidence) -> Iterator[str]:
    """On every branch: no run begins before the one before it has ended."""
    for branch, runs in by_branch(seen).items():
        for one, other in pairwise(in_order(runs)):
            early_ms = _ended(one) - _begun(other)
            if early_ms > 0:
                yield f"branch {branch}: {other} began {early_ms} ms before {one} ended"


def the_queue_keeps_its_order(seen: Evidence) -> Iterator[str]:
    """A run that was accepted before another was asked for begins before it, unless that takes a place."""
    by_task = {wish.task: wish for wish in seen.wishes}
    for branch, runs in by_branch(seen).items():
        wanted = [recorded for recorded in in_order(runs) if recorded.key in by_task]
        for one, other in combinations(wanted, 2):
            first, then = by_task[str(other.key)], by_task[str(one.key)]
            overtakes = one.replaces is not None and other.replaces is None
            if first.accepted_at and then.sent_at and first.accepted_at < then.sent_at and not overtakes:
                yield f"branch {branch}: {other} was accepted before {one} was sent, and began after it"


def by_branch(seen: Evidence) -> dict[str, list[Recorded]]:
    """The runs of each branch."""
    on_branches = [recorded for recorded in seen.runs if recorded.run["branch_id"] is not None]
    runs = sorted(on_branches, key=lambda recorded: str(recorded.run["branch_id"]))
    return {
        branch: list(group) for branch, group in groupby(runs, key=lambda recorded: recorded.run["branch_id"])
    }


def in_order(runs: Sequence[Recorded]) -> list[Recorded]:
    """Those that began, the first one first."""
    return sorted((recorded for recorded in runs if "RUN_STARTED" in recorded.types), key=_begun)


def _begun(recorded: Recorded) -> int:
    """When it was certainly under way, in milliseconds."""
    sure = recorded.events
    if "RUN_QUEUED" not in recorded.types:
        sure = [event for event in sure if event["type"] not in PLANNED]
    return next((event["ts"] for event in sure if event["type"] != "RUN_QUEUED"), 0)


def _ended(recorded: Recorded) -> int:
    return max((event["ts"] for event in recorded.events if event["type"] in TERMINAL), default=0)


def every_conversation_is_well_formed(seen: Evidence) -> Iterator[str]:
    """What one run said stands together; answers follow their instructions, responses their requests."""
    for branch, messages in seen.messages.items():
        positions = [message["position"] for message in messages]
        left_out = sum(run.superseded and run.run["branch_id"] == branch for run in seen.runs)
        if positions != sorted(set(positions)) or _gaps(positions) > left_out:
            yield f"branch {branch} has the positions {positions}, and {left_out} runs were rolled back"
        blocks = [(run, list(block)) for run, block in groupby(messages, key=itemgetter("run_id"))]
        if len({run for run, _ in blocks}) != len(blocks):
            yield f"branch {branch}: messages of runs are mixed: {[run for run, _ in blocks]}"
        for run, block in blocks:
            kinds = [message["kind"] for message in block]
            if not _well_formed(block):
                yield f"branch {branch}: run {run} left the messages {kinds}"


def _gaps(positions: Sequence[int]) -> int:
    """How many positions are free; the end of a run that was rolled back leaves one."""
    return positions[-1] - positions[0] + 1 - len(positions) if positions else 0


def _well_formed(block: Sequence[Json]) -> bool:
    kinds = [message["kind"] for message in block]
    if kinds[0] == "instruction":
        if kinds[1:2] != ["assistant_response"]:
            return False
        kinds, block = kinds[2:], block[2:]
    asked: set[str] = set()
    for message in block:
        if message["kind"] == "action_request":
            asked.add(message["id"])
        elif message["kind"] != "action_response" or message["content"]["action_request_id"] not in asked:
            return False
    return True


def every_model_was_told_the_conversation(seen: Evidence) -> Iterator[str]:
    """A request to a model holds the instructions that stand on its branch, in order, and then its own.

    Those of runs that were rolled back stand there for nobody.
    """
    order = {branch: _tasks_on(messages) for branch, messages in seen.shown.items()}
    said = {task: at for messages in seen.messages.values() for task, at in _places(messages).items()}
    branch_of = {wish.task: wish.branch for wish in seen.wishes}
    for request in seen.model_requests:
        *before, own = tasks_in(request.body["messages"])
        branch = branch_of[own]
        stands = order[branch] if branch is not None else []
        if before != stands[: len(before)]:
            yield f"the model was told {before} before {own}, which is not what stands on branch {branch}"
        elif own in said and said[own] != len(before):
            yield f"the model was told {len(before)} instructions before {own}, which stands at {said[own]}"


def _tasks_on(messages: Sequence[Json]) -> list[str]:
    return [task for message in messages if (task := _task_of(message)) is not None]


def _places(messages: Sequence[Json]) -> dict[str, int]:
    """How many instructions that count stand before each instruction."""
    found: dict[str, int] = {}
    before = 0
    for message in messages:
        if (task := _task_of(message)) is not None:
            found[task] = before
            before += not message["superseded"]
    return found


def _task_of(message: Json) -> str | None:
    said = TASK.search(str(message["content"])) if message["kind"] == "instruction" else None
    return said[0] if said else None


OF_BRANCHES: Sequence[Invariant] = (
    every_call_has_ended,
    every_post_to_a_tool_has_a_record,
    nothing_is_done_unapproved,
    one_run_at_a_time,
    the_queue_keeps_its_order,
    every_conversation_is_well_formed,
    every_model_was_told_the_conversation,
)
