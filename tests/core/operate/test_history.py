"""Which messages a model is shown."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import Invalid
from app.core.messages import AssistantContent, Content, InstructionContent, Message, SystemContent
from app.core.operate.history import progression_of, since_begin, system_alone

MARKS: dict[str, Content] = {
    "s": SystemContent("s"),
    "i": InstructionContent("i"),
    "a": AssistantContent("a"),
    "B": InstructionContent("B", begins=True),
}


def conversation(marks: str) -> list[Message]:
    return [Message(UUID(int=at), MARKS[mark]) for at, mark in enumerate(marks)]


def marks_of(messages: list[Message]) -> str:
    by_content: dict[int, str] = {id(content): mark for mark, content in MARKS.items()}

    def mark(content: Content) -> str:
        return by_content[id(content)]

    return "".join(mark(message.content) for message in messages)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("", ""),
        ("iaia", "iaia"),
        ("iaBa", "Ba"),
        ("Baia", "Baia"),
        ("siaBaia", "sBaia"),
        ("iasaBsaBsaia", "ssBsaia"),
        ("iaB", "B"),
    ],
)
def test_a_conversation_is_shown_from_where_it_last_began(said: str, shown: str) -> None:
    assert marks_of(list(since_begin(conversation(said)))) == shown


@given(st.text("siaB", max_size=30))
def test_nothing_is_lost_but_what_was_before(said: str) -> None:
    history = conversation(said)
    shown = list(since_begin(history))
    start = max(said.rfind("B"), 0)
    assert shown == [*system_alone(history[:start]), *history[start:]]


IDS = [UUID(int=at) for at in range(1, 7)]
PAIRS = {IDS[2]: IDS[3], IDS[3]: IDS[2]}


@pytest.mark.parametrize("places", [[], [0], [0, 5], [1, 2, 3], [0, 1, 2, 3, 4, 5]])
def test_a_progression_names_messages_in_order(places: list[int]) -> None:
    ids = tuple(IDS[place] for place in places)
    assert progression_of([str(id) for id in ids], IDS, PAIRS) == ids


@pytest.mark.parametrize(
    ("asked", "faults"),
    [
        (["x"], [("/progression/0", "unknown_message")]),
        ([str(UUID(int=99))], [("/progression/0", "unknown_message")]),
        ([str(IDS[0]), str(IDS[0])], [("/progression/1", "out_of_order")]),
        ([str(IDS[4]), str(IDS[1]), str(IDS[5])], [("/progression/1", "out_of_order")]),
        ([str(IDS[2])], [("/progression/0", "half_a_call")]),
        ([str(IDS[1]), str(IDS[3])], [("/progression/1", "half_a_call")]),
        (
            ["x", str(IDS[3]), "y"],
            [
                ("/progression/0", "unknown_message"),
                ("/progression/1", "half_a_call"),
                ("/progression/2", "unknown_message"),
            ],
        ),
    ],
)
def test_what_cannot_stand_in_a_progression(asked: list[str], faults: list[tuple[str, str]]) -> None:
    with pytest.raises(Invalid) as refused:
        progression_of(asked, IDS, PAIRS)
    assert [(fault.pointer, fault.code) for fault in refused.value.errors] == faults
