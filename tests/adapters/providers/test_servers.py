"""What the name of a server stands for: where it is, what it is sent and what not, what it wants back."""

from __future__ import annotations

import json
import re
from typing import Any, get_args

import pytest

from app.adapters.chat_completions.answer import AnswerReader
from app.adapters.chat_completions.profile import Profile, profile_of, url_of
from app.adapters.chat_completions.request import body_of, headers_of
from app.adapters.chat_completions.servers import SERVERS, ServerName
from app.core.chunks import Chunk, OpaqueBlocks
from app.core.errors import Invalid
from app.core.opaque import Opaque
from app.core.prompt import Prompt, PromptMessage, PromptToolCall
from app.ports.provider import ModelEndpoint
from tests.conftest import ROOT
from tests.support import chat_wire
from tests.support.answers import opening

PARALLEL = [PromptToolCall("call_1", "add", {"x": 1}), PromptToolCall("Ab3defgh9", "now", {})]
SAID = [
    PromptMessage("system", "Be brief."),
    PromptMessage("user", "hi"),
    PromptMessage("assistant", "", tool_calls=PARALLEL),
    PromptMessage("tool", "2", tool_call_id="call_1"),
    PromptMessage("tool", "noon", tool_call_id="Ab3defgh9"),
]


def body(server: str | None, said: list[PromptMessage] = SAID, **options: Any) -> dict[str, Any]:
    named = options if server is None else {"server": server, **options}
    prompt = Prompt(said, options={"max_tokens": 9})
    what = opening("openai", base_url="http://h/v1", options=named, prompt=prompt)
    made: dict[str, Any] = json.loads(body_of(what, profile_of(what.endpoint)))
    return made


def test_every_name_has_its_data_and_the_data_are_options() -> None:
    assert SERVERS.keys() == set(get_args(ServerName))
    for name, server in SERVERS.items():
        assert Profile.model_validate({"server": name, **server.options})
        assert not server.options or server.why


@pytest.mark.parametrize("name", SERVERS)
def test_the_documentation_says_what_each_name_stands_for(name: str) -> None:
    server = SERVERS[name]
    told = ", ".join(
        f"`{option}: {value if isinstance(value, str) else json.dumps(value)}`"
        for option, value in server.options.items()
    )
    where = "yours" if server.base_url is None else f"`{server.base_url}`"
    row = f"| `{name}` | {where} | {told or 'nothing'} |"
    assert row in (ROOT / "docs" / "http.md").read_text("utf-8"), row


@pytest.mark.parametrize("name", SERVERS)
def test_where_it_is(name: str) -> None:
    endpoint = ModelEndpoint("n", "openai", "m", options={"server": name})
    if SERVERS[name].base_url is None:
        with pytest.raises(Invalid) as caught:
            url_of(endpoint)
        assert caught.value.errors[0].pointer == "/base_url"
    else:
        assert str(url_of(endpoint)) == f"{SERVERS[name].base_url}/chat/completions"


def test_azure_has_its_deployment_its_version_and_its_key_in_places_of_their_own() -> None:
    base = "https://x.openai.azure.com/openai/deployments/gpt?api-version=2024-10-21"
    endpoint = ModelEndpoint("n", "openai", "m", base, api_key="secret", options={"server": "azure"})
    expected = "https://x.openai.azure.com/openai/deployments/gpt/chat/completions?api-version=2024-10-21"
    assert str(url_of(endpoint)) == expected
    headers = headers_of(endpoint, profile_of(endpoint))
    assert headers["api-key"] == "secret"
    assert "Authorization" not in headers


@pytest.mark.parametrize(
    ("name", "limit"), [(None, "max_tokens"), ("openai", "max_completion_tokens"), ("mistral", "max_tokens")]
)
def test_the_limit_has_the_name_that_the_server_knows(name: str | None, limit: str) -> None:
    assert {key: value for key, value in body(name).items() if key.startswith("max_")} == {limit: 9}


def test_a_limit_by_both_names_is_sent_by_one() -> None:
    sent = body("openai", extra_body={"max_completion_tokens": 5})
    assert (sent["max_completion_tokens"], "max_tokens" in sent) == (5, False)


@pytest.mark.parametrize("name", [None, *SERVERS])
def test_usage_is_asked_for_where_that_is_no_fault(name: str | None) -> None:
    assert ("stream_options" in body(name)) is (name != "mistral")


@pytest.mark.parametrize("name", [None, *SERVERS])
def test_the_schema_is_sent_where_it_is_taken(name: str | None) -> None:
    endpoint = ModelEndpoint("n", "openai", "m", options={} if name is None else {"server": name})
    assert profile_of(endpoint).native_schema is (name not in ("deepseek", "groq"))


def test_ids_of_nine_letters_pair_calls_and_results() -> None:
    sent = body("mistral")["messages"]
    first, second = (call["id"] for call in sent[2]["tool_calls"])
    assert re.fullmatch("[A-Za-z0-9]{9}", first)
    assert second == "Ab3defgh9"
    assert [message["tool_call_id"] for message in sent[3:]] == [first, second]
    assert body("openai")["messages"][2]["tool_calls"][0]["id"] == "call_1"


def test_the_systems_words_can_be_the_developers() -> None:
    assert body(None, system_role="developer")["messages"][0]["role"] == "developer"
    assert body(None)["messages"][0]["role"] == "system"


def test_what_the_model_says_itself_goes_before_what_its_server_stands_for() -> None:
    assert "stream_options" in body("mistral", include_usage=True)


# Reasoning that is wanted back


def read(options: dict[str, Any], *deltas: dict[str, Any]) -> list[Chunk]:
    endpoint = ModelEndpoint("n", "openai", "m", options=options)
    reader = AnswerReader(profile_of(endpoint))
    sent = b"".join(chat_wire.event({"choices": [{"index": 0, "delta": delta}]}) for delta in deltas)
    end = chat_wire.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return [*reader.feed(sent + end + chat_wire.DONE), *reader.finish()]


def turn(
    options: dict[str, Any], chunks: list[Chunk], calls: list[PromptToolCall] | None = None, of: str = "m"
) -> Any:
    """The answer in the next request."""
    blocks = [block for chunk in chunks if isinstance(chunk, OpaqueBlocks) for block in chunk.blocks]
    opaque = Opaque("openai", of, blocks) if blocks else None
    answer = PromptMessage("assistant", "so", tool_calls=calls or (), opaque=opaque)
    return body(options.get("server"), [PromptMessage("user", "hi"), answer])["messages"][1]


DETAILS = [
    {"type": "reasoning.text", "text": "", "format": "f", "index": 0},
    {"type": "reasoning.text", "text": "The t", "format": "f", "index": 0},
    {"type": "reasoning.text", "text": "ide.", "format": "f", "index": 0},
    {"type": "reasoning.text", "signature": "c2ln", "format": "f", "index": 0},
    {"type": "reasoning.encrypted", "data": "Zm9v", "index": 1, "id": "r1"},
]


def test_details_come_back_whole_and_signed() -> None:
    options = {"server": "openrouter"}
    chunks = read(options, *({"reasoning_details": [detail]} for detail in DETAILS), {"content": "so"})
    assert turn(options, chunks)["reasoning_details"] == [
        {"type": "reasoning.text", "text": "The tide.", "format": "f", "index": 0, "signature": "c2ln"},
        DETAILS[-1],
    ]
    assert "reasoning_details" not in turn(options, chunks, of="another")
    assert turn({}, chunks) == {"role": "assistant", "content": "so"}
    assert turn({"server": "deepseek"}, chunks, PARALLEL)["reasoning_content"] == "", "it was another's"


def test_reasoning_comes_back_with_calls_alone_and_is_empty_where_there_was_none() -> None:
    options = {"server": "deepseek"}
    chunks = read(options, {"reasoning_content": "Hm"}, {"reasoning_content": "m."}, {"content": "so"})
    assert "reasoning_content" not in turn(options, chunks)
    assert turn(options, chunks, PARALLEL)["reasoning_content"] == "Hmm."
    assert turn(options, chunks, PARALLEL, of="another")["reasoning_content"] == ""
    assert turn(options, [], PARALLEL)["reasoning_content"] == ""


@pytest.mark.parametrize("name", [None, *sorted(SERVERS.keys() - {"deepseek", "openrouter"})])
def test_nobody_else_is_given_reasoning(name: str | None) -> None:
    options = {} if name is None else {"server": name}
    chunks = read(options, {"reasoning": "Hm", "reasoning_details": DETAILS}, {"content": "so"})
    assert not any(isinstance(chunk, OpaqueBlocks) for chunk in chunks)
    assert turn(options, chunks, PARALLEL).keys() == {"role", "content", "tool_calls"}
