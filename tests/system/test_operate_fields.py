"""Every field of an operate request does what it says, as a client and the model's server see it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import chat_wire
from tests.support.heard import served
from tests.support.model_server import Attempt, ModelServer
from tests.support.service import Service
from tests.support.tools import CALLS

pytestmark = pytest.mark.anyio

IN_PROMPT = {"native_tools": False, "native_schema": False}
"""A profile of an endpoint that takes neither tools nor schemas of its own."""


def saying(answer: Any) -> Attempt:
    return Attempt(chat_wire.text(answer if isinstance(answer, str) else json.dumps(answer)))


def notes(*texts: str, **more: Any) -> dict[str, Any]:
    """An answer that asks for one `note` for each text."""
    calls = [{"function": "note", "arguments": {"text": text}} for text in texts]
    return {**more, "action_required": True, "action_requests": calls}


@pytest.fixture(autouse=True)
def _no_calls_yet() -> None:
    CALLS.clear()


async def refused(service: Service, branch: str, **body: Any) -> dict[str, Any]:
    """The problem that a request is answered with."""
    answer = await service.http.post(f"/v1/branches/{branch}/operate", json={"instruction": "go", **body})
    assert answer.status_code == 422, answer.text
    problem: dict[str, Any] = answer.json()
    return problem


def pointers(problem: dict[str, Any]) -> list[str]:
    return [fault["pointer"] for fault in problem["errors"]]


async def test_response_fields_give_an_object_and_check_none_of_it(
    service: Service, model_server: ModelServer
) -> None:
    model = await served(service, model_server, [saying({"title": 7, "more": None})], options=IN_PROMPT)
    branch = await service.branch(chat_model=model)
    run = await service.operate(branch, response_fields={"title": "string", "pages": 320})
    assert run["result"] == {"title": 7, "more": None}
    assert run["validation"]["ok"] is True
    (message,) = model_server.requests[-1].body["messages"]
    shown = json.loads(message["content"].splitlines()[-1])
    assert shown["properties"] == {
        "title": {"type": "string"},
        "pages": {"type": "integer", "examples": [320]},
    }


@pytest.mark.parametrize(("policy", "result"), [("return_value", [1]), ("return_none", None)])
async def test_response_fields_refuse_what_is_no_object(service: Service, policy: str, result: Any) -> None:
    branch = await service.branch(
        chat_model=await service.scripted("list", [{"text": "[1]"}, {"end": "stop"}])
    )
    run = await service.operate(branch, response_fields={"a": 1}, handle_validation=policy)
    assert (run["validation"]["ok"], run["validation"]["kind"]) == (False, "schema")
    assert run["result"] == result


async def test_further_fields_are_asked_for_and_checked(service: Service, model_server: ModelServer) -> None:
    answers = [{"answer": 1, "risk": "low"}, {"answer": 1, "risk": "none"}]
    model = await served(service, model_server, [saying(answer) for answer in answers])
    branch = await service.branch(chat_model=model)
    body = {
        "response_format": {"type": "object", "properties": {"answer": {"type": "integer"}}},
        "field_models": [
            {"name": "risk", "schema": {"enum": ["low", "high"]}},
            {"name": "sources", "schema": {"type": "string"}, "nullable": True, "listable": True},
        ],
    }
    good = await service.operate(branch, **body)
    assert (good["result"], good["validation"]["ok"]) == (answers[0], True)
    bad = await service.operate(branch, **body)
    assert bad["validation"]["ok"] is False
    assert bad["validation"]["errors"][0].startswith("/risk: ")
    native = model_server.requests[-1].body["response_format"]["json_schema"]["schema"]
    assert list(native["properties"]) == ["answer", "risk", "sources"]
    assert native["required"] == ["risk", "sources"]


BAD_FIELDS: list[tuple[dict[str, Any], str, list[str]]] = [
    (
        {"field_models": [{"name": "x", "schema": {"type": "y"}}]},
        "invalid_schema",
        ["/field_models/0/schema/type"],
    ),
    (
        {"field_models": [{"name": "x", "schema": {}}, {"name": "x", "schema": {}}]},
        "field_conflict",
        ["/field_models/1/name"],
    ),
    (
        {"field_models": [{"name": "reason", "schema": {}}], "reason": True},
        "field_conflict",
        ["/field_models/0/name"],
    ),
    ({"field_models": [{"name": "", "schema": {}}]}, "invalid_request", ["/field_models/0/name"]),
    ({"response_fields": {"reason": 1}, "reason": True}, "field_conflict", ["/response_fields/reason"]),
    ({"response_fields": {"a": 1}, "response_format": {}}, "invalid_request", ["/response_fields"]),
    ({"tool_schemas": [{"name": "x"}], "actions": True}, "invalid_request", ["/tool_schemas"]),
    ({"progression": ["x"]}, "invalid_request", ["/progression/0"]),
    ({"progression": [], "clear_messages": True}, "invalid_request", ["/progression"]),
    ({"middle": "mine"}, "unsupported_option", ["/middle"]),
    ({"middle": "communicate", "stream_persist": True}, "invalid_request", ["/middle"]),
]


@pytest.mark.parametrize(("body", "code", "where"), BAD_FIELDS)
async def test_what_cannot_be_done_is_refused_before_the_model_is_asked(
    service: Service, model_server: ModelServer, body: dict[str, Any], code: str, where: list[str]
) -> None:
    branch = await service.branch(chat_model=await served(service, model_server, [saying("x")]))
    before = len(model_server.requests)
    problem = await refused(service, branch, **body)
    assert (problem["code"], pointers(problem)) == (code, where)
    assert len(model_server.requests) == before
    assert (await service.get(f"/v1/branches/{branch}/runs"))["data"] == []


async def test_told_tools_are_shown_and_never_run(service: Service, model_server: ModelServer) -> None:
    call = chat_wire.delta(
        {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "note", "arguments": '{"text": "x"}'}}]}
    )
    chunks = [chat_wire.delta({"content": "done"}), call, chat_wire.delta({}, "tool_calls"), chat_wire.DONE]
    branch = await service.branch(chat_model=await served(service, model_server, [Attempt(chunks)]))
    told = {"name": "note", "description": "Notes.", "anything": [1]}
    run = await service.operate(branch, tool_schemas=[told])
    assert (run["result"], run["function_calls"], CALLS) == ("done", [], [])
    asked = model_server.requests[-1].body
    assert "tools" not in asked
    assert json.loads(asked["messages"][-1]["content"].splitlines()[-1]) == [told]


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("strategy", ["concurrent", "sequential"])
@pytest.mark.parametrize("dedupe", [True, False])
async def test_requests_for_the_same_are_carried_out_once_if_asked(
    service: Service, native: bool, strategy: str, dedupe: bool
) -> None:
    texts = ["a", "b", "a", "a"]
    if native:
        calls = [
            {
                "tool_call": {
                    "index": n,
                    "id": f"c{n}",
                    "name": "note",
                    "arguments": json.dumps({"text": text}),
                }
            }
            for n, text in enumerate(texts)
        ]
        steps = [*calls, {"end": "tool_calls"}]
    else:
        steps = [{"text": json.dumps(notes(*texts, value=None))}, {"end": "stop"}]
    name = f"twice-{native}-{strategy}-{dedupe}"
    await service.model(
        name, provider="scripted", options={"native_tools": native, "streams": [{"attempts": [steps]}]}
    )
    branch = await service.branch(chat_model=name)
    run = await service.operate(branch, actions=True, action_strategy=strategy, dedupe_actions=dedupe)
    assert sorted(CALLS) == (["a", "b"] if dedupe else ["a", "a", "a", "b"])
    result = run["result"]
    assert [r["arguments"] for r in result["action_requests"]] == [{"text": text} for text in texts]
    assert [r["output"] for r in result["action_responses"]] == texts
    assert len({r["call_id"] for r in result["action_responses"]}) == (2 if dedupe else 4)
    assert len(run["function_calls"]) == (2 if dedupe else 4)
    kinds = [message["kind"] for message in await service.messages(branch)]
    assert kinds.count("action_request") == kinds.count("action_response") == (2 if dedupe else 4)
    following = await service.operate(
        branch, chat_model=await service.scripted(f"after-{name}", [{"text": "ok"}, {"end": "stop"}])
    )
    assert following["result"] == "ok"


async def test_image_detail_and_token_usage_reach_the_model(
    service: Service, model_server: ModelServer
) -> None:
    branch = await service.branch(chat_model=await served(service, model_server, [saying("seen")]))
    url = "https://pictures.test/1"
    await service.operate(branch, images=[url], image_detail="high", include_token_usage_to_model=True)
    (message,) = model_server.requests[-1].body["messages"]
    text, image = message["content"]
    assert image == {"type": "image_url", "image_url": {"url": url, "detail": "high"}}
    assert "about 1 tokens" in text["text"]
    await service.operate(branch)
    first = model_server.requests[-1].body["messages"][0]
    assert first["content"] == [{"type": "text", "text": "go"}, image], "the next turn shows it as it was"
    (stored, *_) = await service.messages(branch)
    assert stored["content"]["image_detail"] == "high"


async def test_sender_and_recipient_stand_on_the_messages(service: Service) -> None:
    branch = await service.branch(chat_model=await service.scripted("hi", [{"text": "hi"}, {"end": "stop"}]))
    await service.operate(branch)
    await service.operate(branch, sender="ann", recipient="team")
    ends = [(m["kind"], m["sender"], m["recipient"]) for m in await service.messages(branch)]
    assert ends == [
        ("instruction", "user", branch),
        ("assistant_response", "assistant", "user"),
        ("instruction", "ann", "team"),
        ("assistant_response", "assistant", "ann"),
    ]


async def conversation(service: Service, model_server: ModelServer, turns: int) -> tuple[str, list[str]]:
    """A branch with so many turns and a system text, and the ids of what was said in them."""
    branch = await service.branch(
        chat_model=await served(service, model_server, [saying(f"a{n}") for n in range(turns)]), system="S"
    )
    for turn in range(turns):
        await service.operate(branch, instruction=f"i{turn}")
    return branch, [m["id"] for m in await service.messages(branch) if m["kind"] != "system"]


def shown(model_server: ModelServer) -> list[str]:
    """What the last prompt said."""
    return [message["content"] for message in model_server.requests[-1].body["messages"]]


async def test_a_progression_is_what_the_model_is_shown(service: Service, model_server: ModelServer) -> None:
    branch, ids = await conversation(service, model_server, 3)
    await service.operate(branch, progression=[ids[0], ids[1], ids[5]])
    assert shown(model_server) == ["S", "i0", "a0", "a2", "go"]
    await service.operate(branch, progression=[])
    assert shown(model_server) == ["S", "go"]
    await service.operate(branch)
    assert shown(model_server) == ["S", "i0", "a0", "i1", "a1", "i2", "a2", "go", "a2", "go", "a2", "go"]


async def test_a_progression_of_another_branch_is_refused(
    service: Service, model_server: ModelServer
) -> None:
    branch, ids = await conversation(service, model_server, 1)
    _, others = await conversation(service, model_server, 1)
    problem = await refused(service, branch, progression=[ids[0], others[0]])
    assert pointers(problem) == ["/progression/1"]
    problem = await refused(service, branch, progression=[ids[1], ids[0]])
    assert pointers(problem) == ["/progression/1"]


async def test_half_a_tool_call_is_not_shown(service: Service) -> None:
    branch = await service.branch(chat_model=await service.scripted("hi", [{"text": "hi"}, {"end": "stop"}]))
    await service.act(branch, {"function": "add", "arguments": {"a": 1, "b": 2}})
    asked, answered = [message["id"] for message in await service.messages(branch)]
    problem = await refused(service, branch, progression=[asked])
    assert pointers(problem) == ["/progression/0"]
    assert (await service.operate(branch, progression=[asked, answered]))["result"] == "hi"


async def test_a_cleared_conversation_begins_anew_and_is_kept(
    service: Service, model_server: ModelServer
) -> None:
    branch, ids = await conversation(service, model_server, 2)
    await service.operate(branch, instruction="anew", clear_messages=True)
    assert shown(model_server) == ["S", "anew"]
    await service.operate(branch, instruction="on")
    assert shown(model_server) == ["S", "anew", "a1", "on"]
    system, *messages = await service.messages(branch)
    assert system["content"] == {"text": "S"}
    assert [message["id"] for message in messages][:4] == ids
    assert [m["content"].get("begins") for m in messages] == [None] * 4 + [True] + [None] * 3
    # What lies before can still be named, and a fork begins where its parent does.
    await service.operate(branch, progression=ids[:2])
    assert shown(model_server) == ["S", "i0", "a0", "go"]
    fork = (await service.http.post(f"/v1/branches/{branch}/fork", json={})).json()["id"]
    await service.operate(fork, instruction="fork")
    assert shown(model_server)[:3] == ["S", "anew", "a1"]


async def test_a_run_that_fails_clears_nothing(service: Service, model_server: ModelServer) -> None:
    branch, _ = await conversation(service, model_server, 1)
    failing = await served(
        service, model_server, [Attempt([b"{}"], 400, "application/json", framing="length")]
    )
    run = await service.operate(branch, clear_messages=True, chat_model=failing)
    assert run["status"] == "failed"
    await service.operate(branch)
    assert shown(model_server) == ["S", "i0", "a0", "go"]


async def test_consensus_begins_where_the_conversation_does(
    service: Service, model_server: ModelServer
) -> None:
    branch, _ = await conversation(service, model_server, 1)
    await service.operate(branch, instruction="anew", clear_messages=True)
    model = await served(service, model_server, [saying("yes")])
    await service.consensus([{"model": model}] * 2, branch_id=branch, instruction="agree?")
    assert shown(model_server) == ["S", "anew", "a0", "agree?"]


STRATEGY = {
    "type": "object",
    "properties": {"action_strategy": {"enum": ["concurrent", "sequential"]}},
    "required": ["action_strategy"],
}


@pytest.mark.parametrize(
    ("answered", "asked", "together"),
    [
        ("sequential", "concurrent", False),
        ("sequential", None, False),
        ("concurrent", "concurrent", True),
        ("concurrent", "sequential", False),
    ],
)
async def test_an_answer_may_only_narrow_the_strategy(
    service: Service, answered: str, asked: str | None, together: bool
) -> None:
    calls = [{"function": "note", "arguments": {"text": text}} for text in "ab"]
    answer = {"action_strategy": answered, "action_required": True, "action_requests": calls}
    name = await service.scripted(f"{answered}-{asked}", [{"text": json.dumps(answer)}, {"end": "stop"}])
    branch = await service.branch(chat_model=name)
    run = await service.operate(branch, response_format=STRATEGY, actions=True, action_strategy=asked)
    assert CALLS == ["a", "b"]
    kinds = [m["kind"] for m in await service.messages(branch) if m["kind"].startswith("action")]
    # Concurrent calls are all proposed before the first of them ends.
    assert (kinds[:2] == ["action_request"] * 2) is together
    assert [r["output"] for r in run["result"]["action_responses"]] == ["a", "b"]


FABRICATED = [
    {"function": "x", "arguments": {}, "output": 1, "error": None, "call_id": "x", "status": "completed"}
]


@pytest.mark.parametrize("tools", [["note"], []])
@pytest.mark.parametrize("schema", [True, False])
async def test_made_up_responses_never_reach_the_client(
    service: Service, tools: list[str], schema: bool
) -> None:
    answer = {"a": 1, "action_responses": FABRICATED}
    if tools:
        answer |= {"action_required": False, "action_requests": []}
    name = f"made-up-{len(tools)}-{schema}"
    steps = [{"text": json.dumps(answer)}, {"end": "stop"}]
    await service.model(
        name, provider="scripted", options={"native_schema": schema, "streams": [{"attempts": [steps]}]}
    )
    branch = await service.branch(chat_model=name)
    run = await service.operate(branch, actions=True, tools=tools, response_format={"type": "object"})
    del answer["action_responses"]
    assert run["result"] == answer
    assert (await service.messages(branch))[-1]["content"]["value"] == answer


async def test_made_up_responses_beside_native_calls_are_a_text(service: Service) -> None:
    said = json.dumps({"action_responses": FABRICATED})
    call = {"index": 0, "id": "c", "name": "note", "arguments": '{"text": "x"}'}
    name = await service.scripted("native", [{"text": said}, {"tool_call": call}, {"end": "tool_calls"}])
    run = await service.operate(await service.branch(chat_model=name), actions=True)
    assert run["result"]["value"] == said
    assert [r["output"] for r in run["result"]["action_responses"]] == ["x"]
