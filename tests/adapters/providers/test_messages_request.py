"""What a Messages endpoint is sent, and which options it may have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.adapters.anthropic_messages.profile import profile_of, url_of
from app.adapters.anthropic_messages.request import CONTINUE, body_of, headers_of
from app.core.errors import Invalid
from app.core.opaque import Opaque, OpaqueBlock
from app.core.prompt import Prompt, PromptMessage, PromptToolCall, ToolSchema
from app.ports.provider import ModelEndpoint
from tests.support.answers import HELLO, opening

SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}
CALL = PromptToolCall("call_1", "add", {"a": 1, "n": 12345678901234567890123})
USE = {"type": "tool_use", "id": "call_1", "name": "add", "input": CALL.arguments}
THINKING = {"extra_body": {"thinking": {"type": "enabled", "budget_tokens": 1024}}}


def body(prompt: Prompt = HELLO, options: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    what = opening("anthropic", "wire-name", options=options, prompt=prompt, **more)
    made: dict[str, Any] = json.loads(body_of(what, profile_of(what.endpoint)))
    return made


def turns(*messages: PromptMessage) -> Any:
    return body(Prompt(messages))["messages"]


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def model(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def image(**source: str) -> dict[str, Any]:
    return {"type": "image", "source": source}


def result(id: str, **content: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, **content}


def test_a_plain_prompt() -> None:
    assert body() == {
        "max_tokens": 4096,
        "model": "wire-name",
        "stream": True,
        "messages": [user(text("hello"))],
    }


M = PromptMessage


@pytest.mark.parametrize(
    ("messages", "sent"),
    [
        ([M("user", "a"), M("user", "b")], [user(text("a"), text("b"))]),
        (
            [M("user", "a"), M("assistant", "b"), M("user", "c")],
            [user(text("a")), model(text("b")), user(text("c"))],
        ),
        ([M("user", "a"), M("assistant", " \n"), M("user", "b")], [user(text("a"), text("b"))]),
        ([M("user", "a"), M("system", "s"), M("user", "b")], [user(text("a"), text("b"))]),
        (
            [
                M("assistant", "It is", tool_calls=[CALL]),
                M("tool", "3", tool_call_id="call_1"),
                M("user", "b"),
            ],
            [model(text("It is"), USE), user(result("call_1", content="3"), text("b"))],
        ),
        (
            [M("assistant", "", tool_calls=[CALL]), M("tool", "", tool_call_id="call_1")],
            [model(USE), user(result("call_1"))],
        ),
        (
            [M("tool", "3", tool_call_id="call:1/ö"), M("tool", "4", tool_call_id="")],
            [user(result("call_1__", content="3"), result("_", content="4"))],
        ),
        ([M("user", "a\0\ud800")], [user(text("a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"))]),
    ],
)
def test_turns(messages: list[PromptMessage], sent: list[Any]) -> None:
    assert turns(*messages) == sent


def test_a_call_and_its_result_have_the_same_id_whatever_it_was() -> None:
    odd = PromptToolCall("a.b|c", "add", {})
    asked, told = turns(M("assistant", "", tool_calls=[odd]), M("tool", "3", tool_call_id="a.b|c"))
    assert asked["content"][0]["id"] == told["content"][0]["tool_use_id"] == "a_b_c"


@pytest.mark.parametrize(
    ("url", "source"),
    [
        ("https://pictures.test/1", {"type": "url", "url": "https://pictures.test/1"}),
        ("data:image/png;base64,eA==", {"type": "base64", "media_type": "image/png", "data": "eA=="}),
        ("DATA:Image/PNG;x=y;BASE64,eA==", {"type": "base64", "media_type": "image/png", "data": "eA=="}),
        (
            "data:image/svg+xml,%3Csvg/%3E",
            {"type": "base64", "media_type": "image/svg+xml", "data": "PHN2Zy8+"},
        ),
    ],
)
def test_an_image_comes_before_the_words_about_it(url: str, source: dict[str, str]) -> None:
    assert turns(M("user", "what is this?", images=[url])) == [user(image(**source), text("what is this?"))]


def test_an_image_of_no_kind_cannot_be_sent() -> None:
    with pytest.raises(Invalid):
        turns(M("user", "a", images=["data:;base64,eA=="]))


@pytest.mark.parametrize(
    ("system", "sent"),
    [([], None), (["be brief"], "be brief"), (["be brief", " ", "be kind"], "be brief\n\nbe kind")],
)
def test_the_systems_words_stand_apart(system: list[str], sent: str | None) -> None:
    messages = [*(M("system", words) for words in system), M("user", "a")]
    assert body(Prompt(messages)).get("system") == sent


def test_tools_are_offered_and_none_is_forced() -> None:
    sent = body(Prompt(HELLO.messages, [ToolSchema("add", "adds", SCHEMA), ToolSchema("now", "", SCHEMA)]))
    assert sent["tools"] == [
        {"name": "add", "description": "adds", "input_schema": SCHEMA},
        {"name": "now", "input_schema": SCHEMA},
    ]
    assert "tool_choice" not in sent


def test_a_schema_stands_beside_what_else_the_output_shall_be() -> None:
    prompt = Prompt(HELLO.messages, response_schema=SCHEMA)
    format = {"type": "json_schema", "schema": SCHEMA}
    assert body(prompt)["output_config"] == {"format": format}
    sent = body(prompt, {"extra_body": {"output_config": {"effort": "low"}}})
    assert sent["output_config"] == {"effort": "low", "format": format}
    assert "output_config" not in body(prompt, continue_from='{"a": ')


def test_options_of_the_request_go_before_those_of_the_endpoint_and_neither_before_ours() -> None:
    given = {"temperature": 0, "model": "other", "stream": False, "system": "x", "messages": []}
    options = {"extra_body": {"temperature": 1, "top_k": 4}, "max_tokens": 9}
    sent = body(Prompt(HELLO.messages, options=given), options)
    assert (sent["temperature"], sent["top_k"], sent["max_tokens"]) == (0, 4, 9)
    assert (sent["model"], sent["stream"], sent["messages"]) == ("wire-name", True, [user(text("hello"))])
    assert "system" not in sent
    assert body(Prompt(HELLO.messages, options={"max_tokens": 7}), options)["max_tokens"] == 7


GOES_ON = [user(text("hello")), model(text("Once upon"))]
IS_TOLD = [*GOES_ON, user(text(CONTINUE))]


@pytest.mark.parametrize(
    ("more", "sent"),
    [
        ({"continue_from": "Once upon"}, IS_TOLD),
        ({"continue_from": "Once upon", "options": {"prefill": True}}, GOES_ON),
        ({"continue_from": "Once upon", "continue_prompt": "weiter"}, [*GOES_ON, user(text("weiter"))]),
        # The wire refuses a last assistant message that ends in white space.
        (
            {"continue_from": "Once \n", "options": {"prefill": True}},
            [user(text("hello")), model(text("Once \n")), user(text(CONTINUE))],
        ),
        ({"continue_from": " \n"}, [user(text("hello"))]),
    ],
)
def test_an_answer_goes_on_from_its_text(more: dict[str, Any], sent: list[Any]) -> None:
    assert body(**more)["messages"] == sent


ASKED = [M("user", "a"), M("assistant", "", tool_calls=[CALL]), M("tool", "3", tool_call_id="call_1")]


@pytest.mark.parametrize(
    ("messages", "more", "thinks"),
    [
        ([M("user", "a")], {}, True),
        ([M("user", "a"), M("assistant", "b"), M("user", "c")], {}, True),
        (ASKED, {}, False),
        ([*ASKED, M("user", "b")], {}, False),
        ([*ASKED, M("assistant", "It is 3."), M("user", "b")], {}, True),
        ([M("user", "a")], {"continue_from": "Once"}, True),
        ([M("user", "a")], {"continue_from": "Once", "continue_prompt": "weiter"}, True),
    ],
)
def test_a_turn_that_goes_on_is_not_asked_for_thoughts(
    messages: list[PromptMessage], more: dict[str, Any], thinks: bool
) -> None:
    assert ("thinking" in body(Prompt(messages), THINKING, **more)) is thinks


@pytest.mark.parametrize("sign", ["\\u0000", "\\ud83d", "x"])
def test_a_thought_is_given_back_whatever_signs_are_in_it(sign: str) -> None:
    thought = f'{{"type":"thinking","thinking":"{sign}","signature":"c2ln"}}'
    opaque = Opaque("anthropic", "wire-name", [OpaqueBlock(thought)])
    asked = M("assistant", "", tool_calls=[CALL], opaque=opaque)
    sent = body(Prompt([ASKED[0], asked, ASKED[2]]), THINKING)
    assert sent["messages"][1] == model(json.loads(thought), USE)
    assert "thinking" in sent


def test_an_answer_that_goes_on_by_itself_is_not_asked_for_thoughts() -> None:
    assert "thinking" not in body(options={**THINKING, "prefill": True}, continue_from="Once")


FIXED = {"Content-Type": "application/json", "Accept": "text/event-stream"}
VERSION = {"anthropic-version": "2023-06-01"}


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({}, {**VERSION, "x-api-key": "key"}),
        ({"version": "2024-01-01"}, {"anthropic-version": "2024-01-01", "x-api-key": "key"}),
        ({"headers": {"Anthropic-Version": "v"}}, {"Anthropic-Version": "v", "x-api-key": "key"}),
        ({"headers": {"anthropic-beta": "b"}}, {**VERSION, "anthropic-beta": "b", "x-api-key": "key"}),
        ({"headers": {"Authorization": "Bearer x"}}, {**VERSION, "Authorization": "Bearer x"}),
        ({"headers": {"X-API-Key": "other"}}, {**VERSION, "X-API-Key": "other"}),
    ],
)
def test_headers(options: dict[str, Any], sent: dict[str, str]) -> None:
    endpoint = ModelEndpoint("m", "anthropic", "m", None, "key", options)
    assert headers_of(endpoint, profile_of(endpoint)) == FIXED | sent


@pytest.mark.parametrize("key", ["key\n", "kéy", "k\0"])
def test_a_key_that_no_header_can_hold_is_refused_without_showing_it(key: str) -> None:
    endpoint = ModelEndpoint("m", "anthropic", "m", None, key)
    with pytest.raises(Invalid) as caught:
        headers_of(endpoint, profile_of(endpoint))
    assert key not in str(caught.value)


def test_no_key_no_credential() -> None:
    endpoint = ModelEndpoint("m", "anthropic", "m")
    assert headers_of(endpoint, profile_of(endpoint)) == FIXED | VERSION


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        (None, "https://api.anthropic.com/v1/messages"),
        ("http://127.0.0.1:8080/v1/", "http://127.0.0.1:8080/v1/messages"),
        ("https://h.test/d?region=eu", "https://h.test/d/messages?region=eu"),
    ],
)
def test_where_messages_are_asked_for(base_url: str | None, url: str) -> None:
    assert str(url_of(ModelEndpoint("m", "anthropic", "m", base_url))) == url


@pytest.mark.parametrize(
    ("options", "pointer", "code"),
    [
        ({"include_usage": True}, "/options/include_usage", "unknown_field"),
        ({"max_tokens": 0}, "/options/max_tokens", "invalid"),
        ({"max_tokens": "9"}, "/options/max_tokens", "invalid"),
        ({"version": "a\nb"}, "/options/version", "invalid"),
        ({"headers": {"Host": "h"}}, "/options/headers/Host", "invalid"),
        ({"extra_body": {"system": "x"}}, "/options/extra_body/system", "invalid"),
        ({"prefill": 1}, "/options/prefill", "invalid"),
    ],
)
def test_options_that_make_no_sense_are_named(options: dict[str, Any], pointer: str, code: str) -> None:
    with pytest.raises(Invalid) as caught:
        profile_of(ModelEndpoint("m", "anthropic", "m", options=options))
    assert [(error.pointer, error.code) for error in caught.value.errors] == [(pointer, code)]


def test_tools_that_the_server_runs_itself_stand_before_ours() -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    ours = {"name": "add", "description": "Adds.", "input_schema": SCHEMA}
    with_tools = Prompt(HELLO.messages, tools=[ToolSchema("add", "Adds.", SCHEMA)])
    assert body(with_tools, {"extra_body": {"tools": [search]}})["tools"] == [search, ours]
    assert body(options={"extra_body": {"tools": [search]}})["tools"] == [search]
