"""Every way of one call through its phases, and what each end leaves in the records."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.action.normalize import proposed
from app.core.action.table import TRANSITIONS, Escalated, HandedOver, IllegalStep, Outcome, Passed, Phase
from app.core.action.transaction import ActionTransaction
from app.core.action.verdict import (
    APPROVAL_DENIED,
    MAX_MESSAGE,
    CallStatus,
    Cancelled,
    Denied,
    Failed,
    Lost,
    Succeeded,
)
from app.core.events.base import Event
from app.core.events.tool import ToolCompleted, ToolError, ToolRequested, ToolResult, ToolStart
from app.core.messages import ActionRequestContent, ActionResponseContent

CALL_ID = UUID(int=1)
ID = str(CALL_ID)
REQUEST_ID = UUID(int=2)
NOT_AT_THE_END: list[Outcome] = [Passed(), Escalated(), HandedOver()]
OUTCOMES = [*NOT_AT_THE_END, Succeeded(3), Failed("E", "m"), Denied(), Cancelled(), Lost()]
BEFORE_INVOKING: list[Outcome] = [Passed()] * 4


def begun(arguments: Any = None, **options: Any) -> ActionTransaction:
    request = {"function": "add", "arguments": {"a": 1} if arguments is None else arguments}
    return ActionTransaction(
        proposed(request, provider_call_id=options.pop("provider", None)), CALL_ID, **options
    )


def ended(*outcomes: Outcome, **options: Any) -> ActionTransaction:
    """A transaction to which `outcomes` happened, and then nothing more."""
    transaction = begun(**options)
    for outcome in outcomes:
        transaction.advance(outcome)
    while transaction.phase is not Phase.DONE:
        transaction.advance(Passed())
    return transaction


def lost() -> ActionTransaction:
    transaction = ActionTransaction.interrupted(begun().call, CALL_ID)
    transaction.advance(Passed())
    transaction.advance(Passed())
    return transaction


def failure_output(error: str, arguments: Any) -> dict[str, Any]:
    return {"error": error, "function": "add", "arguments": arguments}


ARGUMENTS = {"a": 1}
UNKNOWN = "OUTCOME_UNKNOWN: the process was lost; whether the tool took effect is unknown"
ENDS: list[Any] = [
    pytest.param(
        lambda: ended(*BEFORE_INVOKING, Succeeded(3)),
        CallStatus.COMPLETED,
        None,
        3,
        None,
        [ToolResult(ID, 3, 7, ID), ToolCompleted(ID, "success", ID)],
        id="done",
    ),
    pytest.param(
        lambda: ended(*BEFORE_INVOKING, Succeeded(None)),
        CallStatus.COMPLETED,
        None,
        None,
        None,
        [ToolResult(ID, None, 7, ID), ToolCompleted(ID, "success", ID)],
        id="done with null",
    ),
    pytest.param(
        lambda: ended(*BEFORE_INVOKING, Failed("ValueError", "no", True)),
        CallStatus.FAILED,
        {"error": "ValueError", "message": "no"},
        failure_output("ValueError: no", ARGUMENTS),
        "ValueError: no",
        [ToolError(ID, "ValueError: no", 7, ID), ToolCompleted(ID, "error", ID)],
        id="tool failed",
    ),
    pytest.param(
        lambda: ended(Passed(), Passed(), Failed("HOOK_BLOCKED", "not today")),
        CallStatus.FAILED,
        {"error": "HOOK_BLOCKED", "message": "not today"},
        failure_output("HOOK_BLOCKED: not today", ARGUMENTS),
        "HOOK_BLOCKED: not today",
        [ToolError(ID, "HOOK_BLOCKED: not today", 7, ID), ToolCompleted(ID, "error", ID)],
        id="hook blocked",
    ),
    pytest.param(
        lambda: ended(arguments=[1, 2]),
        CallStatus.FAILED,
        {"error": "INVALID_ARGUMENTS", "message": "arguments must be an object, not a list"},
        failure_output("INVALID_ARGUMENTS: arguments must be an object, not a list", [1, 2]),
        "INVALID_ARGUMENTS: arguments must be an object, not a list",
        [
            ToolError(ID, "INVALID_ARGUMENTS: arguments must be an object, not a list", 7, ID),
            ToolCompleted(ID, "error", ID),
        ],
        id="bad arguments",
    ),
    pytest.param(
        lambda: ended(Denied("rule 3")),
        CallStatus.SKIPPED,
        {"error": "GATE_DENIED", "message": "rule 3"},
        {"error": "denied by governance gate", "function": "add"},
        "denied by governance gate",
        [],
        id="gate denied",
    ),
    pytest.param(
        lambda: ended(Denied("no", APPROVAL_DENIED)),
        CallStatus.SKIPPED,
        {"error": "APPROVAL_DENIED", "message": "no"},
        failure_output("APPROVAL_DENIED: no", ARGUMENTS),
        "APPROVAL_DENIED: no",
        [],
        id="person denied",
    ),
    pytest.param(
        lambda: ended(*BEFORE_INVOKING, Cancelled()),
        CallStatus.CANCELLED,
        {"error": "CANCELLED", "message": "the call was cancelled"},
        failure_output("CANCELLED: the call was cancelled", ARGUMENTS),
        "CANCELLED: the call was cancelled",
        [ToolError(ID, "CANCELLED: the call was cancelled", 7, ID), ToolCompleted(ID, "error", ID)],
        id="cancelled",
    ),
    pytest.param(
        lost,
        CallStatus.ABORTED,
        {"error": "OUTCOME_UNKNOWN", "message": UNKNOWN.partition(": ")[2]},
        failure_output(UNKNOWN, ARGUMENTS),
        UNKNOWN,
        [ToolError(ID, UNKNOWN, 7, ID), ToolCompleted(ID, "error", ID)],
        id="process lost",
    ),
]


@pytest.mark.parametrize(("run", "status", "fault", "output", "error", "events"), ENDS)
def test_every_end_is_told_alike_everywhere(
    run: Any, status: CallStatus, fault: Any, output: Any, error: str | None, events: list[Event]
) -> None:
    transaction = run()
    assert transaction.status is status
    assert transaction.end(duration_ms=7) == events
    assert transaction.execution(duration_ms=7) == {
        "status": status.value,
        "duration": 0.007,
        "response": output if error is None else None,
        "error": fault,
        "retryable": True if fault == {"error": "ValueError", "message": "no"} else None,
    }
    arguments = transaction.result()["arguments"]
    assert transaction.result() == {
        "function": "add",
        "arguments": arguments,
        "output": output,
        "error": error,
        "call_id": ID,
        "status": status.value,
    }
    response = transaction.response(REQUEST_ID)
    assert response == ActionResponseContent("add", arguments, output, str(REQUEST_ID), error)
    assert response.success == (error is None)
    assert transaction.request() == ActionRequestContent("add", arguments)


WAYS = [
    pytest.param([Passed()] * 4 + [Succeeded(1), Passed(), Passed()], id="done"),
    pytest.param([Passed()] * 4 + [Failed("E", "m"), Passed(), Passed()], id="failed"),
    pytest.param([Passed()] * 4 + [Cancelled(), Passed(), Passed()], id="cancelled"),
    pytest.param([Denied(), Passed(), Passed()], id="denied"),
    pytest.param([Failed("PERMISSION_DENIED", "m"), Passed(), Passed()], id="not permitted"),
    pytest.param([Escalated(), Denied("no"), Passed(), Passed()], id="denied by a person"),
    pytest.param([Escalated(), *[Passed()] * 4, Succeeded(1), Passed(), Passed()], id="allowed by a person"),
    pytest.param([*BEFORE_INVOKING, HandedOver(), Succeeded(1), Passed(), Passed()], id="done by a client"),
    pytest.param([*BEFORE_INVOKING, HandedOver(), Failed("E", "m"), Passed(), Passed()], id="failed there"),
    pytest.param([*BEFORE_INVOKING, HandedOver(), Cancelled(), Passed(), Passed()], id="cancelled there"),
]


@pytest.mark.parametrize("outcomes", WAYS)
def test_the_end_is_recorded_once_and_then_told(outcomes: list[Outcome]) -> None:
    transaction = begun()
    seen = []
    for outcome in outcomes:
        seen.append(transaction.phase)
        transaction.advance(outcome)
    assert transaction.phase is Phase.DONE
    assert seen[-2:] == [Phase.RECORDING, Phase.TELLING]
    assert seen.count(Phase.RECORDING) == 1


def test_a_call_that_waits_is_pending_and_goes_on_where_it_was_left() -> None:
    transaction = begun()
    transaction.advance(Escalated())
    assert transaction.status is CallStatus.PENDING
    again = ActionTransaction.waiting(transaction.call, CALL_ID)
    assert (again.phase, again.status, again.requested()) == (Phase.WAITING, CallStatus.PENDING, [])
    again.edited(begun(arguments={"a": 5}).call)
    again.advance(Passed())
    assert (again.phase, again.status) == (Phase.RECORDING_INTENT, CallStatus.PROCESSING)
    assert again.request().arguments == {"a": 5}
    again.advance(Passed())
    with pytest.raises(IllegalStep):
        again.edited(begun().call)


def test_a_call_that_a_client_has_is_pending_and_goes_on_where_it_was_left() -> None:
    transaction = begun()
    for outcome in [*BEFORE_INVOKING, HandedOver()]:
        transaction.advance(outcome)
    assert transaction.status is CallStatus.PENDING
    again = ActionTransaction.handed_over(transaction.call, CALL_ID, 2)
    assert (again.phase, again.status, again.requested()) == (Phase.HANDED_OVER, CallStatus.PENDING, [])
    assert (again.intent_recorded, again.started, again.attempt) == (True, True, 2)
    again.advance(Failed("E", "m"))
    assert again.end(7) == [ToolError(ID, "E: m", 7, ID), ToolCompleted(ID, "error", ID)]
    again.advance(Passed())
    assert again.again().attempt == 3


def test_an_attempt_that_is_tried_again_does_not_end_its_call() -> None:
    first = ended(*BEFORE_INVOKING, Failed("E", "m"))
    assert first.end(7, last=False) == [ToolError(ID, "E: m", 7, ID)]
    second = first.again()
    assert (second.attempt, second.call_id, second.phase) == (2, CALL_ID, Phase.RECORDING_INTENT)
    assert second.requested() == []


@pytest.mark.parametrize("verdict", [Succeeded(1), Failed("E", "m")])
def test_a_cancellation_after_the_tool_does_not_undo_what_it_did(verdict: Outcome) -> None:
    transaction = ended(*BEFORE_INVOKING, verdict, Passed(), Cancelled())
    assert transaction.verdict == verdict


def test_the_tool_starts_only_after_the_intent_is_recorded() -> None:
    transaction = begun()
    states = []
    for outcome in [*BEFORE_INVOKING, Succeeded(1)]:
        states.append((transaction.phase, transaction.intent_recorded, transaction.started))
        transaction.advance(outcome)
    assert states == [
        (Phase.AUTHORIZING, False, False),
        (Phase.RECORDING_INTENT, False, False),
        (Phase.PRE_HOOKS, True, False),
        (Phase.REVALIDATING, True, False),
        (Phase.INVOKING, True, True),
    ]
    denied = ended(Denied())
    assert (denied.intent_recorded, denied.started) == (False, False)


def test_a_call_that_cannot_run_begins_at_its_end() -> None:
    transaction = begun(arguments=7)
    assert transaction.phase is Phase.RECORDING
    assert not transaction.intent_recorded


def test_the_proposal_is_announced_once() -> None:
    assert begun().requested() == [ToolRequested("add", ID, {"a": 1})]
    assert begun(arguments=7).requested() == [ToolRequested("add", ID, {})]
    assert begun(announced=True).requested() == []
    assert lost().requested() == []


def test_a_native_call_keeps_the_providers_id_in_its_events() -> None:
    transaction = ended(*BEFORE_INVOKING, Succeeded(1), provider="call_1")
    assert transaction.requested() == [ToolRequested("add", "call_1", {"a": 1})]
    assert transaction.start() == ToolStart("call_1", "add", ID)
    assert transaction.end(0) == [ToolResult("call_1", 1, 0, ID), ToolCompleted("call_1", "success", ID)]
    assert transaction.request().stored() == {
        "function": "add",
        "arguments": {"a": 1},
        "provider_call_id": "call_1",
    }


def test_a_cut_output_is_flagged_wherever_it_stands() -> None:
    transaction = ended(*BEFORE_INVOKING, Succeeded("x", truncated=True))
    for told in (transaction.result(), transaction.execution(), transaction.response(REQUEST_ID).wire()):
        assert told["output_truncated"] is True
    assert "output_truncated" not in ended(*BEFORE_INVOKING, Succeeded("x")).result()


def test_the_words_of_a_tool_are_made_storable_and_finite() -> None:
    transaction = ended(*BEFORE_INVOKING, Failed("E\0", "\ud800" + "x" * 2 * MAX_MESSAGE))
    fault = transaction.execution()["error"]
    assert fault["error"] == "E\N{REPLACEMENT CHARACTER}"
    assert fault["message"].startswith("\N{REPLACEMENT CHARACTER}x")
    assert len(fault["message"]) == MAX_MESSAGE


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
def test_what_the_table_does_not_have_changes_nothing(phase: Phase, outcome: Outcome) -> None:
    transaction = begun()
    transaction.phase = phase
    if (phase, type(outcome)) in TRANSITIONS:
        transaction.advance(outcome)
        assert transaction.phase is TRANSITIONS[phase, type(outcome)]
    else:
        with pytest.raises(IllegalStep):
            transaction.advance(outcome)
        assert transaction.phase is phase
        assert transaction.verdict is None


def test_nothing_leads_out_of_done_or_past_the_record() -> None:
    assert not [key for key in TRANSITIONS if key[0] is Phase.DONE]
    assert {key[0] for key, to in TRANSITIONS.items() if to is Phase.DONE} == {Phase.TELLING}
    assert {key for key in TRANSITIONS if key[0] is Phase.RECORDING} == {(Phase.RECORDING, Passed)}


@given(st.lists(st.sampled_from(OUTCOMES), max_size=12))
def test_a_call_that_is_done_has_its_verdict_and_was_recorded(outcomes: list[Outcome]) -> None:
    transaction = begun()
    for outcome in outcomes:
        if (transaction.phase, type(outcome)) in TRANSITIONS:
            transaction.advance(outcome)
    if transaction.phase in (Phase.RECORDING, Phase.TELLING, Phase.DONE):
        assert transaction.verdict is not None
        assert transaction.result()["status"] == transaction.status.value
    else:
        assert transaction.verdict is None
        with pytest.raises(IllegalStep):
            transaction.result()
    if isinstance(transaction.verdict, Succeeded | Lost):
        assert transaction.started
        assert transaction.intent_recorded
