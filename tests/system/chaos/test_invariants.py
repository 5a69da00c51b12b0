"""What the invariants say of a record that is well, and of one in which something is wrong."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.postgres import PostgresServer
from tests.system.chaos.evidence import Evidence
from tests.system.chaos.flaky import CHARGE, ECHO, ERRAND
from tests.system.chaos.spoiling import Spoil, calm, complaints, event_of, of, wish_of
from tests.system.chaos.wishes import Wish

pytestmark = pytest.mark.anyio

TALK, CALL, ACT, ASK = (f"task-{n:012x}" for n in range(4))


def _wishes(branch: str) -> list[Wish]:
    bodies: dict[str, tuple[str, dict[str, Any]]] = {
        TALK: ("operate", {"instruction": TALK}),
        CALL: ("operate", {"instruction": f"{CALL} calls: {CHARGE}", "actions": True, "tools": [CHARGE]}),
        ACT: ("act", {"requests": [{"function": CHARGE, "arguments": {"task": ACT}}]}),
        ASK: (
            "act",
            {
                "requests": [
                    {"function": ERRAND, "arguments": {"task": ASK}},
                    {"function": ECHO, "arguments": {"value": ASK}},
                ]
            },
        ),
    }
    return [
        Wish(task, branch, kind, body, "stream" if task == TALK else "async", None, 0.0, [0.1])
        for task, (kind, body) in bodies.items()
    ]


@pytest.fixture(scope="module")
async def well(postgres: PostgresServer) -> AsyncIterator[Evidence]:
    """What four wishes leave when nothing befalls."""
    async with calm(postgres) as made, made.working():
        wishes = _wishes(made.branch)
        for wish in wishes:
            await made.client.see_to(wish)
        yield await made.gathered(wishes)


async def test_a_record_that_is_well_is_not_complained_of(well: Evidence) -> None:
    assert complaints(well) == {}
    assert [recorded.run["status"] for recorded in well.runs] == ["completed"] * 4
    assert {call["status"] for recorded in well.runs for call in recorded.calls} == {"completed"}


def _message(seen: Any, kind: str) -> Any:
    return next(m for messages in seen.messages.values() for m in messages if m["kind"] == kind)


def _left_running(seen: Any) -> None:
    of(seen, TALK).run["status"] = "running"


def _ended_twice(seen: Any) -> None:
    recorded = of(seen, TALK)
    again = {**recorded.events[-1], "seq": recorded.run["last_seq"] + 1}
    recorded.events.append(again)
    recorded.run["last_seq"] += 1
    wish_of(seen, TALK).events.append(again)


def _gap(seen: Any) -> None:
    del of(seen, ACT).events[3]
    del wish_of(seen, ACT).events[3]


def _failed(code: str) -> Spoil:
    def spoil(seen: Any) -> None:
        recorded = of(seen, ACT)
        error = {"code": code, "message": "", "category": "internal", "retryable": False}
        recorded.run |= {"status": "failed", "error": error}
        recorded.events[-1] |= {"type": "RUN_FAILED"}
        recorded.events[-1]["meta"] |= {"status": "failed", "error": error}
        wish_of(seen, ACT).events[-1] = recorded.events[-1]
        wish_of(seen, ACT).ends_told = ["failed"]

    return spoil


def _heard_twice(seen: Any) -> None:
    heard = wish_of(seen, TALK).events
    heard.insert(5, heard[4])


def _heard_otherwise(seen: Any) -> None:
    wish_of(seen, TALK).events[2] = {**wish_of(seen, TALK).events[2], "ts": 1}


def _not_heard(seen: Any) -> None:
    wish_of(seen, TALK).heard_the_end = False


def _told_another_end(seen: Any) -> None:
    wish_of(seen, ACT).ends_told.append("cancelled")


def _two_runs(seen: Any) -> None:
    of(seen, ACT).key = CALL


def _told_of_two(seen: Any) -> None:
    wish_of(seen, ACT).run_ids.add("another")


def _text_lost(seen: Any) -> None:
    for events in (of(seen, TALK).events, wish_of(seen, TALK).events):
        next(event for event in events if event["type"] == "TOKEN")["meta"]["text"] = "x"


def _another_result(seen: Any) -> None:
    for events in (of(seen, TALK).events, wish_of(seen, TALK).events):
        events[-1]["meta"]["result"] = "x"
    of(seen, TALK).run["result"] = "x"


def _call_open(seen: Any) -> None:
    of(seen, ACT).calls[0] |= {"status": "processing", "ended_at": None}


def _unanswered(seen: Any) -> None:
    (messages,) = seen.messages.values()
    messages.remove(_message(seen, "action_response"))


def _wrong_link(seen: Any) -> None:
    _message(seen, "action_request")["content"]["action_response_id"] = "another"


def _unrecorded(seen: Any) -> None:
    seen.tool_requests[0].body["call_id"] = "another"


def _posted_twice(seen: Any) -> None:
    seen.tool_requests.append(seen.tool_requests[0])


def _made_up(seen: Any) -> None:
    of(seen, ACT).calls[0]["execution"]["response"]["number"] = 99


def _unapproved(seen: Any) -> None:
    seen.approved.clear()


def _at_once(seen: Any) -> None:
    event_of(seen, CALL, "STREAM_READY")["ts"] = of(seen, TALK).events[-1]["ts"] - 1


def _overtaken(seen: Any) -> None:
    wish, other = wish_of(seen, TALK), wish_of(seen, CALL)
    wish.sent_at, other.accepted_at = 2.0, 1.0


def _mixed(seen: Any) -> None:
    (messages,) = seen.messages.values()
    messages[0]["run_id"] = messages[-1]["run_id"]


def _twice_in_one_place(seen: Any) -> None:
    (messages,) = seen.messages.values()
    messages[1]["position"] = messages[0]["position"]


def _instruction_unanswered(seen: Any) -> None:
    _message(seen, "assistant_response")["kind"] = "instruction"


def _told_another_conversation(seen: Any) -> None:
    told = seen.model_requests[-1].body["messages"]
    told.remove(next(message for message in told if TALK in str(message["content"])))


SPOILT: dict[Spoil, str] = {
    _left_running: "every_run_has_ended",
    _ended_twice: "every_run_has_ended",
    _gap: "every_log_is_whole",
    _failed("INTERNAL"): "every_failure_has_a_reason",
    _failed("NETWORK_ERROR"): "every_failure_has_a_reason",
    _failed("RECOVERY_EXHAUSTED"): "every_failure_has_a_reason",
    _heard_twice: "every_client_heard_the_log",
    _heard_otherwise: "every_client_heard_the_log",
    _not_heard: "every_client_heard_the_log",
    _told_another_end: "every_answer_was_true",
    _two_runs: "every_wish_has_one_run",
    _told_of_two: "every_wish_has_one_run",
    _text_lost: "every_text_is_the_result",
    _another_result: "every_text_is_the_result",
    _call_open: "every_call_has_ended",
    _unanswered: "every_call_has_ended",
    _wrong_link: "every_call_has_ended",
    _unrecorded: "every_post_to_a_tool_has_a_record",
    _posted_twice: "every_post_to_a_tool_has_a_record",
    _made_up: "every_post_to_a_tool_has_a_record",
    _unapproved: "nothing_is_done_unapproved",
    _at_once: "one_run_at_a_time",
    _overtaken: "the_queue_keeps_its_order",
    _mixed: "every_conversation_is_well_formed",
    _twice_in_one_place: "every_conversation_is_well_formed",
    _instruction_unanswered: "every_conversation_is_well_formed",
    _told_another_conversation: "every_model_was_told_the_conversation",
}


@pytest.mark.parametrize("spoil", SPOILT, ids=[f"{n}-{name}" for n, name in enumerate(SPOILT.values())])
async def test_what_is_wrong_is_complained_of(well: Evidence, spoil: Spoil) -> None:
    seen = copy.deepcopy(well)
    spoil(seen)
    assert SPOILT[spoil] in complaints(seen)
