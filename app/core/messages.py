"""The five kinds of message a branch is made of, and the content each one carries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Self
from uuid import UUID

from app.core.opaque import Opaque


class MessageKind(StrEnum):
    """What a message is."""

    SYSTEM = "system"
    INSTRUCTION = "instruction"
    ASSISTANT_RESPONSE = "assistant_response"
    ACTION_REQUEST = "action_request"
    ACTION_RESPONSE = "action_response"


ROLES: dict[MessageKind, str] = {
    MessageKind.SYSTEM: "system",
    MessageKind.INSTRUCTION: "user",
    MessageKind.ASSISTANT_RESPONSE: "assistant",
    MessageKind.ACTION_REQUEST: "action",
    MessageKind.ACTION_RESPONSE: "action",
}
"""The role follows from the kind; a client never sets it."""


@dataclass(frozen=True, slots=True)
class SystemContent:
    """What a branch is told once, before everything else."""

    kind: ClassVar[MessageKind] = MessageKind.SYSTEM

    text: str

    def wire(self) -> dict[str, Any]:
        """The stored and sent form."""
        return {"text": self.text}

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """Read the stored form."""
        return cls(content["text"])


@dataclass(frozen=True, slots=True)
class InstructionContent:
    """What a model was asked."""

    kind: ClassVar[MessageKind] = MessageKind.INSTRUCTION

    instruction: Any = None
    """Any JSON value; usually text."""
    guidance: Any = None
    context: Any = None
    images: Sequence[str] = ()
    """URLs or data URLs."""
    response_format: Mapping[str, Any] | None = None
    image_detail: str = "auto"
    """How closely the images are to be looked at: auto, low or high."""
    begins: bool = False
    """Whether models are shown the conversation from here on only."""
    provided: Mapping[str, Any] = field(default_factory=dict)
    """What context providers added, by their names."""

    def wire(self) -> dict[str, Any]:
        """The stored and sent form; what is as usual with the last three is left out."""
        out = {
            "instruction": self.instruction,
            "guidance": self.guidance,
            "context": self.context,
            "images": list(self.images),
            "response_format": self.response_format,
        }
        if self.image_detail != "auto":
            out["image_detail"] = self.image_detail
        if self.begins:
            out["begins"] = True
        if self.provided:
            out["provided"] = dict(self.provided)
        return out

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """Read the stored form."""
        return cls(
            instruction=content.get("instruction"),
            guidance=content.get("guidance"),
            context=content.get("context"),
            images=tuple(content.get("images") or ()),
            response_format=content.get("response_format"),
            image_detail=content.get("image_detail", "auto"),
            begins=content.get("begins", False),
            provided=content.get("provided") or {},
        )


@dataclass(frozen=True, slots=True)
class ModelToolCall:
    """A tool call as the model made it."""

    id: str
    """The provider's id; providers use one again in later turns."""
    name: str
    arguments: Mapping[str, Any]

    def wire(self) -> dict[str, Any]:
        """The stored and sent form."""
        return {"id": self.id, "name": self.name, "arguments": self.arguments}


@dataclass(frozen=True, slots=True)
class AssistantContent:
    """What a model answered."""

    kind: ClassVar[MessageKind] = MessageKind.ASSISTANT_RESPONSE

    text: str
    value: Any = None
    """The validated value, when one was asked for."""
    reasoning: str | None = None
    tool_calls: Sequence[ModelToolCall] = ()
    opaque: Opaque | None = None
    """What the provider wants back exactly as it came; left out when there is none."""

    def wire(self) -> dict[str, Any]:
        """The stored and sent form."""
        out = {
            "text": self.text,
            "value": self.value,
            "reasoning": self.reasoning,
            "tool_calls": [call.wire() for call in self.tool_calls],
        }
        if self.opaque is not None:
            out["opaque"] = self.opaque.wire()
        return out

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """Read the stored form."""
        calls = content.get("tool_calls") or ()
        return cls(
            text=content.get("text") or "",
            value=content.get("value"),
            reasoning=content.get("reasoning"),
            tool_calls=tuple(ModelToolCall(c["id"], c["name"], c["arguments"]) for c in calls),
            opaque=Opaque.of(content["opaque"]) if "opaque" in content else None,
        )


@dataclass(frozen=True, slots=True)
class ActionRequestContent:
    """A tool call that was asked for."""

    kind: ClassVar[MessageKind] = MessageKind.ACTION_REQUEST

    function: str
    arguments: Any = field(default_factory=dict)
    """An object; what else was sent in its place, when it was none."""
    action_response_id: str | None = None
    """Read by a join with the response, never stored."""
    provider_call_id: str | None = None
    """The model's own id of the call; left out when there is none."""

    def wire(self) -> dict[str, Any]:
        """The sent form; the stored one is the same without `action_response_id`."""
        out = {
            "function": self.function,
            "arguments": self.arguments,
            "action_response_id": self.action_response_id,
        }
        if self.provider_call_id is not None:
            out["provider_call_id"] = self.provider_call_id
        return out

    def stored(self) -> dict[str, Any]:
        """The stored form: the link has one home, the response."""
        out = self.wire()
        del out["action_response_id"]
        return out

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """Read the stored or the sent form."""
        return cls(
            function=content["function"],
            arguments=content.get("arguments"),
            action_response_id=content.get("action_response_id"),
            provider_call_id=content.get("provider_call_id"),
        )


@dataclass(frozen=True, slots=True)
class ActionResponseContent:
    """How a tool call ended."""

    kind: ClassVar[MessageKind] = MessageKind.ACTION_RESPONSE

    function: str
    arguments: Any
    output: Any
    """The tool's result; of a call that did not succeed, an object with `error`."""
    action_request_id: str
    error: str | None = None
    """Null when the call succeeded, whatever its output."""
    output_truncated: bool = False
    """True when the output was too large to be stored whole; left out otherwise."""

    @property
    def success(self) -> bool:
        """Whether the call gave a result."""
        return self.error is None

    def wire(self) -> dict[str, Any]:
        """The stored and sent form."""
        out = {
            "function": self.function,
            "arguments": self.arguments,
            "output": self.output,
            "action_request_id": self.action_request_id,
            "error": self.error,
        }
        if self.output_truncated:
            out["output_truncated"] = True
        return out

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """Read the stored form."""
        return cls(
            function=content["function"],
            arguments=content.get("arguments"),
            output=content.get("output"),
            action_request_id=content["action_request_id"],
            error=content.get("error"),
            output_truncated=content.get("output_truncated", False),
        )


Content = SystemContent | InstructionContent | AssistantContent | ActionRequestContent | ActionResponseContent

_KINDS: tuple[type[Content], ...] = (
    SystemContent,
    InstructionContent,
    AssistantContent,
    ActionRequestContent,
    ActionResponseContent,
)
_CONTENT = {cls.kind: cls for cls in _KINDS}


@dataclass(frozen=True, slots=True)
class Message:
    """A message as a prompt needs it: which one it is, and what it says."""

    id: UUID
    content: Content

    @property
    def kind(self) -> MessageKind:
        """What it is."""
        return self.content.kind

    @property
    def role(self) -> str:
        """Who speaks, as the wire says it."""
        return ROLES[self.kind]


def read_content(kind: str, content: Mapping[str, Any]) -> Content:
    """The content of a stored message. Raises ValueError for an unknown kind, KeyError for a missing part."""
    return _CONTENT[MessageKind(kind)].of(content)
