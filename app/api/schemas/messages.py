"""Messages as clients send and see them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import orjson
from pydantic import ConfigDict, Field

from app.api.bodies import Body
from app.api.replies import instant
from app.api.schemas.common import PageView, View, refuse_filled
from app.core.images import MAX_IMAGES, Image
from app.core.json_text import dumps
from app.core.messages import (
    ROLES,
    AssistantContent,
    Content,
    InstructionContent,
    MessageKind,
    SystemContent,
)
from app.ports.catalog import SaidMessage
from app.ports.storage import StoredMessage

Sender = Annotated[str, Field(min_length=1, max_length=200)]


class SystemText(Body):
    """The content of a system message."""

    text: str

    def content(self) -> Content:
        """For the conversation."""
        return SystemContent(self.text)


class InstructionText(Body):
    """The content of an instruction."""

    instruction: Any = Field(None, description="Usually text; any JSON value.")
    guidance: Any = None
    context: Any = None
    images: Annotated[list[Image], Field(max_length=MAX_IMAGES)] = Field(
        default_factory=list, description="As in operate: http, https or data URLs."
    )
    response_format: dict[str, Any] | None = None

    def content(self) -> Content:
        """For the conversation."""
        return InstructionContent(
            self.instruction, self.guidance, self.context, tuple(self.images), self.response_format
        )


class AssistantText(Body):
    """The content of an answer."""

    text: str
    value: Any = None
    reasoning: str | None = None
    tool_calls: Annotated[list[Any], refuse_filled] = Field(
        default_factory=list, description="Has to be empty: calls come from runs alone."
    )

    def content(self) -> Content:
        """For the conversation."""
        return AssistantContent(self.text, self.value, self.reasoning)


class SystemMessage(Body):
    """Replaces the branch's system text."""

    kind: Literal["system"]
    content: SystemText
    sender: Sender | None = None


class InstructionMessage(Body):
    """What a model is to be thought of as asked."""

    kind: Literal["instruction"]
    content: InstructionText
    sender: Sender | None = None


class AssistantMessage(Body):
    """What it is to be thought of as having answered."""

    kind: Literal["assistant_response"]
    content: AssistantText
    sender: Sender | None = None


NewMessage = Annotated[SystemMessage | InstructionMessage | AssistantMessage, Field(discriminator="kind")]


class AppendMessages(Body):
    """Messages to be appended, in order."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "messages": [
                        {"kind": "instruction", "content": {"instruction": "Name a prime."}},
                        {"kind": "assistant_response", "content": {"text": "7"}},
                    ]
                }
            ]
        }
    )

    messages: Annotated[list[NewMessage], Field(min_length=1, max_length=1_000)]

    def said(self, branch_id: UUID) -> list[SaidMessage]:
        """For the repository."""
        user, branch = "user", str(branch_id)
        ends = {
            "system": ("system", branch),
            "instruction": (user, branch),
            "assistant_response": ("assistant", user),
        }
        return [
            SaidMessage(
                kind=one.kind,
                content=dumps(one.content.content().wire()).decode(),
                sender=one.sender or ends[one.kind][0],
                recipient=ends[one.kind][1],
            )
            for one in self.messages
        ]


class MessageView(View):
    """One entry of a conversation."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "019a0000-0000-7000-8000-000000000002",
                    "object": "message",
                    "kind": "assistant_response",
                    "position": 2,
                    "role": "assistant",
                    "sender": "assistant",
                    "recipient": "user",
                    "content": {"text": "7", "value": None, "reasoning": None, "tool_calls": []},
                    "run_id": "019a0000-0000-7000-8000-000000000003",
                    "superseded": False,
                    "created_at": "2026-11-30T12:00:00.000Z",
                }
            ]
        }
    )

    id: UUID
    object: Literal["message"]
    kind: Literal["system", "instruction", "assistant_response", "action_request", "action_response"]
    position: int = Field(description="Order in the branch; gaps mean nothing.")
    role: Literal["system", "user", "assistant", "action"]
    sender: str | None
    recipient: str | None
    content: dict[str, Any] = Field(
        description="system `{text}`; instruction `{instruction, guidance, context, images, "
        "response_format}`, and where they say something `image_detail`, `begins`, `provided`; "
        "assistant_response `{text, value, reasoning, tool_calls}`, and `opaque` where the provider wants "
        "something back that nobody else can read; "
        "action_request `{function, arguments, "
        "action_response_id}`; action_response `{function, arguments, output, action_request_id, error}`."
    )
    run_id: UUID | None = Field(description="The run that made it; in a fork, the parent's.")
    superseded: bool = Field(description="Whether its run was rolled back; no model is shown it any more.")
    created_at: datetime


class MessagePage(PageView[MessageView]):
    """One page of a conversation."""


class MessageList(View):
    """The messages that were appended, in order."""

    data: list[MessageView]


def message_view(message: StoredMessage) -> dict[str, Any]:
    """A message as `MessageView` says."""
    return {
        "id": message.id,
        "object": "message",
        "kind": message.kind,
        "position": message.position,
        "role": ROLES[MessageKind(message.kind)],
        "sender": message.sender,
        "recipient": message.recipient,
        "content": orjson.Fragment(_content(message)),
        "run_id": message.run_id,
        "superseded": message.superseded,
        "created_at": instant(message.created_at),
    }


def _content(message: StoredMessage) -> str:
    if message.kind != MessageKind.ACTION_REQUEST:
        return message.content
    # The link is stored at the response alone; here it joins the request's content, never empty, unparsed.
    link = "null" if message.action_response_id is None else f'"{message.action_response_id}"'
    return f'{message.content.rstrip()[:-1]},"action_response_id":{link}}}'
