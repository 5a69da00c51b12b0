"""What Bedrock is sent and what of its answers is read; the contract of all providers is tested elsewhere."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from app.adapters.bedrock_converse.profile import profile_of, url_of
from app.adapters.bedrock_converse.request import CONTINUE, body_of
from app.adapters.bedrock_converse.signature import Credentials, Scope, signed
from app.adapters.http_client import model_client
from app.adapters.providers.bedrock import BedrockProvider
from app.core.chunks import OpaqueBlocks
from app.core.errors import Invalid
from app.core.opaque import Opaque, OpaqueBlock
from app.core.prompt import Prompt, PromptMessage, PromptToolCall, ToolSchema
from tests.support import bedrock_wire as wire
from tests.support.answers import HELLO, Answer, ask, opening
from tests.support.model_server import Attempt, ModelServer

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
KEY = f"AKIDEXAMPLEEXAMPLE:{SECRET}:c2Vzc2lvbg=="
MODEL = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
THOUGHT = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2lnbmF0"}}}


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


async def told(server: ModelServer, attempt: Attempt, **more: Any) -> Answer:
    model = more.pop("model", "m")
    server.scripts[model] = [attempt]
    async with model_client() as client:
        provider = BedrockProvider(client, lambda: NOW)
        return await ask(provider, opening("bedrock", model, base_url=server.base_url, **more))


def body(prompt: Prompt = HELLO, options: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    what = opening("bedrock", options=options, prompt=prompt, **more)
    made: dict[str, Any] = json.loads(body_of(what, profile_of(what.endpoint)))
    return made


PLAIN = wire.answer(wire.delta(0, text="a"), wire.end("end_turn", inputTokens=3, outputTokens=1))


async def test_a_request_is_signed_as_it_arrives(server: ModelServer) -> None:
    answer = await told(server, PLAIN, api_key=KEY, model=MODEL, options={"region": "eu-west-1"})
    assert (answer.text, answer.usage) == ("a", (3, 1))
    (request,) = server.requests
    assert request.path == f"/v1/model/{MODEL.replace(':', '%3A')}/converse-stream"
    credentials = Credentials.of(KEY)
    assert credentials is not None
    raw = body_of(opening("bedrock", MODEL), profile_of(opening("bedrock").endpoint))
    assert json.loads(raw) == request.body
    bound = {"Host": request.headers["host"], "Content-Type": request.headers["content-type"]}
    scope = Scope("eu-west-1", "bedrock")
    made = signed(credentials, scope, NOW, "POST", request.path, bound, raw)
    assert request.headers["authorization"] == made["Authorization"]
    assert request.headers["x-amz-security-token"] == "c2Vzc2lvbg=="


async def test_a_key_of_bedrock_is_sent_as_it_is(server: ModelServer) -> None:
    await told(server, PLAIN, api_key="bedrock-api-key-abc")
    assert server.requests[0].headers["authorization"] == "Bearer bedrock-api-key-abc"


async def test_no_part_of_a_key_is_quoted(server: ModelServer) -> None:
    words = json.dumps({"message": f"the key {SECRET} is not valid"}).encode()
    answer = await told(server, Attempt([words], 403, "application/json"), api_key=KEY)
    assert answer.fault is not None
    assert (answer.fault.status, SECRET in answer.fault.message) == (403, False)


def test_where_it_is_follows_from_the_region() -> None:
    endpoint = opening("bedrock", options={"region": "eu-central-1"}).endpoint
    expected = "https://bedrock-runtime.eu-central-1.amazonaws.com/model/m/converse-stream"
    assert str(url_of(endpoint, profile_of(endpoint))) == expected


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("throttlingException", 429),
        ("modelStreamErrorException", 502),
        ("validationException", 400),
        ("serviceUnavailableException", 503),
    ],
)
async def test_exceptions_inside_an_answer(server: ModelServer, kind: str, status: int) -> None:
    answer = await told(server, wire.answer(wire.delta(0, text="a"), wire.exception(kind, "so it is")))
    assert answer.fault is not None
    assert (answer.text, answer.ended) == ("a", False)
    assert (answer.fault.type, answer.fault.status, answer.fault.message) == (kind, status, "so it is")


async def test_damage_on_the_way_is_no_answer(server: ModelServer) -> None:
    damaged = bytearray(wire.delta(0, text="ab"))
    damaged[-6] ^= 1
    answer = await told(server, wire.answer(wire.delta(0, text="a"), bytes(damaged), wire.end("end_turn")))
    assert answer.fault is not None
    assert (answer.text, answer.fault.kind) == ("a", "malformed")


async def test_another_body_in_the_place_of_an_answer(server: ModelServer) -> None:
    answer = await told(server, Attempt([b'{"Output": {"__type": "x"}}'], content_type="application/json"))
    assert not answer.opened
    assert answer.fault is not None


SIGNED = b"".join(
    [
        wire.event("messageStart", role="assistant"),
        wire.delta(0, reasoningContent={"text": "H"}),
        wire.delta(0, reasoningContent={"text": "m."}),
        wire.delta(0, reasoningContent={"signature": "c2ln"}),
        wire.delta(0, reasoningContent={"signature": "bmF0"}),
        wire.stop(0),
        wire.delta(1, reasoningContent={"redactedContent": "Zm9v"}),
        wire.stop(1),
        wire.delta(2, text="So: "),
        wire.start(3, "tooluse_1", "add"),
        wire.delta(3, toolUse={"input": '{"x"'}),
        wire.delta(3, toolUse={"input": ": 1}"}),
        wire.stop(3),
        wire.end("tool_use", inputTokens=3, cacheReadInputTokens=4, outputTokens=9),
    ]
)


@pytest.mark.parametrize("seed", range(5))
async def test_thoughts_text_and_calls_cut_anywhere(server: ModelServer, seed: int) -> None:
    places = sorted(Random(seed).sample(range(len(SIGNED)), 12))
    cuts = [SIGNED[a:b] for a, b in zip([0, *places], [*places, len(SIGNED)], strict=True)]
    answer = await told(server, wire.answer(*cuts, write_size=17))
    assert (answer.text, answer.reasoning, answer.usage) == ("So: ", "Hm.", (7, 9))
    assert (answer.called, answer.finish, answer.ended) == ([("add", '{"x": 1}')], "tool_calls", True)
    blocks = [block for chunk in answer.chunks if isinstance(chunk, OpaqueBlocks) for block in chunk.blocks]
    assert [json.loads(block.json) for block in blocks] == [
        THOUGHT,
        {"reasoningContent": {"redactedContent": "Zm9v"}},
    ]


async def test_usage_may_be_missing_and_the_reason_to_stop_may_not(server: ModelServer) -> None:
    answer = await told(server, wire.answer(wire.delta(0, text="a"), wire.end("end_turn")))
    assert (answer.ended, answer.usage) == (True, None)
    cut = await told(server, wire.answer(wire.delta(0, text="a"), wire.end("end_turn")[:-1]))
    assert (cut.ended, cut.finish_raw) == (False, None)


# What is sent


CALLED = PromptMessage(
    "assistant",
    "",
    tool_calls=[PromptToolCall("tooluse_1", "add", {"x": 1})],
    opaque=Opaque("bedrock", "m", [OpaqueBlock(json.dumps(THOUGHT))]),
)
TURN = [PromptMessage("user", "hi"), CALLED, PromptMessage("tool", "2", tool_call_id="tooluse_1")]
USE = {"toolUse": {"toolUseId": "tooluse_1", "name": "add", "input": {"x": 1}}}


def test_every_kind_of_message() -> None:
    image = "data:image/png;base64,AAAA"
    said = [PromptMessage("system", "Be brief."), *TURN, PromptMessage("user", "And?", images=[image])]
    sent = body(Prompt(said, tools=[ToolSchema("add", "Adds.", {"type": "object"})]))
    assert sent["system"] == [{"text": "Be brief."}]
    assert sent["toolConfig"]["tools"] == [
        {"toolSpec": {"name": "add", "description": "Adds.", "inputSchema": {"json": {"type": "object"}}}}
    ]
    result = {"toolResult": {"toolUseId": "tooluse_1", "content": [{"text": "2"}]}}
    picture = {"image": {"format": "png", "source": {"bytes": "AAAA"}}}
    assert sent["messages"] == [
        {"role": "user", "content": [{"text": "hi"}]},
        {"role": "assistant", "content": [THOUGHT, USE]},
        {"role": "user", "content": [result, picture, {"text": "And?"}]},
    ]


def test_another_model_gets_no_thought_and_is_asked_for_none() -> None:
    fields = {"additionalModelRequestFields": {"thinking": {"type": "enabled"}, "top_k": 9}}
    what = Prompt(TURN, options=fields)
    assert body(what)["additionalModelRequestFields"] == fields["additionalModelRequestFields"]
    other = opening("bedrock", "other", prompt=what)
    sent = json.loads(body_of(other, profile_of(other.endpoint)))
    assert sent["messages"][1]["content"] == [USE]
    assert sent["additionalModelRequestFields"] == {"top_k": 9}


def test_options_stand_where_the_api_wants_them() -> None:
    options = {"temperature": 0.5, "inferenceConfig": {"maxTokens": 9}, "guardrailConfig": {"a": 1}}
    sent = body(Prompt(HELLO.messages, options=options), {"extra_body": {"topP": 1}})
    assert sent["inferenceConfig"] == {"maxTokens": 9, "temperature": 0.5, "topP": 1}
    assert sent["guardrailConfig"] == {"a": 1}
    with pytest.raises(Invalid):
        body(Prompt(HELLO.messages, options={"max_tokens": 1}))


def test_a_schema_is_sent_as_text_and_not_with_the_rest_of_a_value() -> None:
    prompt = Prompt(HELLO.messages, response_schema={"type": "object"}, schema_name="Tide")
    form = body(prompt)["outputConfig"]["textFormat"]
    assert form["structure"]["jsonSchema"] == {"name": "Tide", "schema": '{"type":"object"}'}
    rest = body(prompt, continue_from="half")
    assert "outputConfig" not in rest
    assert [said["content"][0]["text"] for said in rest["messages"][-2:]] == ["half", CONTINUE]


def test_an_image_at_an_address_cannot_be_sent() -> None:
    with pytest.raises(Invalid, match="data URLs"):
        body(Prompt([PromptMessage("user", "see", images=["https://example.com/a.png"])]))
