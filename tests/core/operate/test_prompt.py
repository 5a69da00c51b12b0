"""The prompt of one turn: everything that was said, once, in order, and nothing untrue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.json_text import dumps
from app.core.messages import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantContent,
    Content,
    InstructionContent,
    Message,
    SystemContent,
)
from app.core.operate.asking import ask_for
from app.core.operate.history import History, RawMessage
from app.core.operate.params import OperateParams
from app.core.operate.prompt import build_prompt
from app.core.operate.transcript import Transcript, instruction_text
from app.core.prompt import Prompt, PromptMessage, PromptToolCall, ToolSchema

ADD = ToolSchema("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})
FAILURE = {"error": "ValueError: no", "function": "add", "arguments": {"a": 2}}


def history(*contents: Content) -> History:
    return History([raw(number, content) for number, content in enumerate(contents)])


def raw(number: int, content: Content) -> RawMessage:
    return RawMessage(UUID(int=number), content.kind, dumps(content.wire()))


def call(provider_id: str | None = None, a: int = 1) -> ActionRequestContent:
    return ActionRequestContent("add", {"a": a}, provider_call_id=provider_id)


def answer(to: int, output: Any = 3, error: str | None = None, a: int = 1) -> ActionResponseContent:
    """The response to the message at position `to`."""
    return ActionResponseContent("add", {"a": a}, output, str(UUID(int=to)), error)


def prompt(
    *contents: Content, tools: bool = False, native: bool = True, system: str | None = None, **params: Any
) -> Prompt:
    asked = OperateParams(instruction="now", chat_model="m", actions=tools, **params)
    asking = ask_for(asked, [ADD], takes_tools=native, takes_schema=native)
    return build_prompt(history(*contents), asked, asking, system=system)


def test_a_bare_instruction_is_all_that_is_said() -> None:
    assert prompt() == Prompt([PromptMessage("user", "now")])


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (InstructionContent("hi"), "hi"),
        (InstructionContent({"task": 1}), '{"task":1}'),
        (InstructionContent("hi", "briefly"), "## Guidance\nbriefly\n\n## Instruction\nhi"),
        (InstructionContent("hi", context=[1, None]), "## Instruction\nhi\n\n## Context\n[1,null]"),
        (InstructionContent("hi", "", context=0), "## Instruction\nhi\n\n## Context\n0"),
        (InstructionContent(None, "briefly"), "## Guidance\nbriefly"),
        (
            InstructionContent("hi", context="c", provided={"shelf": {"books": 2}, "clock": "noon"}),
            "## Instruction\nhi\n\n## Context\nc\n\n"
            '## Context from shelf\n{"books":2}\n\n## Context from clock\nnoon',
        ),
    ],
)
def test_sections_have_headings_only_where_there_are_several(content: InstructionContent, text: str) -> None:
    assert instruction_text(content) == text


def test_a_conversation_is_replayed_in_order() -> None:
    made = prompt(
        SystemContent("You add."),
        InstructionContent("hi", images=("https://x/a.png",)),
        AssistantContent("hello", value={"x": 1}, reasoning="hm"),
        system="Branch.",
        images=("data:image/png;base64,AA==",),
        model_options={"temperature": 0},
    )
    assert made.messages == [
        PromptMessage("system", "Branch."),
        PromptMessage("system", "You add."),
        PromptMessage("user", "hi", images=("https://x/a.png",)),
        PromptMessage("assistant", "hello"),
        PromptMessage("user", "now", images=("data:image/png;base64,AA==",)),
    ]
    assert made.options == {"temperature": 0}


TURN = (
    InstructionContent("first"),
    AssistantContent("calling"),
    call("c1", 1),
    call("c2", 2),
    answer(2, None, a=1),
    answer(3, FAILURE, "ValueError: no", a=2),
)


def test_native_calls_are_replayed_as_tool_messages() -> None:
    made = prompt(*TURN, tools=True)
    assert made.messages == [
        PromptMessage("user", "first"),
        PromptMessage(
            "assistant",
            "calling",
            tool_calls=(PromptToolCall("c1", "add", {"a": 1}), PromptToolCall("c2", "add", {"a": 2})),
        ),
        PromptMessage("tool", "null", tool_call_id="c1"),
        PromptMessage("tool", json.dumps(FAILURE, separators=(",", ":")), tool_call_id="c2"),
        PromptMessage("user", "now"),
    ]
    assert made.tools == (ADD,)


@pytest.mark.parametrize(
    "tools", [{"tools": True, "native": False}, {"tools": False}, {"tools": True, "reason": True}]
)
def test_without_native_tools_results_are_told_in_the_next_instruction(tools: dict[str, Any]) -> None:
    first, spoken, last = prompt(*TURN, **tools).messages
    assert (first.text, spoken.text, spoken.tool_calls) == ("first", "calling", ())
    results = section(last.text, "Results of earlier tool calls")
    assert json.loads(results) == [
        {"function": "add", "arguments": {"a": 1}, "output": None, "error": None},
        {"function": "add", "arguments": {"a": 2}, "output": FAILURE, "error": "ValueError: no"},
    ]


def section(text: str, heading: str) -> str:
    return text.split(f"## {heading}\n", 1)[1].split("\n\n## ", 1)[0]


def test_each_result_is_told_once_in_the_instruction_after_it() -> None:
    second, third = InstructionContent("second"), InstructionContent("third")
    messages = prompt(*TURN, second, third, native=False).messages
    assert [("Results" in message.text) for message in messages] == [False, False, True, False, False]


def test_calls_made_without_a_model_are_told_too() -> None:
    messages = prompt(call(), answer(0, "text"), tools=True).messages
    (told,) = json.loads(section(messages[0].text, "Results of earlier tool calls"))
    assert told == {"function": "add", "arguments": {"a": 1}, "output": "text", "error": None}


def test_a_mixed_turn_keeps_both_ways() -> None:
    messages = prompt(
        InstructionContent("first"),
        AssistantContent(""),
        call("c1"),
        call(None, 2),
        answer(2, "x"),
        answer(3, 4),
        tools=True,
    ).messages
    assert [message.role for message in messages] == ["user", "assistant", "tool", "user"]
    assert messages[2].text == "x"
    assert len(json.loads(section(messages[3].text, "Results of earlier tool calls"))) == 1


def test_a_call_without_a_result_is_not_passed_over() -> None:
    native = prompt(InstructionContent("first"), AssistantContent(""), call("c1"), tools=True).messages
    assert json.loads(native[2].text) == {"error": "no result was recorded"}
    told = prompt(InstructionContent("first"), AssistantContent("x"), call(None)).messages[-1]
    assert (
        json.loads(section(told.text, "Results of earlier tool calls"))[0]["error"]
        == "no result was recorded"
    )


def test_an_empty_answer_without_calls_leaves_no_message() -> None:
    assert [m.role for m in prompt(InstructionContent("a"), AssistantContent("")).messages] == [
        "user",
        "user",
    ]


def test_ids_that_a_provider_uses_twice_are_told_apart() -> None:
    contents: list[Content] = []
    for _ in range(3):
        contents += [InstructionContent("go"), AssistantContent("")]
        for a in (1, 2):
            contents.append(call("call_1", a))
        contents += [answer(len(contents) - 2, "one"), answer(len(contents) - 1, "two")]
    messages = prompt(*contents, tools=True).messages
    made = [c.id for message in messages for c in message.tool_calls]
    answered = [message.tool_call_id for message in messages if message.role == "tool"]
    assert made == answered
    assert len(set(made)) == 6
    assert [message.text for message in messages if message.role == "tool"] == ["one", "two"] * 3


def test_what_the_endpoint_does_not_take_is_put_into_the_prompt() -> None:
    made = prompt(tools=True, native=False, guidance="briefly")
    (message,) = made.messages
    assert made.tools == ()
    assert made.response_schema is None
    headings = [line for line in message.text.splitlines() if line.startswith("## ")]
    assert headings == ["## Guidance", "## Instruction", "## Tools", "## Response format"]
    listed = json.loads(section(message.text, "Tools").splitlines()[-1])
    assert listed == [{"function": "add", "description": "Adds.", "arguments": ADD.parameters}]
    schema = json.loads(section(message.text, "Response format").splitlines()[-1])
    assert schema["title"] == "OperativeRequest"


def test_what_the_endpoint_takes_is_not() -> None:
    schema = {"title": "Größe / m", "type": "object", "properties": {"a": {}}}
    made = prompt(response_format=schema)
    assert made.messages == [PromptMessage("user", "now")]
    assert made.response_schema is not None
    assert made.response_schema["title"] == "Größe / mRequest"
    assert made.schema_name == "Gr__e___mRequest"


def test_told_tools_are_described_and_not_offered() -> None:
    told = {"name": "rm", "parameters": {}}
    for options in ({}, {"response_format": {"type": "object"}}, {"native": False}):
        made = prompt(tool_schemas=(told,), **options)
        assert made.tools == ()
        assert json.loads(section(made.messages[-1].text, "Tools").splitlines()[-1]) == [told]


def test_how_closely_images_are_looked_at_is_kept() -> None:
    url = "https://x/a.png"
    made = prompt(
        InstructionContent("hi", images=(url,), image_detail="low"), images=(url,), image_detail="high"
    )
    assert [message.image_detail for message in made.messages] == ["low", "high"]


def test_a_model_may_be_told_how_much_was_said() -> None:
    made = prompt(
        InstructionContent("x" * 400), AssistantContent("ü" * 200), include_token_usage_to_model=True
    )
    assert "about 201 tokens" in section(made.messages[-1].text, "Token usage")
    assert "Token usage" not in prompt().messages[-1].text


def test_a_schema_name_is_never_too_long() -> None:
    made = prompt(response_format={"title": "x" * 100, "type": "object"})
    assert made.schema_name == "x" * 57 + "Request"


contents = st.lists(
    st.sampled_from(["instruction", "answer", "native", "told", "unanswered", "system"]), max_size=20
)


def branch(kinds: list[str]) -> Iterator[Content]:
    position = 0
    for number, kind in enumerate(kinds):
        match kind:
            case "instruction":
                made: list[Content] = [InstructionContent(f"i{number}")]
            case "answer":
                made = [AssistantContent(f"a{number}")]
            case "system":
                made = [SystemContent(f"s{number}")]
            case "unanswered":
                made = [call("c", number)]
            case _:
                made = [
                    call("c" if kind == "native" else None, number),
                    answer(position, f"o{number}", a=number),
                ]
        yield from made
        position += len(made)


@given(contents, st.booleans())
def test_everything_is_said_exactly_once(kinds: list[str], native: bool) -> None:
    messages = prompt(*branch(kinds), tools=True, native=native).messages
    said = " ".join(
        [*(m.text for m in messages), *(str(c.arguments["a"]) for m in messages for c in m.tool_calls)]
    )
    for number, kind in enumerate(kinds):
        mark = {"instruction": f"i{number}", "answer": f"a{number}", "system": f"s{number}"}.get(kind)
        if kind in ("native", "told"):
            mark = f"o{number}"
        if mark is not None:
            assert said.replace('"', " ").split().count(mark) == 1
    ids = [c.id for message in messages for c in message.tool_calls]
    assert ids == [message.tool_call_id for message in messages if message.role == "tool"]
    assert len(ids) == len(set(ids))
    assert messages[-1].role == "user"


def test_the_work_grows_with_the_messages_and_not_faster() -> None:
    class Counting(list[Message]):
        reads = 0

        def __getitem__(self, index: Any) -> Any:
            found = super().__getitem__(index)
            Counting.reads += len(found) if isinstance(index, slice) else 1
            return found

    reads = []
    for turns in (10, 100):
        said = [content for _ in range(turns) for content in TURN]
        messages = Counting(message.read() for message in history(*said).said)
        Counting.reads = 0
        Transcript(native=True).replay(messages)
        reads.append(Counting.reads)
    assert reads[1] < 11 * reads[0]
