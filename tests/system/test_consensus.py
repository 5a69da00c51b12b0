"""Consensus over HTTP: voters, their lifecycles, and the run that they share."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import chat_wire
from tests.support.heard import served
from tests.support.model_server import Attempt, ModelServer
from tests.support.polling import until
from tests.support.service import Service

pytestmark = pytest.mark.anyio

Script = list[dict[str, Any]]

SLOW: Script = [{"text": "a"}, {"wait_ms": 20_000}, {"text": "b"}, {"end": "stop"}]
DOWN: Script = [{"error": {"kind": "status", "status": 401}}]
BUSY: Script = [{"error": {"kind": "status", "status": 503}}]
AT_ONCE = {"retry": {"base_delay_ms": 0}}


ASKS = {"instruction": "x", "voters": ["m", "m"]}


def says(text: str) -> Script:
    return [{"text": text}, {"end": "stop"}]


def of(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event["meta"] for event in events if event["type"] == kind]


async def voters(service: Service, **scripts: Script) -> list[str]:
    """Models that answer so; their names."""
    return [await service.scripted(name, script) for name, script in scripts.items()]


def told(run: dict[str, Any]) -> list[str]:
    """What each voter gave, or the code of its error."""
    return [out.get("text") or out["error"]["code"] for out in run["result"]["outputs"]]


async def test_a_run_without_a_branch_is_a_run_like_others(service: Service) -> None:
    names = await voters(service, free_a=says("yes"), free_b=says("yes"))
    body = {"instruction": "go", "voters": names, "lifecycle": {"context": {"ticket": 7}}}
    frames = [f async for f in service.stream("POST", "/v1/consensus", json=body)]
    assert frames[-1].event == "stream.end"
    events = [frame.data for frame in frames[:-1]]
    run = await service.get(f"/v1/runs/{events[0]['run_id']}")
    assert (run["kind"], run["branch_id"], run["status"]) == ("consensus", None, "completed")
    assert await service.events(run["id"]) == events
    assert {event["branch_id"] for event in events} == {None}
    assert [event["context"] for event in events] == [{"ticket": 7}] * len(events)
    listed = (await service.get("/v1/runs?kind=consensus"))["data"]
    assert run in listed
    assert len({event["stream_id"] for event in events} - {None}) == 2


async def test_the_run_shows_who_answered_and_what_it_cost(service: Service) -> None:
    usage = {"usage": {"input_tokens": 3, "output_tokens": 2}}
    names = await voters(
        service, cost_a=says("no"), cost_b=[usage, *says("yes")], cost_c=[usage, *says("yes")]
    )
    run = await service.consensus(names)
    assert (run["model"], run["finish_reason"], run["attempts"]) == ("cost_b", "stop", 3)
    # One that told nothing is estimated: "go" and "no" are a token each.
    usage_of_all = run["usage"]
    assert (usage_of_all["input_tokens"], usage_of_all["output_tokens"]) == (3 + 3 + 1, 2 + 2 + 1)
    assert (usage_of_all["reported"], usage_of_all["estimated"]) == (True, True)
    merged = await service.consensus(names, strategy="unanimous", conflict="merge")
    assert (merged["model"], merged["result"]["result"]) == (None, "yes | no")


async def test_the_branch_is_shown_to_every_voter_and_goes_on_with_what_was_agreed(
    service: Service, model_server: ModelServer
) -> None:
    answer = [Attempt(chunks=chat_wire.text("yes"))]
    names = [await served(service, model_server, answer) for _ in range(2)]
    branch = await service.branch(system="Be brief.")
    for instruction in ("first", "second"):
        await service.consensus(names, instruction=instruction, branch_id=branch)
    for name in names:
        _, prompt = (r.body["messages"] for r in model_server.requests if r.model == name)
        assert [m["role"] for m in prompt] == ["system", "user", "assistant", "user"]
        assert [m["content"] for m in prompt] == ["Be brief.", "first", "yes", "second"]
    _, *said = await service.messages(branch)
    assert [(m["kind"], m["sender"]) for m in said] == [
        ("instruction", "user"),
        ("assistant_response", "assistant"),
    ] * 2
    assert said[-1]["content"]["text"] == "yes"
    run = await service.consensus(names, branch_id=branch, system="Be loud.")
    assert (await service.get(f"/v1/branches/{branch}/runs"))["data"][0] == run
    assert model_server.requests[-1].body["messages"][0]["content"] == "Be loud."


async def test_a_value_goes_into_the_conversation_as_one(service: Service) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    names = await voters(service, value_a=says('{"n": 1}'), value_b=says('{"n": 1}'))
    branch = await service.branch()
    run = await service.consensus(names, branch_id=branch, response_format=schema)
    assert run["result"]["result"] == {"n": 1}
    assert run["validation"] == {"ok": True, "kind": None, "errors": [], "corrections": []}
    content = (await service.messages(branch))[-1]["content"]
    assert (content["text"], content["value"]) == ('{"n":1}', {"n": 1})


async def test_what_found_no_agreement_adds_nothing_to_the_conversation(service: Service) -> None:
    names = await voters(service, differ_a=says("yes"), differ_b=says("no"))
    branch = await service.branch()
    run = await service.consensus(names, branch_id=branch, conflict="fail")
    assert (run["status"], run["error"]["code"]) == ("failed", "CONSENSUS_FAILED")
    assert [out["text"] for out in run["error"]["detail"]["outputs"]] == ["yes", "no"]
    assert await service.messages(branch) == []


async def test_a_merged_value_that_does_not_fit_the_format_is_not_the_result(service: Service) -> None:
    schema = {"type": "object", "properties": {"a": {}, "b": {}}, "maxProperties": 1}
    names = await voters(service, fit_a=says('{"a": 1}'), fit_b=says('{"b": 1}'))
    run = await service.consensus(names, conflict="merge", response_format=schema)
    assert (run["result"]["method"], run["result"]["result"]) == ("vote", {"a": 1})


async def test_on_a_busy_branch_it_waits_for_its_turn_or_is_refused(service: Service) -> None:
    slow, *names = await voters(service, busy_s=SLOW, busy_a=says("yes"), busy_b=says("yes"))
    branch = await service.branch(chat_model=slow)
    active = await service.started(branch)
    body = {"instruction": "go", "voters": names, "branch_id": branch}
    refused = await service.http.post("/v1/consensus", json={**body, "if_busy": "reject"})
    assert (refused.status_code, refused.json()["code"]) == (409, "branch_busy")
    queued = await service.http.post("/v1/consensus", json=body, headers={"Prefer": "respond-async"})
    assert (queued.status_code, queued.json()["status"]) == (202, "queued")
    await service.http.post(f"/v1/runs/{active['id']}/cancel")
    run = await service.ended(queued.json()["id"])
    assert (run["status"], run["result"]["result"]) == ("completed", "yes")
    assert [event["type"] for event in await service.events(run["id"])][:3] == [
        "RUN_QUEUED",
        "RUN_STARTED",
        "CONSENSUS_START",
    ]


async def test_an_idempotency_key_makes_one_run(service: Service) -> None:
    names = await voters(service, once_a=says("yes"), once_b=says("yes"))
    body, headers = {"instruction": "go", "voters": names}, {"Idempotency-Key": "ask-1"}
    first, again = [await service.http.post("/v1/consensus", json=body, headers=headers) for _ in range(2)]
    assert first.json() == again.json()
    assert again.headers["Idempotency-Replayed"] == "true"
    other = await service.http.post("/v1/consensus", json={**body, "instruction": "x"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


async def test_if_match_guards_the_branch_and_needs_one(service: Service) -> None:
    names = await voters(service, match_a=says("yes"), match_b=says("yes"))
    body: dict[str, Any] = {"instruction": "go", "voters": names}
    for more in ({}, {"branch_id": await service.branch()}):
        answer = await service.http.post("/v1/consensus", json={**body, **more}, headers={"If-Match": '"7"'})
        assert (answer.status_code, answer.json()["code"]) == (412, "precondition_failed")


async def test_cancelling_ends_every_voter(service: Service, model_server: ModelServer) -> None:
    hanging = [Attempt(chunks=[chat_wire.delta({"content": "a"})], then="hang")]
    names = [await served(service, model_server, hanging) for _ in range(3)]
    left = len(model_server.left_early)
    body = {"instruction": "go", "voters": names}
    started = await service.http.post("/v1/consensus", json=body, headers={"Prefer": "respond-async"})
    run_id, tokens = started.json()["id"], 0
    async for frame in service.stream("GET", f"/v1/runs/{run_id}/events"):
        tokens += frame.event == "TOKEN"
        if frame.event == "TOKEN" and tokens == 3:
            await service.http.post(f"/v1/runs/{run_id}/cancel")
    run, events = await service.get(f"/v1/runs/{run_id}"), await service.events(run_id)
    assert (run["status"], run["error"]["code"], run["result"]) == ("cancelled", "STREAM_ABORTED", None)
    assert len(of(events, "ABORT_COMPLETED")) == 3
    assert [meta["success"] for meta in of(events, "CONSENSUS_STREAM_END")] == [False] * 3
    assert [meta["status"] for meta in of(events, "CONSENSUS_END")] == ["failed"]
    assert events[-1]["type"] == "RUN_CANCELLED"
    await until(lambda: len(model_server.left_early) == left + 3)


async def test_the_calls_of_all_voters_together_are_bounded(service: Service) -> None:
    names = await voters(service, cap_a=BUSY, cap_b=BUSY, cap_c=BUSY)
    run = await service.consensus(names, lifecycle={**AT_ONCE, "max_model_calls": 7})
    events = await service.events(run["id"])
    assert run["error"]["code"] == "ALL_STREAMS_EXHAUSTED"
    assert run["attempts"] == len(of(events, "STREAM_INIT")) == 7
    assert "model_calls_exhausted" in {meta["reason"] for meta in of(events, "RETRY_GIVE_UP")}


async def test_voters_for_whom_no_call_is_left_are_not_asked(service: Service) -> None:
    names = await voters(service, few_a=says("yes"), few_b=says("yes"), few_c=says("yes"))
    run = await service.consensus(names, lifecycle={"max_model_calls": 2})
    assert told(run) == ["yes", "yes", "MODEL_CALLS_EXHAUSTED"]
    assert (run["result"]["status"], run["result"]["severity"]) == ("agreed", "moderate")


async def test_every_voter_has_the_lifecycle_of_its_model(service: Service) -> None:
    script = {"streams": [{"attempts": [BUSY, says("yes")]}]}
    await service.model("patient", provider="scripted", options=script, lifecycle=AT_ONCE)
    await service.model("hasty", provider="scripted", options=script, lifecycle={"retry": None})
    run = await service.consensus(["patient", "hasty"])
    assert told(run) == ["yes", "PROVIDER_ERROR"]


async def test_fallbacks_answer_for_a_voter_but_no_model_for_itself(service: Service) -> None:
    names = await voters(service, fall_a=DOWN, fall_b=says("yes"), fall_c=DOWN)
    run = await service.consensus(["fall_a", "fall_b"], lifecycle={"fallbacks": ["fall_c", "fall_b"]})
    outputs = run["result"]["outputs"]
    assert [(out["model"], out["text"]) for out in outputs] == [("fall_b", "yes")] * 2
    assert (run["fallback_index"], run["attempts"]) == (2, 4)
    alone = await service.consensus(names[::2], lifecycle={"fallbacks": names[::2]})
    causes = alone["error"]["detail"]["causes"]
    assert [(cause["index"], cause["model"], cause["code"]) for cause in causes] == [
        (0, "fall_c", "ALL_STREAMS_EXHAUSTED"),
        (1, "fall_a", "ALL_STREAMS_EXHAUSTED"),
    ]


async def test_a_voter_that_is_late_is_left_out_and_none_in_time_is_a_failure(service: Service) -> None:
    quick, *slow = await voters(service, time_a=says("yes"), time_b=SLOW, time_c=SLOW)
    run = await service.consensus([quick, slow[0]], lifecycle={"timeout": {"total_ms": 300}})
    assert told(run) == ["yes", "DEADLINE_EXCEEDED"]
    run = await service.consensus(slow, lifecycle={"timeout": {"total_ms": 300}})
    assert (run["status"], run["error"]["code"]) == ("failed", "DEADLINE_EXCEEDED")
    timed = {"timeout": {"inter_token_ms": 200}, "retry": None}
    run = await service.consensus([quick, slow[0]], lifecycle=timed)
    assert told(run) == ["yes", "INTER_TOKEN_TIMEOUT"]


async def test_a_model_may_vote_twice_each_time_in_a_stream_of_its_own(service: Service) -> None:
    streams = [{"attempts": [says(text)]} for text in ("one", "two", "three")]
    await service.model("twice", provider="scripted", options={"streams": streams})
    down = await service.scripted("twice_down", DOWN)
    run = await service.consensus(["twice", down, "twice"], lifecycle={"fallbacks": ["twice"]})
    assert told(run) == ["one", "three", "two"]


async def test_a_voter_that_only_asks_for_tools_has_no_output(service: Service) -> None:
    call: Script = [{"tool_call": {"index": 0, "id": "c", "name": "add"}}, {"end": "tool_calls"}]
    names = await voters(service, tool_a=call, tool_b=says("yes"))
    assert told(await service.consensus(names)) == ["EMPTY_OUTPUT", "yes"]


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({}, ["/instruction", "/voters"]),
        ({"instruction": " ", "voters": ["m"]}, ["/instruction", "/voters"]),
        ({"instruction": "x", "voters": ["m"] * 17}, ["/voters"]),
        ({"instruction": "x", "voters": ["m", {"model": "m", "wait": 1}]}, ["/voters/1/wait"]),
        ({"instruction": "x", "voters": ["m", {"model": "m", "weight": 0}]}, ["/voters/1/weight"]),
        ({"instruction": "x", "voters": ["m", 5]}, ["/voters/1"]),
        ({**ASKS, "votes": 1}, ["/votes"]),
        ({**ASKS, "threshold": 1.1}, ["/threshold"]),
        ({**ASKS, "strategy": "plurality"}, ["/strategy"]),
        ({**ASKS, "if_busy": "wait"}, ["/if_busy"]),
        ({**ASKS, "branch_id": "b"}, ["/branch_id"]),
        ({"instruction": "x", "voters": ["m", "nobody"]}, ["/voters/1"]),
        ({"instruction": "x", "voters": ["m", {"model": "nobody"}]}, ["/voters/1/model"]),
        (
            {**ASKS, "lifecycle": {"fallbacks": ["nobody"]}},
            ["/lifecycle/fallbacks/0"],
        ),
        (
            {**ASKS, "response_format": {"type": 5}},
            ["/response_format/type"],
        ),
    ],
)
async def test_what_is_wrong_with_a_request_is_pointed_at(
    service: Service, body: dict[str, Any], pointers: list[str]
) -> None:
    await service.scripted("m", says("yes"))
    answer = await service.http.post("/v1/consensus", json=body)
    assert answer.status_code == 422, answer.text
    assert [error["pointer"] for error in answer.json()["errors"]] == pointers


async def test_a_branch_that_is_not_there_is_not_found(service: Service) -> None:
    names = await voters(service, gone_a=says("yes"), gone_b=says("yes"))
    body = {"instruction": "x", "voters": names, "branch_id": "019a0000-0000-7000-8000-000000000003"}
    answer = await service.http.post("/v1/consensus", json=body)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
