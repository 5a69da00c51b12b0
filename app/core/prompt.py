"""What is put before a model, in no provider's format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from app.core.opaque import Opaque, OpaqueBlock

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class PromptToolCall:
    """A tool call that the model made in an earlier turn."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One entry of a prompt."""

    role: Role
    text: str
    tool_calls: Sequence[PromptToolCall] = ()
    """Only on `assistant`."""
    tool_call_id: str | None = None
    """Only on `tool`: which call this is the result of."""
    images: Sequence[str] = ()
    """URLs or data URLs; only on `user`."""
    image_detail: str = "auto"
    """How closely they are to be looked at: auto, low or high."""
    opaque: Opaque | None = None
    """Only on `assistant`: what its provider wants back, if the message is as that provider wrote it."""
    _rendered: tuple[Callable[[PromptMessage], bytes], bytes] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def rendered(self, render: Callable[[PromptMessage], bytes]) -> bytes:
        """What `render` makes of it, made once: a conversation is sent again with each of its turns."""
        held = self._rendered
        if held is None or held[0] is not render:
            held = render, render(self)
            object.__setattr__(self, "_rendered", held)
        return held[1]

    def opaque_for(self, provider: str, model: str) -> Sequence[OpaqueBlock]:
        """The blocks to be given back to that model; none to another one."""
        held = self.opaque
        if held is None or (held.provider, held.model) != (provider, model):
            return ()
        return held.blocks


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """A tool as a model is shown it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema of the arguments, an object."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Everything a model is asked, apart from its connection settings."""

    messages: Sequence[PromptMessage]
    tools: Sequence[ToolSchema] = ()
    """Offered natively, for endpoints that take tools."""
    response_schema: Mapping[str, Any] | None = None
    """JSON Schema to be enforced natively, for endpoints that take one."""
    schema_name: str = "Response"
    options: Mapping[str, Any] = field(default_factory=dict)
    """Sampling options in the wire's own names: temperature, max_tokens …"""
