"""Which answers are shown with what their provider wants back: those that are told as they were said."""

from __future__ import annotations

from uuid import UUID

import pytest

from app.core.json_text import dumps
from app.core.messages import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantContent,
    ModelToolCall,
)
from app.core.opaque import Opaque, OpaqueBlock
from app.core.operate.history import History, RawMessage

OPAQUE = Opaque("anthropic", "claude", (OpaqueBlock('{"type": "thinking"}'),))


def turn(*carried_out: str, asked: str = "ab", first: int = 1) -> list[RawMessage]:
    """An answer that asks for calls by their ids, and those of them that were carried out."""
    calls = [ModelToolCall(id, "add", {}) for id in asked]
    answer = AssistantContent("Two calls.", tool_calls=calls, opaque=OPAQUE)
    said = [RawMessage(UUID(int=first), "assistant_response", dumps(answer.wire()))]
    for at, id in enumerate(carried_out):
        request, response = UUID(int=first + 1 + 2 * at), UUID(int=first + 2 + 2 * at)
        content = ActionRequestContent("add", {}, provider_call_id=id)
        said.append(RawMessage(request, "action_request", dumps(content.stored())))
        ended = ActionResponseContent("add", {}, 1, str(request))
        said.append(RawMessage(response, "action_response", dumps(ended.wire())))
    return said


def shown(said: list[RawMessage], *, native: bool = True) -> list[bool]:
    """For each answer, whether it is shown with its blocks."""
    messages = History(said).transcript(native=native).messages
    return [message.opaque is not None for message in messages if message.role == "assistant"]


@pytest.mark.parametrize(
    ("carried_out", "whole"), [("ab", True), ("a", False), ("b", False), ("ba", False), ("", False)]
)
def test_all_calls_have_to_be_told_in_their_order(carried_out: str, whole: bool) -> None:
    assert shown(turn(*carried_out)) == [whole]


def test_calls_that_are_told_as_text_are_not_told_as_they_were_said() -> None:
    assert shown(turn("a", "b"), native=False) == [False]
    assert shown(turn(asked=""), native=False) == [True]


def test_an_id_that_is_used_again_is_told_as_another() -> None:
    assert shown([*turn("a", "b"), *turn("a", "b", first=10)]) == [True, False]
