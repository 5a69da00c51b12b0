"""What a model server can say while it answers, whatever its wire format.

Not frozen: one of these is made per token, and a frozen dataclass costs twice as much to make.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.core.opaque import OpaqueBlock


@dataclass(slots=True)
class TextDelta:
    """A piece of the visible answer; may be empty."""

    text: str


@dataclass(slots=True)
class ReasoningDelta:
    """A piece of the model's reasoning, never part of the answer."""

    text: str


@dataclass(slots=True)
class RefusalDelta:
    """A piece of the text in which the model refuses."""

    text: str


@dataclass(slots=True)
class ToolCallDelta:
    """A fragment of one tool call; fragments with the same `index` belong together."""

    index: int
    """Position of the call in the answer, from 0."""
    id: str | None = None
    """The provider's id, where it sends one; the first one counts."""
    name: str | None = None
    """Name of the function; the first non-empty one counts."""
    arguments: str = ""
    """A further piece of the arguments' JSON text."""


@dataclass(slots=True)
class MessageBreak:
    """Another message of the same answer begins; `run_and_collect` makes one text of them."""


@dataclass(slots=True)
class ToolUse:
    """The model began to use a tool of its own; nobody here was asked, and nothing is to be run."""

    id: str
    name: str
    arguments: Any
    """JSON, cut to a text where it is long."""


@dataclass(slots=True)
class ToolOutcome:
    """What came of a tool that the model used by itself."""

    id: str
    """The same as in its `ToolUse`."""
    output: Any
    """JSON, cut to a text where it is long."""
    is_error: bool


@dataclass(slots=True)
class UsageReport:
    """Token counts so far; a later report replaces an earlier one.

    Whatever the wire calls them: the first two are whole, the others are parts of them, None where the wire
    does not say.
    """

    input_tokens: int
    """All that was read, from the server's cache or not; 0 where the wire does not say."""
    output_tokens: int
    """All that was made, reasoning included; 0 where the wire does not say."""
    cached_input_tokens: int | None = None
    """Of the input: read from the server's cache."""
    cache_write_tokens: int | None = None
    """Of the input: written to the server's cache."""
    reasoning_tokens: int | None = None
    """Of the output: reasoning."""


@dataclass(slots=True)
class FinishReason:
    """Why the model stopped."""

    reason: str | None
    """One of stop, length, tool_calls, content_filter, refusal; None when the word is not known.

    `paused`: the provider interrupted itself, and goes on when it is given the answer back.
    """
    raw: str
    """The provider's own word."""


@dataclass(slots=True)
class OpaqueBlocks:
    """What the provider must get back of this answer; without blocks, a sign that one is being written.

    Comes when all of the answer has come; places are counted from this answer's beginning.
    """

    blocks: Sequence[OpaqueBlock] = ()


@dataclass(slots=True)
class EndMark:
    """The wire's own sign that the answer is complete, such as `[DONE]`; nothing after it is read."""


@dataclass(slots=True)
class KeepAlive:
    """The server is alive but has said nothing: a comment, a heartbeat, a role-only delta."""


Chunk = (
    TextDelta
    | ReasoningDelta
    | RefusalDelta
    | ToolCallDelta
    | MessageBreak
    | ToolUse
    | ToolOutcome
    | UsageReport
    | FinishReason
    | OpaqueBlocks
    | EndMark
    | KeepAlive
)
