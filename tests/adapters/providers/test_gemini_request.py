"""What the Gemini API is sent, and which options an endpoint and a request may have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.adapters.gemini_content.parts import NO_SIGNATURE
from app.adapters.gemini_content.profile import headers_of, profile_of, url_of
from app.adapters.gemini_content.request import CONTINUE, body_of
from app.core.errors import Invalid
from app.core.prompt import Prompt, PromptMessage, PromptToolCall, ToolSchema
from app.ports.provider import ModelEndpoint
from tests.support.answers import HELLO, opening

OLD = "gemini-2.5-flash"
OBJECT = {"type": "object", "properties": {"x": {"type": "integer"}}}
IN_DIALECT = {"type": "OBJECT", "properties": {"x": {"type": "INTEGER"}}, "propertyOrdering": ["x"]}
HELLO_TURN = {"role": "user", "parts": [{"text": "hello"}]}


def body(
    prompt: Prompt = HELLO, options: dict[str, Any] | None = None, model: str = OLD, **more: Any
) -> dict[str, Any]:
    what = opening("gemini", model, options=options, prompt=prompt, **more)
    made: dict[str, Any] = json.loads(body_of(what, profile_of(what.endpoint)))
    return made


def turns(*messages: PromptMessage, model: str = OLD) -> list[Any]:
    sent: list[Any] = body(Prompt(messages), model=model)["contents"]
    return sent


def endpoint(base_url: str | None = None, model: str = "m", **more: Any) -> ModelEndpoint:
    return ModelEndpoint("n", "gemini", model, base_url, **more)


def headers(key: str | None, more: dict[str, str] | None = None) -> Any:
    asked = endpoint(api_key=key, options={"headers": more or {}})
    return headers_of(asked, profile_of(asked))


def test_a_plain_prompt() -> None:
    assert body() == {"contents": [HELLO_TURN]}


def test_every_kind_of_message() -> None:
    calls = [PromptToolCall("1", "add", {"n": 12345678901234567890123}), PromptToolCall("2", "now", {})]
    assert body(
        Prompt(
            [
                PromptMessage("system", "be brief"),
                PromptMessage("user", "go"),
                PromptMessage("assistant", "Wait.", tool_calls=calls),
                PromptMessage("tool", '{"sum": 3}', tool_call_id="1"),
                PromptMessage("tool", "noon", tool_call_id="2"),
                PromptMessage("user", "and?"),
                PromptMessage("assistant", "Noon."),
            ]
        )
    ) == {
        "systemInstruction": {"parts": [{"text": "be brief"}]},
        "contents": [
            {"role": "user", "parts": [{"text": "go"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "Wait."},
                    {"functionCall": {"name": "add", "args": {"n": 12345678901234567890123}}},
                    {"functionCall": {"name": "now", "args": {}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "add", "response": {"sum": 3}}},
                    {"functionResponse": {"name": "now", "response": {"output": "noon"}}},
                ],
            },
            {"role": "user", "parts": [{"text": "and?"}]},
            {"role": "model", "parts": [{"text": "Noon."}]},
        ],
    }


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        ("[1, 2]", {"output": [1, 2]}),
        ("3", {"output": 3}),
        ("", {"output": ""}),
        ('{"a": 1, "a": 2}', {"output": '{"a": 1, "a": 2}'}),
    ],
)
def test_a_result_is_an_object(said: str, sent: Any) -> None:
    call = PromptMessage("assistant", "", tool_calls=[PromptToolCall("1", "f", {})])
    result = turns(call, PromptMessage("tool", said, tool_call_id="1"))[1]
    assert result["parts"] == [{"functionResponse": {"name": "f", "response": sent}}]


def test_neighbours_of_one_role_are_one_turn_and_silence_is_none() -> None:
    said = [PromptMessage("user", "a"), PromptMessage("assistant", ""), PromptMessage("user", "b")]
    assert turns(*said) == [{"role": "user", "parts": [{"text": "a"}, {"text": "b"}]}]


def test_a_result_without_its_call_is_text() -> None:
    assert turns(PromptMessage("tool", "noon", tool_call_id="?")) == [
        {"role": "user", "parts": [{"text": "noon"}]}
    ]


@pytest.mark.parametrize(
    ("model", "options", "signed"),
    [
        ("gemini-3-pro-preview", {}, True),
        ("gemini-flash-latest", {}, True),
        ("gemini-10-pro", {}, True),
        ("gemini-2.5-pro", {}, False),
        ("models/gemini-1.5-pro", {}, False),
        ("gemini-2.5-pro", {"sign_calls": True}, True),
        ("gemini-3-pro", {"sign_calls": False}, False),
    ],
)
def test_a_lost_signature_is_replaced_where_models_want_one(
    model: str, options: dict[str, Any], signed: bool
) -> None:
    calls = [PromptToolCall("1", "f", {}), PromptToolCall("2", "g", {})]
    prompt = Prompt([PromptMessage("assistant", "", tool_calls=calls)])
    first, second = body(prompt, options, model)["contents"][0]["parts"]
    assert first.get("thoughtSignature") == (NO_SIGNATURE if signed else None)
    assert "thoughtSignature" not in second


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("data:image/png;base64,eA==", {"inlineData": {"mimeType": "image/png", "data": "eA=="}}),
        ("DATA:Image/JPEG;x=1;base64,eA==", {"inlineData": {"mimeType": "image/jpeg", "data": "eA=="}}),
        ("data:image/svg+xml,%3Cx", {"inlineData": {"mimeType": "image/svg+xml", "data": "PHg="}}),
        (
            "https://p.test/a.png?b",
            {"fileData": {"mimeType": "image/png", "fileUri": "https://p.test/a.png?b"}},
        ),
        ("https://p.test/a", {"fileData": {"fileUri": "https://p.test/a"}}),
    ],
)
def test_images(url: str, part: Any) -> None:
    said = PromptMessage("user", "look", images=[url])
    assert turns(said) == [{"role": "user", "parts": [{"text": "look"}, part]}]


@pytest.mark.parametrize("url", ["data:image/png;base64", "data:image/png;base64,e"])
def test_an_image_that_cannot_be_read_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match="data URL"):
        turns(PromptMessage("user", "", images=[url]))


@pytest.mark.parametrize(
    ("details", "sent"),
    [
        (["auto"], None),
        (["low"], "MEDIA_RESOLUTION_LOW"),
        (["low", "auto"], None),
        (["low", "high"], "MEDIA_RESOLUTION_HIGH"),
    ],
)
def test_images_are_all_looked_at_alike(details: list[str], sent: str | None) -> None:
    said = [PromptMessage("user", "", images=["https://p.test/"], image_detail=one) for one in details]
    assert body(Prompt(said)).get("generationConfig", {}).get("mediaResolution") == sent


def test_tools() -> None:
    free = {"type": "object"}
    tools = [ToolSchema("add", "adds", OBJECT), ToolSchema("now", "", {"type": "object", "properties": {}})]
    assert body(Prompt(HELLO.messages, [*tools, ToolSchema("any", "", free)]))["tools"] == [
        {
            "functionDeclarations": [
                {"name": "add", "description": "adds", "parameters": IN_DIALECT},
                {"name": "now", "description": ""},
                {"name": "any", "description": "", "parametersJsonSchema": free},
            ]
        }
    ]
    whole = body(Prompt(HELLO.messages, tools), {"json_schema": True})["tools"][0]["functionDeclarations"]
    assert whole[0] == {"name": "add", "description": "adds", "parametersJsonSchema": OBJECT}


def test_a_schema_is_enforced_unless_only_the_rest_of_a_value_is_wanted() -> None:
    prompt = Prompt(HELLO.messages, response_schema=IN_DIALECT)
    config = {"responseMimeType": "application/json", "responseSchema": IN_DIALECT}
    assert body(prompt)["generationConfig"] == config
    assert "responseJsonSchema" in body(prompt, {"json_schema": True})["generationConfig"]
    assert "generationConfig" not in body(prompt, continue_from='{"x":')


@pytest.mark.parametrize(("told", "sent"), [(None, CONTINUE), ("more!", "more!")])
def test_going_on_from_a_text(told: str | None, sent: str) -> None:
    assert body(continue_from="Once", continue_prompt=told)["contents"] == [
        HELLO_TURN,
        {"role": "model", "parts": [{"text": "Once"}]},
        {"role": "user", "parts": [{"text": sent}]},
    ]


def test_options_go_where_the_api_wants_them() -> None:
    options = {
        "temperature": 0,
        "generationConfig": {"topK": 3, "thinkingConfig": {"includeThoughts": True}},
        "safetySettings": [],
    }
    sent = body(Prompt(HELLO.messages, options=options))
    assert sent["generationConfig"] == {
        "temperature": 0,
        "topK": 3,
        "thinkingConfig": {"includeThoughts": True},
    }
    assert sent["safetySettings"] == []


def test_the_endpoints_options_stand_behind_those_of_the_request() -> None:
    own = {"temperature": 1, "generationConfig": {"seed": 1}, "safetySettings": [], "labels": {"a": "b"}}
    sent = body(Prompt(HELLO.messages, options={"seed": 2, "labels": {}}), {"extra_body": own})
    assert sent["generationConfig"] == {"temperature": 1, "seed": 2}
    assert (sent["safetySettings"], sent["labels"]) == ([], {})


def test_an_endpoints_options_are_checked_by_name() -> None:
    with pytest.raises(Invalid) as caught:
        profile_of(endpoint(options={"extra_body": {"generationConfig": {"n": 2}}}))
    assert [(error.pointer, "generationConfig.n" in error.message) for error in caught.value.errors] == [
        ("/options/extra_body", True)
    ]


@pytest.mark.parametrize(
    ("options", "pointer"),
    [
        ({"max_tokens": 1}, "/max_tokens"),
        ({"candidateCount": 2}, "/candidateCount"),
        ({"contents": []}, "/contents"),
        ({"generationConfig": {"n": 2}}, "/generationConfig/n"),
        ({"generationConfig": 2}, "/generationConfig"),
    ],
)
def test_an_option_that_the_api_does_not_know_is_refused(options: dict[str, Any], pointer: str) -> None:
    with pytest.raises(Invalid) as caught:
        body(Prompt(HELLO.messages, options=options))
    assert [error.pointer for error in caught.value.errors] == [pointer]


@pytest.mark.parametrize(
    ("base_url", "model", "url"),
    [
        (
            None,
            "m",
            "https://generativelanguage.googleapis.com/v1beta/models/m:streamGenerateContent?alt=sse",
        ),
        ("http://h:1/v1/", "m", "http://h:1/v1/models/m:streamGenerateContent?alt=sse"),
        ("http://h?a=b", "tunedModels/t", "http://h/tunedModels/t:streamGenerateContent?a=b&alt=sse"),
        ("http://h/p?alt=json", "a?b#c", "http://h/p/models/a%3Fb%23c:streamGenerateContent?alt=sse"),
    ],
)
def test_the_url(base_url: str | None, model: str, url: str) -> None:
    assert str(url_of(endpoint(base_url, model))) == url


@pytest.mark.parametrize(
    "base_url",
    ["ftp://h", "/x", "http://u:p@h", "http://h#f", "http://h?key=secret", "http://h:99999", "http://h:x"],
)
def test_a_base_url_that_cannot_be_used(base_url: str) -> None:
    with pytest.raises(Invalid) as caught:
        url_of(endpoint(base_url))
    assert [error.pointer for error in caught.value.errors] == ["/base_url"]


def test_the_key_is_a_header() -> None:
    assert headers("k-1") == {**headers(None), "x-goog-api-key": "k-1"}
    assert headers("k-1", {"authorization": "Bearer t"}) == {**headers(None), "authorization": "Bearer t"}
    with pytest.raises(Invalid):
        headers("k\n1")
