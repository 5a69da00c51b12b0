"""A conversation that grows: its prompts are what they would be from scratch, and cost what is new."""

from __future__ import annotations

import gc
import tracemalloc
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
)
from app.core.operate.history import History, RawMessage
from app.core.operate.transcript import Transcript
from app.core.prompt import PromptMessage

KINDS = (
    "instruction",
    "answer",
    "empty answer",
    "native request",
    "told request",
    "null",
    "value",
    "failure",
)


def exact(made: bytes) -> bytes:
    """A copy that takes no more memory than its length."""
    return memoryview(made).tobytes()


def conversation(kinds: list[str], text: str = "") -> list[RawMessage]:
    """Messages in any order at all; a response answers the latest request, or one that there never was."""
    said: list[RawMessage] = []
    request = UUID(int=0)
    for number, kind in enumerate(kinds, start=1):
        content: Content
        match kind:
            case "instruction":
                content = InstructionContent(f"i{number}{text}", context={"n": number})
            case "answer" | "empty answer":
                content = AssistantContent(f"a{number}{text}" if kind == "answer" else "")
            case "native request" | "told request":
                request = UUID(int=number)
                id = "call" if kind == "native request" else None
                content = ActionRequestContent("add", {"a": number}, provider_call_id=id)
            case "failure":
                content = ActionResponseContent("add", {}, {"error": "no"}, str(request), "no")
            case _:
                output = None if kind == "null" else number
                content = ActionResponseContent("add", {}, output, str(request))
        said.append(RawMessage(UUID(int=number), content.kind, exact(dumps(content.wire()))))
    return said


def from_scratch(said: list[RawMessage], native: bool) -> list[PromptMessage]:
    transcript = Transcript(native=native)
    transcript.replay([raw.read() for raw in said])
    transcript.instruct(InstructionContent("now"))
    return transcript.messages


def shown(history: History, native: bool) -> list[PromptMessage]:
    transcript = history.transcript(native=native)
    transcript.instruct(InstructionContent("now"))
    return transcript.messages


growths = st.lists(
    st.tuples(st.lists(st.sampled_from(KINDS), max_size=6), st.sets(st.booleans())), min_size=1, max_size=8
)


@given(growths)
def test_a_prompt_is_what_it_would_be_from_scratch_however_the_conversation_came(
    growths: list[tuple[list[str], set[bool]]],
) -> None:
    whole = conversation([kind for kinds, _ in growths for kind in kinds])
    history, seen = History(), [(History(), 0)]
    for kinds, asked in growths:
        start = len(history.said)
        history = history.grown(whole[start : start + len(kinds)])
        for native in asked:
            assert shown(history, native) == from_scratch(whole[: len(history.said)], native)
        seen.append((history, len(history.said)))
    # Those that were made longer still say what they said.
    for shorter, length in seen:
        for native in (True, False):
            assert shown(shorter, native) == from_scratch(whole[:length], native)


TURN = ["instruction", "answer", "native request", "null"]


def test_the_next_turn_reads_what_is_new_and_the_last_answer() -> None:
    class Counting(RawMessage):
        reads = 0

        def read(self) -> Message:
            Counting.reads += 1
            return super().read()

    said = [Counting(*raw) for raw in conversation(TURN * 1_001)]
    history = History(said[:-4])
    history.transcript(native=True)
    assert Counting.reads == 4_000
    Counting.reads = 0
    history.grown(said[-4:]).transcript(native=True)
    assert Counting.reads <= 8


def test_what_was_shown_before_is_the_same_object() -> None:
    said = conversation(TURN * 3)
    history = History(said[:8])
    before = history.transcript(native=True).messages
    after = history.grown(said[8:]).transcript(native=True).messages
    assert [one is other for one, other in zip(before[:4], after[:4], strict=True)] == [True] * 4


@pytest.mark.parametrize("text", ["", "x" * 500, "é" * 500, "日" * 500, "😀" * 500])
def test_it_takes_no_more_memory_than_it_says(text: str) -> None:
    def rendered(message: PromptMessage) -> bytes:
        return exact(dumps({"role": message.role, "content": message.text}))

    tracemalloc.start()
    try:
        history = History(conversation(TURN * 200, text))
        for message in history.transcript(native=True).messages:
            message.rendered(rendered)
        del message
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert history.size / 2 < taken < history.size


def begun(marks: str) -> list[RawMessage]:
    """Instructions, those of a capital letter beginning the conversation anew."""
    return [
        RawMessage(
            UUID(int=at + 1),
            "instruction",
            dumps(InstructionContent(mark, begins=mark.isupper()).wire()),
        )
        for at, mark in enumerate(marks)
    ]


def texts(history: History) -> str:
    return "".join(message.text for message in history.transcript(native=False).messages)


@pytest.mark.parametrize(
    ("said", "shown"),
    [("", ""), ("ab", "ab"), ("abC", "C"), ("abCd", "Cd"), ("Abc", "Abc"), ("aBcDe", "De"), ("aBCd", "Cd")],
)
def test_a_conversation_is_shown_from_where_it_last_began(said: str, shown: str) -> None:
    assert texts(History(begun(said))) == shown


@given(st.text("abCD", max_size=20), st.integers(0, 20), st.booleans())
def test_one_that_grows_is_shown_from_there_too(said: str, cut: int, told: bool) -> None:
    messages = begun(said)
    grown = History(messages[:cut])
    if told:
        texts(grown)
    grown = grown.grown(messages[cut:])
    assert texts(grown) == texts(History(messages))


def test_chosen_messages_are_shown_wherever_the_conversation_began() -> None:
    messages = begun("abCd")
    history = History(messages)
    assert texts(history.only({messages[0].id, messages[3].id})) == "ad"


def test_each_half_of_a_call_leads_to_the_other() -> None:
    request, response = UUID(int=1), UUID(int=2)
    said = [
        RawMessage(request, "action_request", dumps(ActionRequestContent("add", {}).wire())),
        RawMessage(
            response, "action_response", dumps(ActionResponseContent("add", {}, 3, str(request)).wire())
        ),
    ]
    assert History(said).pairs() == {request: response, response: request}
