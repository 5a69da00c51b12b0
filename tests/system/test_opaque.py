"""What a provider wants back of its answers, over turns, forks, other models and its own interruptions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from tests.support import bedrock_wire, case_tools, cases, gemini_wire, messages_wire
from tests.support.database import migrated
from tests.support.heard import ONCE, Heard, hear, served
from tests.support.model_server import Attempt, ModelServer
from tests.support.postgres import PostgresServer
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

CASES = cases.load("2-anthropic-stream")

THINKING = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
THOUGHT = {"type": "thinking", "thinking": "Need rate.", "signature": "c2lnbmF0"}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "rate", "input": {"c": "EUR"}}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "tides"}}


@pytest.fixture(scope="module")
async def service(postgres: PostgresServer) -> AsyncIterator[Service]:
    """The service with the tools that the cases ask for."""
    async with migrated(postgres) as url, running(url, tool_modules=("tests.support.case_tools",)) as made:
        yield made


@pytest.fixture(autouse=True)
def called() -> list[tuple[str, dict[str, object]]]:
    """The tool calls that were carried out during the test."""
    case_tools.CALLED.clear()
    return case_tools.CALLED


class Talk:
    """Models of this wire, asked turn by turn."""

    def __init__(self, service: Service, server: ModelServer) -> None:
        self.service = service
        self.server = server

    async def model(self, attempts: Sequence[Attempt], **options: Any) -> str:
        """A model that answers so."""
        chosen = options or {"extra_body": THINKING}
        return await served(self.service, self.server, attempts, provider="anthropic", options=chosen)

    async def hear(self, model: str, **body: Any) -> Heard:
        """What becomes of the first turn."""
        return await hear(self.service, model, **body)

    async def next(self, branch: str, model: str, **body: Any) -> Any:
        """Have a further turn; what the model was sent."""
        run = await self.service.operate(branch, chat_model=model, lifecycle=ONCE, **body)
        assert run["status"] == "completed"
        return self.bodies(model)[-1]

    def bodies(self, model: str) -> list[Any]:
        """All that a model was sent."""
        return [request.body for request in self.server.requests if request.model == model]


@pytest.fixture
def talk(service: Service, model_server: ModelServer) -> Talk:
    return Talk(service, model_server)


def a06() -> list[Attempt]:
    """A thought and a call, and a plain answer to the results."""
    return [*cases.attempts(CASES["A06"]), Attempt(messages_wire.text("1.1"))]


async def test_a06_thoughts_are_no_text_and_their_signature_is_kept_in_the_answer_alone(talk: Talk) -> None:
    model = await talk.model(a06())
    first = await talk.hear(model, actions=True)
    assert first.answer is not None
    assert (first.answer["reasoning"], first.text) == ("Need rate.", "")
    assert "c2ln" not in json.dumps([first.run, first.events])
    opaque = first.answer["opaque"]
    assert (opaque["provider"], opaque["model"]) == ("anthropic", model)
    assert [json.loads(block["json"]) for block in opaque["blocks"]] == [THOUGHT]


async def test_a06_the_next_request_repeats_the_thought_before_the_call(talk: Talk) -> None:
    model = await talk.model(a06())
    first = await talk.hear(model, actions=True)
    body = await talk.next(first.run["branch_id"], model, actions=True)
    _, said, told = body["messages"]
    assert said == {"role": "assistant", "content": [THOUGHT, CALL]}
    assert [part["type"] for part in told["content"]] == ["tool_result", "text"]
    assert told["content"][0]["tool_use_id"] == "toolu_1"
    assert body["thinking"] == THINKING["thinking"]


async def test_a06_a_fork_gives_the_thought_back_too(talk: Talk) -> None:
    model = await talk.model(a06())
    first = await talk.hear(model, actions=True)
    forked = await talk.service.http.post(f"/v1/branches/{first.run['branch_id']}/fork", json={})
    fork = forked.json()
    body = await talk.next(fork["id"], model, actions=True)
    assert body["messages"][1]["content"] == [THOUGHT, CALL]


@pytest.mark.parametrize(("kind", "is_asked"), [("enabled", False), ("adaptive", True)])
async def test_a06_another_model_is_given_no_thought(talk: Talk, kind: str, is_asked: bool) -> None:
    first = await talk.hear(await talk.model(a06()), actions=True)
    other = await talk.model(a06()[1:], extra_body={"thinking": {"type": kind}})
    body = await talk.next(first.run["branch_id"], other, actions=True)
    assert body["messages"][1]["content"] == [CALL]
    assert ("thinking" in body) is is_asked, "one that is to think has to be shown what it thought"


async def test_a06_a_call_that_nobody_carried_out_leaves_its_thought_behind(talk: Talk) -> None:
    model = await talk.model(a06())
    first = await talk.hear(model)
    body = await talk.next(first.run["branch_id"], model)
    assert [said["role"] for said in body["messages"]] == ["user"]


async def test_a06_another_process_has_it_too(postgres: PostgresServer, model_server: ModelServer) -> None:
    tools = {"tool_modules": ("tests.support.case_tools",)}
    async with migrated(postgres) as url:
        async with running(url, **tools) as one:
            talk = Talk(one, model_server)
            model = await talk.model(a06())
            branch = (await talk.hear(model, actions=True)).run["branch_id"]
        async with running(url, **tools) as two:
            body = await Talk(two, model_server).next(branch, model, actions=True)
    assert body["messages"][1]["content"] == [THOUGHT, CALL]


async def test_a08_a_paused_turn_goes_on_with_what_was_said(talk: Talk, called: list[Any]) -> None:
    model = await talk.model(cases.attempts(CASES["A08"]))
    first = await talk.hear(model, actions=True)
    assert (first.run["status"], first.text) == ("completed", "Looking. High tide is at nine.")
    assert (first.run["finish_reason"], first.run["attempts"]) == ("stop", 2)
    usage = first.run["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (20, 14)
    assert (first.calls, called) == ([], [])
    one, two = talk.bodies(model)
    given_back = {"role": "assistant", "content": [{"type": "text", "text": "Looking. "}, SEARCH]}
    assert two["messages"] == [*one["messages"], given_back]
    assert {**two, "messages": ()} == {**one, "messages": ()}


async def test_a08_the_log_tells_of_the_second_call_and_of_no_retry(talk: Talk) -> None:
    first = await talk.hear(await talk.model(cases.attempts(CASES["A08"])))
    counted = {kind: first.types.count(kind) for kind in ("SESSION_START", "STREAM_INIT", "TURN_PAUSED")}
    assert counted == {"SESSION_START": 1, "STREAM_INIT": 2, "TURN_PAUSED": 1}
    assert not {"ATTEMPT_START", "RETRY_START", "ERROR"} & set(first.types)
    (paused,) = [event for event in first.events if event["type"] == "TURN_PAUSED"]
    assert paused["meta"] == {"reason": "pause_turn", "tokenCount": 1}
    (end,) = [event for event in first.events if event["type"] == "SESSION_END"]
    assert end["meta"] == {"success": True, "totalAttempts": 2}


async def test_a08_a_turn_that_is_always_paused_ends_with_the_model_calls(talk: Talk) -> None:
    model = await talk.model(cases.attempts(CASES["A08"])[:1])
    first = await talk.hear(model, lifecycle={**ONCE, "max_model_calls": 3})
    assert (first.run["status"], first.text) == ("completed", "Looking. " * 3)
    assert (first.run["finish_reason"], first.run["finish_reason_raw"]) == ("length", "pause_turn")
    assert [len(body["messages"][-1]["content"]) for body in talk.bodies(model)] == [1, 2, 4]


async def test_a08_a_search_without_its_result_does_not_poison_the_next_turn(talk: Talk) -> None:
    paused = cases.attempts(CASES["A08"])[0]
    model = await talk.model([paused, Attempt(messages_wire.text("At nine."))])
    first = await talk.hear(model, lifecycle={**ONCE, "max_model_calls": 1})
    assert first.run["finish_reason"] == "length"
    body = await talk.next(first.run["branch_id"], model)
    assert body["messages"][1]["content"] == [{"type": "text", "text": "Looking. "}]


async def test_a08_a_second_call_that_fails_has_the_answer_begun_afresh(talk: Talk) -> None:
    paused, _ = cases.attempts(CASES["A08"])
    model = await talk.model([paused, Attempt(status=503), Attempt(messages_wire.text("At nine."))])
    first = await talk.hear(model, lifecycle={"retry": {"max_retries": 1, "base_delay_ms": 0}})
    assert (first.run["status"], first.text) == ("completed", "At nine.")
    assert [said["role"] for said in talk.bodies(model)[-1]["messages"]] == ["user"]
    assert "opaque" not in (first.answer or {})


async def test_an_answer_put_together_from_two_attempts_is_given_back_as_text(talk: Talk) -> None:
    wire = messages_wire
    thought = [wire.start(), wire.block(0, {**THOUGHT, "thinking": "Hm."}), wire.stop(0)]
    begins, goes_on = (
        [*thought, wire.block(1, {"type": "text", "text": ""}), wire.delta(1, "text_delta", text=text)]
        for text in ("Once upon a time, there", " was an otter.")
    )
    rest = Attempt([*goes_on, wire.stop(1), wire.end("end_turn")])
    model = await talk.model([Attempt(begins), rest, Attempt(wire.text("Yes."))])
    retry = {"attempts": 1, "max_retries": 1, "base_delay_ms": 0}
    first = await talk.hear(model, lifecycle={"retry": retry, "continue_from_last_good_token": True})
    assert first.text == "Once upon a time, there was an otter."
    assert "opaque" not in (first.answer or {})
    body = await talk.next(first.run["branch_id"], model)
    assert body["messages"][1]["content"] == [{"type": "text", "text": first.text}]


async def test_blocks_stand_where_they_stood_and_cited_text_has_its_citations(talk: Talk) -> None:
    wire = messages_wire
    result = '{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"z":1.50,"a":"x"}]}'
    event = f'{{"type":"content_block_start","index":2,"content_block":{result} }}'
    cite = {"type": "web_search_result_location", "cited_text": "nine", "encrypted_index": "Eo8"}
    whole = [
        wire.start(),
        wire.block(0, {"type": "redacted_thinking", "data": "Zm9v"}),
        wire.stop(0),
        wire.block(1, {**SEARCH, "input": {}}),
        wire.delta(1, "input_json_delta", partial_json=""),
        wire.delta(1, "input_json_delta", partial_json='{"query": "ti'),
        wire.delta(1, "input_json_delta", partial_json='des"}'),
        wire.stop(1),
        f"event: content_block_start\ndata: {event}\n\n".encode(),
        wire.stop(2),
        wire.block(3, {"type": "text", "text": ""}),
        wire.delta(3, "text_delta", text="High tide "),
        wire.stop(3),
        wire.block(4, {"type": "text", "text": "", "citations": []}),
        wire.delta(4, "citations_delta", citation=cite),
        wire.delta(4, "text_delta", text="is at "),
        wire.delta(4, "text_delta", text="nine"),
        wire.stop(4),
        wire.block(5, {"type": "text", "text": "."}),
        wire.stop(5),
        wire.end("end_turn"),
    ]
    model = await talk.model([Attempt(whole, write_size=37), Attempt(wire.text("Yes."))])
    first = await talk.hear(model)
    assert first.text == "High tide is at nine."
    blocks = [block["json"] for block in (first.answer or {})["opaque"]["blocks"]]
    assert blocks[2] == result, "byte for byte"
    body = await talk.next(first.run["branch_id"], model)
    assert body["messages"][1]["content"] == [
        {"type": "redacted_thinking", "data": "Zm9v"},
        SEARCH,
        json.loads(result),
        {"type": "text", "text": "High tide "},
        {"type": "text", "text": "is at nine", "citations": [cite]},
        {"type": "text", "text": "."},
    ]


async def test_what_is_too_much_to_be_kept_is_left_out(talk: Talk) -> None:
    wire = messages_wire
    large = {"type": "web_search_tool_result", "tool_use_id": "s", "content": "x" * 600_000}
    said = [wire.start(), wire.block(0, large), wire.stop(0), *wire.text("Found.")[1:]]
    first = await talk.hear(await talk.model([Attempt(said)]))
    assert (first.run["status"], first.text) == ("completed", "Found.")
    assert "opaque" not in (first.answer or {})


async def test_gemini_gets_its_signatures_back(talk: Talk) -> None:
    call = {"functionCall": {"name": "rate", "args": {"c": "EUR"}}, "thoughtSignature": "c2ln"}
    attempts = [Attempt([gemini_wire.said(call, finish="STOP")]), Attempt(gemini_wire.text("1.1"))]
    model = await served(talk.service, talk.server, attempts, provider="gemini")
    first = await talk.hear(model, actions=True)
    body = await talk.next(first.run["branch_id"], model, actions=True)
    assert body["contents"][1]["parts"] == [call]


async def test_bedrock_gets_its_signed_thoughts_back(talk: Talk) -> None:
    wire = bedrock_wire
    thinks = [
        wire.delta(0, reasoningContent={"text": "Need rate."}),
        wire.delta(0, reasoningContent={"signature": "c2ln"}),
        wire.start(1, "tooluse_1", "rate"),
        wire.delta(1, toolUse={"input": '{"c": "EUR"}'}),
        wire.end("tool_use"),
    ]
    attempts = [wire.answer(*thinks), wire.answer(wire.delta(0, text="1.1"), wire.end("end_turn"))]
    model = await served(talk.service, talk.server, attempts, provider="bedrock")
    first = await talk.hear(model, actions=True)
    assert first.answer is not None
    assert first.answer["reasoning"] == "Need rate."
    body = await talk.next(first.run["branch_id"], model, actions=True)
    assert body["messages"][1]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "Need rate.", "signature": "c2ln"}}},
        {"toolUse": {"toolUseId": "tooluse_1", "name": "rate", "input": {"c": "EUR"}}},
    ]
