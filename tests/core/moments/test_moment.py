"""What a log tells of its run: event by event, and the same however the log is cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.events.approval import ApprovalDecided, ApprovalRequested, GateDenied
from app.core.events.base import Event
from app.core.events.fallback import FallbackStart
from app.core.events.run import (
    ResultValidated,
    RunCancelled,
    RunCompleted,
    RunQueued,
    RunStarted,
    RunWaiting,
)
from app.core.events.session import AttemptStart, Complete, SessionEnd, SessionStart, StreamInit
from app.core.events.tool import ToolCompleted, ToolError, ToolRequested, ToolResult, ToolStart
from app.core.moments.calls import CallThen
from app.core.moments.moment import Moment
from app.core.record import Entry, EventEntry, TokenBlock
from app.services.entries import entry_of

CALL = "019a0000-0000-7000-8000-000000000001"
OTHER = "019a0000-0000-7000-8000-000000000002"

Item = Event | str
"""An event, or the text of a token of stream 0."""


def log_of(*items: Item) -> list[Entry]:
    """A log with these, one entry each."""
    entries: list[Entry] = []
    for seq, item in enumerate(items, 1):
        if isinstance(item, str):
            entries.append(TokenBlock(seq, seq * 10, 0, 1, 0, [item], [0]))
        else:
            stream = (0, 1, 0) if item.per_stream else (None, None, None)
            entries.append(entry_of(item, seq, seq * 10, *stream))
    return entries


def after(*items: Item) -> Moment:
    return Moment().take(log_of(*items))


def calls(*items: Item) -> list[CallThen]:
    return list(after(*items).calls)


SESSION = SessionStart(1, is_retry=False, is_fallback=False, purpose="main")
DONE = RunCompleted("completed", usage={"input_tokens": 1}, error=None)


@pytest.mark.parametrize(
    ("items", "status"),
    [
        ([], "queued"),
        ([RunQueued()], "queued"),
        ([RunQueued(), RunStarted()], "running"),
        ([RunStarted(), RunWaiting("approval", "")], "waiting"),
        ([RunStarted(), RunWaiting("approval", ""), ToolStart("c", "add", CALL)], "running"),
        ([RunStarted(), DONE], "completed"),
        ([RunQueued(), RunCancelled("cancelled", usage=None, error=None)], "cancelled"),
    ],
)
def test_the_status_is_the_last_that_was_told(items: list[Item], status: str) -> None:
    assert after(*items).status == status


def test_times_and_place_are_those_of_the_events() -> None:
    moment = after(RunQueued(), RunStarted(7), DONE)
    assert (moment.seq, moment.ts, moment.started_ts, moment.ended_ts) == (3, 30, 20, 30)
    assert (moment.position, moment.usage, moment.error) == (7, {"input_tokens": 1}, None)
    assert after(RunStarted()).position is None


def test_a_text_is_what_stands_of_it() -> None:
    start: list[Item] = [SESSION, StreamInit(), "half an ", "answer"]
    assert after(*start).streams[0].replay.text == "half an answer"
    retried = after(*start, AttemptStart(2, is_retry=True, is_fallback=False, content_offset=8), StreamInit())
    assert (retried.streams[0].replay.text, retried.attempts) == ("half an ", 2)
    fallen = after(*start, FallbackStart(0, 1, "previous_failed", content_offset=0), StreamInit(), "new")
    replay = fallen.streams[0].replay
    assert (replay.text, replay.fallback_index, fallen.attempts) == ("new", 1, 2)


def test_an_answer_counts_from_its_completion_on() -> None:
    start: list[Item] = [SESSION, StreamInit(), "yes"]
    assert not after(*start).answered
    done = after(*start, Complete(1, 3))
    assert (done.answered, done.streams[0].status) == (True, "open")
    assert after(*start, Complete(1, 3), SessionEnd(True, 1)).streams[0].status == "completed"
    voter = SessionStart(1, is_retry=False, is_fallback=False, purpose="voter", index=0)
    assert not after(voter, StreamInit(), "yes", Complete(1, 3)).answered


def test_what_was_validated_has_a_kind_only_if_it_failed() -> None:
    assert after(ResultValidated(True, "schema", [])).validation == {"ok": True, "kind": None, "errors": []}
    failed = after(ResultValidated(False, "schema", ["/a: no"])).validation
    assert failed == {"ok": False, "kind": "schema", "errors": ["/a: no"]}


ASKED = ToolRequested("add", "call_1", {"a": 1})
BEGUN = ToolStart("call_1", "add", CALL)
ENDED = ToolCompleted("call_1", "error", CALL)
QUESTION = ApprovalRequested("call_1", "add", CALL, "p", {"a": 1}, "", "", None, "")


def fails(error: str) -> ToolError:
    return ToolError("call_1", error, 1, CALL)


def decides(decision: str) -> ApprovalDecided:
    return ApprovalDecided("call_1", "add", CALL, "p", decision, None, "why", "")


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([], {"status": "requested", "call_id": None, "attempts": 0}),
        ([BEGUN], {"status": "processing", "call_id": CALL, "attempts": 1}),
        ([BEGUN, ToolResult("call_1", 3, 1, CALL)], {"status": "completed", "output": 3, "over": False}),
        ([BEGUN, fails("E: no")], {"status": "failed", "error": "E: no", "over": False}),
        ([BEGUN, fails("E: no"), BEGUN], {"status": "processing", "error": None, "attempts": 2}),
        ([BEGUN, fails("E: no"), ENDED], {"status": "failed", "over": True}),
        ([fails("CANCELLED: the call was cancelled"), ENDED], {"status": "cancelled", "attempts": 0}),
        ([fails("CANCELLED: by a tool")], {"status": "failed"}),
        (
            [fails("OUTCOME_UNKNOWN: the process was lost; whether the tool took effect is unknown")],
            {"status": "aborted"},
        ),
        ([GateDenied("call_1", "add", CALL, "", None, "no", "")], {"status": "skipped", "over": True}),
        ([QUESTION], {"status": "pending", "arguments": {"a": 1}}),
        ([QUESTION, decides("approve")], {"status": "processing", "arguments": {"a": 1}}),
        ([QUESTION, decides("edit")], {"status": "processing", "arguments": None}),
        ([QUESTION, decides("deny")], {"status": "skipped", "error": "why", "over": True}),
        ([QUESTION, decides("expired")], {"status": "skipped", "over": True}),
        ([BEGUN, RunWaiting("client_result", "")], {"status": "pending", "attempts": 1}),
    ],
)
def test_a_call_is_what_was_last_told_of_it(items: list[Item], expected: dict[str, Any]) -> None:
    (call,) = calls(ASKED, *items)
    assert {name: getattr(call, name) for name in expected} == expected
    assert call.function == "add"


def test_calls_that_share_the_model_s_id_are_told_apart() -> None:
    twins = calls(
        ToolRequested("add", "same", {"n": 1}),
        ToolRequested("note", "same", {"n": 2}),
        ToolStart("same", "note", OTHER),
        ToolStart("same", "add", CALL),
        ToolResult("same", "noted", 1, OTHER),
    )
    assert [(c.function, c.call_id, c.status) for c in twins] == [
        ("add", CALL, "processing"),
        ("note", OTHER, "completed"),
    ]


def test_what_a_broken_answer_asked_for_is_no_call() -> None:
    again = AttemptStart(2, is_retry=True, is_fallback=False, content_offset=0)
    assert calls(SESSION, StreamInit(), ASKED, again, StreamInit()) == []
    # What is on its way by then stays.
    (call,) = calls(SESSION, StreamInit(), ASKED, BEGUN, StreamInit())
    assert call.call_id == CALL


def test_what_a_later_version_recorded_is_passed_over() -> None:
    log = log_of(RunStarted(), DONE)
    unknown = EventEntry(2, 20, 32_000, None, None, None, '{"more":1}', None)
    moment = Moment().take([log[0], unknown])
    assert (moment.status, moment.seq) == ("running", 2)


WHOLE = log_of(
    RunQueued(),
    RunStarted(3),
    SESSION,
    StreamInit(),
    "half",
    AttemptStart(2, is_retry=True, is_fallback=False, content_offset=0),
    StreamInit(),
    "whole",
    ASKED,
    Complete(1, 5),
    QUESTION,
    RunWaiting("approval", ""),
    decides("approve"),
    BEGUN,
    ToolResult("call_1", 3, 1, CALL),
    ENDED,
    DONE,
)


def facts(moment: Moment) -> dict[str, Any]:
    told = {name: value for name, value in vars(moment).items() if name not in ("calls", "streams")}
    return {**told, "calls": list(moment.calls), "streams": moment.streams, "over": moment.calls.over}


@given(st.integers(0, len(WHOLE)), st.data())
def test_a_fold_may_be_interrupted_anywhere(end: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, end))
    assert facts(Moment().take(WHOLE[:cut]).take(WHOLE[cut:end])) == facts(Moment().take(WHOLE[:end]))
