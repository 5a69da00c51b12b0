"""What an endpoint is sent, and which options it may have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.adapters.chat_completions.profile import profile_of, url_of
from app.adapters.chat_completions.request import CONTINUE, body_of, headers_of
from app.core.errors import Invalid
from app.core.prompt import Prompt, PromptMessage, PromptToolCall, ToolSchema
from app.ports.provider import ModelEndpoint
from tests.support.answers import HELLO, opening

SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}


def body(prompt: Prompt = HELLO, options: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    what = opening("openai", "wire-name", options=options, prompt=prompt, **more)
    made: dict[str, Any] = json.loads(body_of(what, profile_of(what.endpoint)))
    return made


def test_a_plain_prompt() -> None:
    assert body() == {
        "model": "wire-name",
        "messages": [{"role": "user", "content": "hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_every_kind_of_message() -> None:
    call = PromptToolCall("call_1", "add", {"a": 1, "n": 12345678901234567890123})
    messages = [
        PromptMessage("system", "be brief"),
        PromptMessage(
            "user", "what is this?", images=["https://pictures.test/1", "data:image/png;base64,eA=="]
        ),
        PromptMessage("user", "", images=["https://pictures.test/2"], image_detail="low"),
        PromptMessage("assistant", "", tool_calls=[call]),
        PromptMessage("tool", "3", tool_call_id="call_1"),
        PromptMessage("assistant", "It is 3.", tool_calls=[call]),
    ]
    sent_call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "add", "arguments": '{"a":1,"n":12345678901234567890123}'},
    }
    assert body(Prompt(messages))["messages"] == [
        {"role": "system", "content": "be brief"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "what is this?"},
                {"type": "image_url", "image_url": {"url": "https://pictures.test/1"}},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,eA=="}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "https://pictures.test/2", "detail": "low"}}
            ],
        },
        {"role": "assistant", "content": None, "tool_calls": [sent_call]},
        {"role": "tool", "content": "3", "tool_call_id": "call_1"},
        {"role": "assistant", "content": "It is 3.", "tool_calls": [sent_call]},
    ]


def test_tools_and_a_schema() -> None:
    prompt = Prompt(HELLO.messages, [ToolSchema("add", "adds", SCHEMA)], SCHEMA, "Größe in m²!")
    sent = body(prompt)
    function = {"name": "add", "description": "adds", "parameters": SCHEMA}
    assert sent["tools"] == [{"type": "function", "function": function}]
    schema = {"name": "Gr_e_in_m", "schema": SCHEMA}
    assert sent["response_format"] == {"type": "json_schema", "json_schema": schema}
    strict = body(prompt, {"strict_schema": True})["response_format"]["json_schema"]
    assert strict == {**schema, "strict": True}


@pytest.mark.parametrize(
    ("name", "sent"), [("", "Response"), ("!!", "Response"), ("a" * 99, "a" * 64), ("A-b_1", "A-b_1")]
)
def test_a_schema_has_a_name_that_servers_take(name: str, sent: str) -> None:
    format = body(Prompt(HELLO.messages, response_schema=SCHEMA, schema_name=name))["response_format"]
    assert format["json_schema"]["name"] == sent


def test_options_of_the_request_go_before_those_of_the_endpoint_and_neither_before_ours() -> None:
    prompt = Prompt(HELLO.messages, options={"temperature": 0, "model": "other", "stream": False})
    sent = body(prompt, {"extra_body": {"temperature": 1, "top_k": 4}, "include_usage": False})
    assert (sent["temperature"], sent["top_k"]) == (0, 4)
    assert (sent["model"], sent["stream"]) == ("wire-name", True)
    assert "stream_options" not in sent


SAID = {"role": "assistant", "content": "Once upon"}


def test_a_model_is_told_to_go_on_from_its_own_unfinished_message() -> None:
    assert body(continue_from="Once upon")["messages"][-2:] == [SAID, {"role": "user", "content": CONTINUE}]
    custom = body(continue_from="Once upon", continue_prompt="weiter")["messages"]
    assert custom[-2:] == [SAID, {"role": "user", "content": "weiter"}]


def test_an_endpoint_that_goes_on_by_itself_is_told_only_what_the_caller_says() -> None:
    assert body(continue_from="Once upon", options={"prefill": True})["messages"][-1] == SAID
    custom = body(continue_from="Once upon", continue_prompt="weiter", options={"prefill": True})["messages"]
    assert custom[-1] == {"role": "user", "content": "weiter"}


def test_no_schema_is_enforced_on_the_rest_of_a_value() -> None:
    prompt = Prompt([PromptMessage("user", "a")], response_schema={"type": "object"})
    assert "response_format" in body(prompt)
    assert "response_format" not in body(prompt, continue_from='{"a": ')


def test_what_no_server_takes_is_replaced() -> None:
    assert (
        body(Prompt([PromptMessage("user", "a\0\ud800")]))["messages"][0]["content"]
        == "a" + "\N{REPLACEMENT CHARACTER}" * 2
    )


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({}, {"Authorization": "Bearer key"}),
        ({"headers": {"X-Org": "o"}}, {"Authorization": "Bearer key", "X-Org": "o"}),
        ({"headers": {"authorization": "Basic x"}}, {"authorization": "Basic x"}),
        ({"api_key_header": "api-key"}, {"api-key": "key"}),
    ],
)
def test_credentials(options: dict[str, Any], sent: dict[str, str]) -> None:
    endpoint = ModelEndpoint("m", "openai", "m", None, "key", options)
    fixed = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    assert headers_of(endpoint, profile_of(endpoint)) == fixed | sent


@pytest.mark.parametrize("key", ["key\n", "kéy", "k\0"])
def test_a_key_that_no_header_can_hold_is_refused_without_showing_it(key: str) -> None:
    endpoint = ModelEndpoint("m", "openai", "m", None, key)
    with pytest.raises(Invalid) as caught:
        headers_of(endpoint, profile_of(endpoint))
    assert key not in str(caught.value)


def test_no_key_no_credential() -> None:
    endpoint = ModelEndpoint("m", "openai", "m")
    assert "Authorization" not in headers_of(endpoint, profile_of(endpoint))


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        (None, "https://api.openai.com/v1/chat/completions"),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1/chat/completions"),
        ("http://127.0.0.1:8080/v1/", "http://127.0.0.1:8080/v1/chat/completions"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/chat/completions"),
        ("https://h.test/d?api-version=1", "https://h.test/d/chat/completions?api-version=1"),
    ],
)
def test_where_completions_are_asked_for(base_url: str | None, url: str) -> None:
    assert str(url_of(ModelEndpoint("m", "openai", "m", base_url))) == url


@pytest.mark.parametrize(
    "base_url",
    [
        "",
        "ftp://h/",
        "/v1",
        "h.test/v1",
        "http://",
        "http://u:p@h/",
        "http://h/#x",
        "http://h:99999/",
        "http://[::1",
    ],
)
def test_a_base_url_that_cannot_be_used(base_url: str) -> None:
    with pytest.raises(Invalid) as caught:
        url_of(ModelEndpoint("m", "openai", "m", base_url))
    assert [error.pointer for error in caught.value.errors] == ["/base_url"]


@pytest.mark.parametrize(
    ("options", "faults"),
    [
        ({"nativ_tools": True}, [("/options/nativ_tools", "unknown_field")]),
        (
            {"native_tools": "yes", "native_schema": 1},
            [("/options/native_tools", "invalid"), ("/options/native_schema", "invalid")],
        ),
        ({"headers": {"X": 5}}, [("/options/headers/X", "invalid")]),
        ({"headers": {"X Y": "z"}}, [("/options/headers/X Y", "invalid")]),
        ({"headers": {"a/b~c": "z"}}, [("/options/headers/a~1b~0c", "invalid")]),
        ({"headers": {"X": "a\r\nb"}}, [("/options/headers/X", "invalid")]),
        ({"headers": {"X": "é"}}, [("/options/headers/X", "invalid")]),
        ({"headers": {"Host": "h"}}, [("/options/headers/Host", "invalid")]),
        ({"headers": []}, [("/options/headers", "invalid")]),
        ({"extra_body": {"model": "m"}}, [("/options/extra_body/model", "invalid")]),
        ({"max_event_bytes": 5}, [("/options/max_event_bytes", "invalid")]),
        ({"api_key_header": ""}, [("/options/api_key_header", "invalid")]),
    ],
)
def test_options_that_make_no_sense_are_named(options: dict[str, Any], faults: list[tuple[str, str]]) -> None:
    with pytest.raises(Invalid) as caught:
        profile_of(ModelEndpoint("m", "openai", "m", options=options))
    assert [(error.pointer, error.code) for error in caught.value.errors] == faults
    assert all(error.message for error in caught.value.errors)


def test_messages_stand_in_a_body_once_whatever_the_options_say() -> None:
    what = opening("openai", "m", prompt=Prompt(HELLO.messages, options={"messages": ["other"]}))
    made = body_of(what, profile_of(what.endpoint))
    assert made.count(b'"messages":') == 1
    assert json.loads(made)["messages"] == [{"role": "user", "content": "hello"}]


def test_a_message_is_rendered_once_by_each_renderer() -> None:
    seen: list[str] = []

    def rendered(message: PromptMessage) -> bytes:
        seen.append(message.text)
        return message.text.encode()

    message = PromptMessage("user", "hi")
    assert [message.rendered(rendered) for _ in range(3)] == [b"hi"] * 3
    assert seen == ["hi"]
    assert message.rendered(lambda _: b"other") == b"other"
    assert message == PromptMessage("user", "hi")
