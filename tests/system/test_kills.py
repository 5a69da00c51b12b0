"""A process is killed in every phase of a run: the run goes on and ends, and nothing of it is told twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.database import migrated
from tests.support.kills import (
    FOREVER,
    SILENCE,
    Outcome,
    Phase,
    Stage,
    approved,
    assert_one_history,
    gives,
    waits,
)
from tests.support.model_server import Attempt
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
GOES_ON: Json = {"continue_from_last_good_token": {"checkpoint_interval": 2}}
NETWORK: Json = {"error": {"kind": "network", "type": "connection_reset"}}
END: Json = {"end": "stop"}
ANSWER: list[Json] = [{"text": "All "}, {"text": "of it."}, END]
SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
ESCALATE: Json = {"rules": [{"when": "true", "effect": "escalate"}]}
SLOWLY: Json = {"retry": {"base_delay_ms": 4_000, "strategy": "fixed"}}


def asks(*tools: str) -> list[Json]:
    """A model asks for tools, which are called with their place as `n`."""
    calls = [
        {"tool_call": {"index": at, "id": f"c{at}", "name": tool, "arguments": f'{{"n": {at}}}'}}
        for at, tool in enumerate(tools)
    ]
    return [{"text": "Look. "}, *calls, {"end": "tool_calls"}]


def acts(*tools: str, **more: Any) -> Json:
    return {"requests": [{"function": tool, "arguments": {"n": 1}} for tool in tools], **more}


RECOVERY = ["RUN_RECOVERED", "RETRY_START", "RETRY_ATTEMPT", "ATTEMPT_START"]
OPENS = ["STREAM_INIT", "ADAPTER_WRAP_START", "ADAPTER_DETECTED", "STREAM_READY"]
ACTIONS: Json = {"instruction": "go", "actions": True}


def opening(o: Outcome) -> None:
    assert o.after_recovery[:8] == RECOVERY + OPENS
    assert o.of("RUN_RECOVERED") == [{"epoch": 2, "cause": "lease_expired"}]
    assert o.of("RETRY_START") == [{"maxAttempts": 3, "category": "recovery"}]
    assert o.of("RETRY_ATTEMPT") == [{"attempt": 1, "reason": "process_lost", "delayMs": 0, "maxAttempts": 3}]
    started = {"attempt": 2, "isRetry": True, "isFallback": False, "contentOffset": 0}
    assert o.of("ATTEMPT_START") == [started]
    fired = [callback for event in o.events for callback in event["callbacks"]]
    assert {"name": "on_retry", "args": [1, "process_lost"]} in fired
    assert {"name": "on_start", "args": [2, True, False]} in fired
    assert [attempt["outcome"] for attempt in o.attempts] == ["lost", "completed"]
    assert o.run["result"] == "All of it."


def afresh(o: Outcome) -> None:
    assert o.of("ATTEMPT_START")[0]["contentOffset"] == 0
    assert "CONTINUATION_START" not in o.types
    assert o.run["result"] == "All of it."


def continued(o: Outcome) -> None:
    assert o.after_recovery[:6] == [*RECOVERY, "CONTINUATION_START", "RESUME_START"]
    assert o.of("ATTEMPT_START")[0]["contentOffset"] == len("One, two, ")
    assert o.of("CONTINUATION_START")[0]["checkpoint"] == "One, two, "
    assert o.run["result"] == "One, two, three."
    first, second = o.asked["continued"]
    assert "One, two, " not in str(first.body)
    assert "One, two, " in str(second.body)


def on_the_fallback(o: Outcome) -> None:
    assert o.of("ATTEMPT_START")[0] == {
        "attempt": 2,
        "isRetry": True,
        "isFallback": True,
        "contentOffset": 0,
    }
    assert (len(o.asked["on_the_fallback"]), len(o.asked["second"])) == (1, 2)
    assert (o.run["fallback_index"], o.run["model"]) == (1, "second")


def backed_off(o: Outcome) -> None:
    assert "recovery" not in {meta["category"] for meta in o.of("RETRY_START")}
    assert len(o.of("RETRY_ATTEMPT")) == len(o.of("ATTEMPT_START")) == 1
    at = {event["type"]: event["ts"] for event in o.events}
    assert at["ATTEMPT_START"] >= at["RETRY_ATTEMPT"] + 4_000
    assert [attempt["outcome"] for attempt in o.attempts] == ["failed", "completed"]


def not_asked_again(o: Outcome) -> None:
    assert len(o.asked[o.run["model"]]) == 1
    assert not any(event["attempt"] == 2 for event in o.events)


def gated(o: Outcome) -> None:
    not_asked_again(o)
    assert o.shape == ["instruction", "assistant_response", "action_request", "action_response"]
    assert [call["execution"]["status"] for call in o.calls] == ["completed"]
    assert len(o.asked["gated_tool"]) == 1
    assert o.run["finish_reason"] == "tool_calls"


def mended(o: Outcome) -> None:
    assert (len(o.asked["mended"]), len(o.asked["mender"])) == (1, 2)
    assert o.run["result"] == {"a": 1}
    assert o.of("RESULT_VALIDATED") == [{"ok": True, "kind": "schema", "errors": []}]
    assert [meta["purpose"] for meta in o.of("SESSION_START")] == ["main", "repair"]
    assert o.run["validation"]["corrections"] == ["repaired"]


def unsafe(o: Outcome) -> None:
    not_asked_again(o)
    assert [call["status"] for call in o.calls] == ["aborted"]
    assert o.calls[0]["execution"]["error"]["error"] == "OUTCOME_UNKNOWN"
    assert len(o.asked["unsafe_tool"]) == 1


def safe(o: Outcome) -> None:
    not_asked_again(o)
    assert [(call["attempt"], call["status"]) for call in o.calls] == [(1, "aborted"), (2, "completed")]
    assert len(o.asked["safe_tool"]) == 2
    assert o.types.count("TOOL_COMPLETED") == 1
    assert o.run["result"]["action_responses"][0]["output"] == {"b": 2}


def second_of_two(o: Outcome) -> None:
    assert [call["status"] for call in o.calls] == ["completed", "aborted"]
    assert (len(o.asked["first_tool"]), len(o.asked["second_tool"])) == (1, 1)
    assert o.run["result"][0]["output"] == {"b": 1}


def act_again(o: Outcome) -> None:
    assert [(call["attempt"], call["status"]) for call in o.calls] == [(1, "aborted"), (2, "completed")]
    assert [result["status"] for result in o.run["result"]] == ["completed"]


def waited(o: Outcome) -> None:
    assert "RUN_RECOVERED" not in o.types
    assert [call["status"] for call in o.calls] == ["completed"]


def resumed_and_lost(o: Outcome) -> None:
    assert [call["status"] for call in o.calls] == ["aborted"]
    assert o.types.count("APPROVAL_DECIDED") == o.types.count("RUN_RECOVERED") == 1


def decided_and_lost(o: Outcome) -> None:
    assert [call["status"] for call in o.calls] == ["completed"]
    assert o.types.count("APPROVAL_DECIDED") == o.types.count("RUN_RECOVERED") == 1
    assert len(o.asked["gate-decided_and_lost"]) == 3


def voted(o: Outcome) -> None:
    assert (len(o.asked["quick"]), len(o.asked["slow"])) == (1, 2)
    assert o.run["result"]["result"] == "yes"
    for kind in ("CONSENSUS_START", "CONSENSUS_ANALYSIS", "CONSENSUS_END"):
        assert o.types.count(kind) == 1
    assert sorted(meta["index"] for meta in o.of("CONSENSUS_STREAM_START")) == [0, 1]
    assert sorted(meta["index"] for meta in o.of("CONSENSUS_STREAM_END")) == [0, 1]


def cancelled_while_talking(o: Outcome) -> None:
    assert o.types[-1] == "RUN_CANCELLED"
    assert o.after_recovery[:2] == ["RUN_RECOVERED", "ABORT_REQUESTED"]
    assert [attempt["outcome"] for attempt in o.attempts] == ["lost"]
    assert len(o.asked["cancelled_while_talking"]) == 1
    assert o.shape == []


def cancelled_while_acting(o: Outcome) -> None:
    assert sorted(call["status"] for call in o.calls) == ["aborted", "cancelled"]
    assert (len(o.asked["safe_but_unwanted"]), len(o.asked.get("never_begun", ()))) == (1, 0)
    assert [meta["toolName"] for meta in o.of("TOOL_START")] == ["safe_but_unwanted"]


VOTE = [{"text": "yes"}, END]
PHASES: Mapping[str, tuple[Phase, Callable[[Outcome], None]]] = {
    phase.name: (phase, check)
    for phase, check in (
        (Phase("accepted", [ANSWER, ANSWER]), lambda o: None),
        (Phase("opening", [[{"open_wait_ms": 600_000}], ANSWER], until=("opening", 1)), opening),
        (Phase("afresh", [[{"text": "All"}, FOREVER], ANSWER], until="TOKEN"), afresh),
        (
            Phase(
                "continued",
                [[{"text": "One, "}, {"text": "two, "}, FOREVER], [{"text": "three."}, END]],
                GOES_ON,
                until="CHECKPOINT_SAVED",
            ),
            continued,
        ),
        (
            Phase(
                "on_the_fallback",
                [[{"text": "x"}, NETWORK]],
                {"retry": None, "fallbacks": ["second"]},
                others={"second": [[{"text": "y"}, FOREVER], ANSWER]},
                until=("second", 1),
            ),
            on_the_fallback,
        ),
        (Phase("backed_off", [[{"text": "x"}, NETWORK], ANSWER], SLOWLY, until="RETRY_ATTEMPT"), backed_off),
        (
            Phase(
                "gated",
                [asks("gated_tool")],
                body=ACTIONS,
                tools={"gated_tool": [gives(b"{}")]},
                gate=[SILENCE, gives(b'{"effect": "allow"}')],
                until=("gate", 1),
            ),
            gated,
        ),
        (
            Phase(
                "mended",
                [[{"text": '{"a": "x"}'}, END]],
                body={"instruction": "go", "response_format": SCHEMA, "parse_model": "mender"},
                others={"mender": [[{"text": '{"a'}, FOREVER], [{"text": '{"a": 1}'}, END]]},
                until=("mender", 1),
            ),
            mended,
        ),
        (
            Phase(
                "unsafe",
                [asks("unsafe_tool")],
                body=ACTIONS,
                tools={"unsafe_tool": [SILENCE, gives(b"{}")]},
                until=("unsafe_tool", 1),
            ),
            unsafe,
        ),
        (
            Phase(
                "safe",
                [asks("safe_tool")],
                body=ACTIONS,
                tools={"safe_tool": [SILENCE, gives(b'{"b": 2}')]},
                until=("safe_tool", 1),
            ),
            safe,
        ),
        (
            Phase(
                "second_of_two",
                kind="act",
                body=acts("first_tool", "second_tool", strategy="sequential"),
                tools={"first_tool": [gives(b'{"b": 1}')], "second_tool": [SILENCE, gives(b"{}")]},
                until=("second_tool", 1),
            ),
            second_of_two,
        ),
        (
            Phase(
                "act_again",
                kind="act",
                body=acts("safe_act"),
                tools={"safe_act": [SILENCE, gives(b"{}")]},
                until=("safe_act", 1),
            ),
            act_again,
        ),
        (
            Phase(
                "waited",
                kind="act",
                body=acts("allowed"),
                branch={"gate": ESCALATE},
                tools={"allowed": [gives(b"{}")]},
                until="RUN_WAITING",
                last=waits,
                then=approved,
            ),
            waited,
        ),
        (
            Phase(
                "resumed_and_lost",
                kind="act",
                body=acts("allowed_and_lost"),
                branch={"gate": ESCALATE},
                tools={"allowed_and_lost": [SILENCE, gives(b"{}")]},
                until="RUN_WAITING",
                last=approved,
                finally_=("allowed_and_lost", 1),
            ),
            resumed_and_lost,
        ),
        (
            Phase(
                "decided_and_lost",
                kind="act",
                body=acts("judged_again"),
                tools={"judged_again": [gives(b"{}")]},
                gate=[gives(b'{"effect": "escalate"}'), SILENCE, gives(b'{"effect": "allow"}')],
                until="RUN_WAITING",
                last=approved,
                finally_=("gate", 2),
            ),
            decided_and_lost,
        ),
        (
            Phase(
                "voted",
                kind="consensus",
                body={"instruction": "go", "voters": ["quick", "slow"], "strategy": "unanimous"},
                others={"quick": [VOTE], "slow": [[{"text": "y"}, FOREVER], VOTE]},
                until="CONSENSUS_STREAM_END",
            ),
            voted,
        ),
        (
            Phase(
                "cancelled_while_talking",
                [[{"text": "All"}, FOREVER], ANSWER],
                until="TOKEN",
                cancelled=True,
            ),
            cancelled_while_talking,
        ),
        (
            Phase(
                "cancelled_while_acting",
                kind="act",
                body=acts("safe_but_unwanted", "never_begun", strategy="sequential"),
                tools={"safe_but_unwanted": [SILENCE, gives(b"{}")], "never_begun": [gives(b"{}")]},
                until=("safe_but_unwanted", 1),
                cancelled=True,
            ),
            cancelled_while_acting,
        ),
    )
}


@pytest.fixture(scope="module")
async def outcomes(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Mapping[str, Outcome]]:
    """All runs at once, in one process that is killed when each of them has reached its phase."""
    data: Path = tmp_path_factory.mktemp("data")
    async with migrated(postgres) as url:
        yield await Stage([phase for phase, _ in PHASES.values()]).play(url, data)


@pytest.mark.parametrize("name", PHASES)
async def test_a_run_outlives_its_process(outcomes: Mapping[str, Outcome], name: str) -> None:
    outcome = outcomes[name]
    assert_one_history(outcome)
    wanted = "cancelled" if name.startswith("cancelled") else "completed"
    assert outcome.run["status"] == wanted, outcome.run["error"]
    PHASES[name][1](outcome)


def scattered(at: int) -> Phase:
    """A run that is slower than the one before it."""
    name, tool = f"scattered{at}", f"tool{at}"
    pause: Json = {"wait_ms": 15 * at}
    script = [pause, {"text": "Look"}, pause, *asks(tool)]
    late = Attempt([b"{}"], content_type="application/json", framing="length", open_wait_s=0.01 * at)
    return Phase(name, [script], GOES_ON, body=ACTIONS, tools={tool: [late]})


async def test_runs_outlive_a_kill_at_whatever_moment_it_hits_them(database_url: str, tmp_path: Path) -> None:
    first = Phase("measure", [ANSWER], until="RUN_COMPLETED")
    outcomes = await Stage([first, *map(scattered, range(24))]).play(database_url, tmp_path)
    for outcome in outcomes.values():
        assert_one_history(outcome)
        assert outcome.run["status"] == "completed", outcome.run["error"]
    for at in range(24):
        outcome = outcomes[f"scattered{at}"]
        assert len(outcome.asked[f"tool{at}"]) <= 1
        assert outcome.shape == ["instruction", "assistant_response", "action_request", "action_response"]
        assert [call["status"] for call in outcome.calls] in (["completed"], ["aborted"])
    assert any("RUN_RECOVERED" in outcome.types for outcome in outcomes.values())
