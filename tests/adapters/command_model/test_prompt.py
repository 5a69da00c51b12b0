"""How a conversation is put into arguments and standard input."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.adapters.command_model.command import Command
from app.adapters.command_model.prompt import GO_ON, Given, given_to
from app.core.errors import Invalid
from app.core.prompt import Prompt, PromptMessage, PromptToolCall, ToolSchema
from tests.support.answers import opening
from tests.support.commands import settings

SYSTEM, USER = PromptMessage("system", "Be brief."), PromptMessage("user", "Count.")
TALK = [SYSTEM, USER, PromptMessage("assistant", "One."), PromptMessage("user", "On.")]


def given(*argv: str, prompt: Prompt | list[PromptMessage], told: str = "json", **more: Any) -> Given:
    said = settings("agent", *argv, input=told)
    prompt = prompt if isinstance(prompt, Prompt) else Prompt(messages=prompt)
    what = opening("command", "gpt", prompt=prompt, **more)
    return given_to(Command(said, said.argv, {}, ()), what)


def test_json_tells_everything() -> None:
    call = PromptToolCall("c", "add", {"a": 12345678901234567890123})
    prompt = Prompt(
        messages=[
            SYSTEM,
            PromptMessage("user", "Look.", images=["https://x/y.png"]),
            PromptMessage("assistant", "", tool_calls=[call]),
            PromptMessage("tool", "3", tool_call_id="c"),
        ],
        tools=[ToolSchema("add", "Adds.", {"type": "object"})],
        options={"temperature": 0},
    )
    what = given("--model={model}", prompt=prompt)
    assert what.argv == ("agent", "--model=gpt")
    assert what.stdin.endswith(b"}\n")
    assert json.loads(what.stdin) == {
        "model": "gpt",
        "options": {"temperature": 0},
        "tools": [{"name": "add", "description": "Adds.", "parameters": {"type": "object"}}],
        "messages": [
            {"role": "system", "text": "Be brief."},
            {"role": "user", "text": "Look.", "images": ["https://x/y.png"]},
            {
                "role": "assistant",
                "text": "",
                "tool_calls": [{"id": "c", "name": "add", "arguments": {"a": 12345678901234567890123}}],
            },
            {"role": "tool", "text": "3", "tool_call_id": "c"},
        ],
    }


def test_a_lone_instruction_is_its_text() -> None:
    assert given(prompt=[USER], told="text").stdin == b"Count."


def test_a_conversation_is_a_text_with_its_roles() -> None:
    text = given(prompt=TALK, told="text").stdin.decode()
    assert text == "[system]\nBe brief.\n\n[user]\nCount.\n\n[assistant]\nOne.\n\n[user]\nOn."


def test_the_system_text_can_stand_apart() -> None:
    what = given("--system={system}", prompt=[SYSTEM, USER], told="text")
    assert (what.argv[1], what.stdin) == ("--system=Be brief.", b"Count.")
    what = given("--system={system}", prompt=[SYSTEM, USER])
    assert [message["role"] for message in json.loads(what.stdin)["messages"]] == ["user"]
    assert given("--system={system}", prompt=[USER], told="text").argv[1] == "--system="


def test_an_argument_can_tell_it() -> None:
    what = given("--", "{prompt}", prompt=[USER], told="argument")
    assert what == Given(("agent", "--", "Count."), b"")


@pytest.mark.parametrize("evil", ["{system}", "$(id)", "`id`", "; id", "-x\n--flag", "{prompt}", '"', "\\"])
def test_what_a_client_writes_is_one_argument_and_nothing_in_it_is_replaced(evil: str) -> None:
    prompt = [PromptMessage("system", "s"), PromptMessage("user", evil)]
    what = given("--system={system}", "--", "{prompt}", prompt=prompt, told="argument")
    assert what.argv == ("agent", "--system=s", "--", evil)


def test_an_unfinished_answer_is_shown_and_gone_on_with() -> None:
    said = json.loads(given(prompt=[USER], continue_from="One, ").stdin)["messages"]
    assert said[1:] == [{"role": "assistant", "text": "One, "}, {"role": "user", "text": GO_ON}]
    said = json.loads(given(prompt=[USER], continue_from="One, ", continue_prompt="go on").stdin)["messages"]
    assert said[-1]["text"] == "go on"
    assert len(json.loads(given(prompt=[USER], continue_from=" \n").stdin)["messages"]) == 1


@pytest.mark.parametrize("told", ["json", "text"])
def test_what_cannot_be_encoded_is_replaced(told: str) -> None:
    assert "\ufffd" in given(prompt=[PromptMessage("user", "a\ud800")], told=told).stdin.decode()


BAD = [
    (Prompt(messages=[USER], options={"temperature": 0}), "text", "temperature"),
    (Prompt(messages=[PromptMessage("user", "a", images=["https://x"])]), "text", "images"),
    (Prompt(messages=[PromptMessage("user", "a\0b")]), "argument", "NUL"),
]


@pytest.mark.parametrize(("prompt", "told", "words"), BAD)
def test_what_cannot_be_told_is_refused(prompt: Prompt, told: str, words: str) -> None:
    argv = ("--", "{prompt}") if told == "argument" else ()
    with pytest.raises(Invalid, match=words):
        given(*argv, prompt=prompt, told=told)
