"""Messages: what is stored is read back, and the wire says no more and no less."""

from __future__ import annotations

from uuid import UUID

import pytest
from pydantic_core import from_json

from app.core.json_text import dumps
from app.core.messages import (
    ROLES,
    ActionRequestContent,
    ActionResponseContent,
    AssistantContent,
    Content,
    InstructionContent,
    Message,
    MessageKind,
    ModelToolCall,
    SystemContent,
    read_content,
)
from app.core.opaque import Opaque, OpaqueBlock

EXAMPLES: list[Content] = [
    SystemContent("You add."),
    InstructionContent("hi", {"g": 1}, [2], ("https://x/a.png",), {"type": "object"}),
    InstructionContent("hi", image_detail="low", begins=True, provided={"shelf": [1]}),
    InstructionContent(),
    AssistantContent("hello", {"x": None}, "because", (ModelToolCall("c1", "add", {"a": 1}),)),
    AssistantContent(""),
    ActionRequestContent("add", {"a": 1}, provider_call_id="c1"),
    ActionRequestContent("add", [1]),
    ActionResponseContent("add", {"a": 1}, None, "r1"),
    ActionResponseContent("add", {}, {"error": "E: m"}, "r1", "E: m", output_truncated=True),
]


def test_what_a_provider_wants_back_is_stored_as_it_wrote_it() -> None:
    blocks = (OpaqueBlock('{"b": 1.50, "a": 2}'), OpaqueBlock("{}", at=3, span=2, calls=1, of_call=True))
    content = AssistantContent("texts", opaque=Opaque("anthropic", "claude", blocks))
    stored = from_json(dumps(content.wire()))
    assert stored["opaque"]["blocks"][0] == {"json": '{"b": 1.50, "a": 2}'}
    assert read_content(content.kind, stored) == content


@pytest.mark.parametrize("content", EXAMPLES, ids=lambda content: content.kind.value)
def test_what_is_stored_is_read_back(content: Content) -> None:
    assert read_content(content.kind, content.wire()) == content


def test_the_wire_forms_are_those_of_the_contract() -> None:
    assert {content.kind: set(content.wire()) for content in reversed(EXAMPLES)} == {
        MessageKind.SYSTEM: {"text"},
        MessageKind.INSTRUCTION: {"instruction", "guidance", "context", "images", "response_format"},
        MessageKind.ASSISTANT_RESPONSE: {"text", "value", "reasoning", "tool_calls"},
        MessageKind.ACTION_REQUEST: {"function", "arguments", "action_response_id", "provider_call_id"},
        MessageKind.ACTION_RESPONSE: {"function", "arguments", "output", "action_request_id", "error"},
    }


def test_the_link_is_stored_with_the_response_alone() -> None:
    request = ActionRequestContent("add", {}, action_response_id="r2")
    assert request.stored() == {"function": "add", "arguments": {}}
    assert request.wire()["action_response_id"] == "r2"


def test_the_role_follows_from_the_kind() -> None:
    assert set(ROLES) == set(MessageKind)
    assert [Message(UUID(int=0), content).role for content in EXAMPLES[:5]] == [
        "system",
        "user",
        "user",
        "user",
        "assistant",
    ]
    assert Message(UUID(int=0), EXAMPLES[-1]).role == "action"


def test_an_error_is_no_success_whatever_the_output() -> None:
    assert ActionResponseContent("add", {}, None, "r").success
    assert not ActionResponseContent("add", {}, None, "r", "").success


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="poem"):
        read_content("poem", {})
