"""What one attempt at a model used: what its server reported, and an estimate of what it did not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from app.core.json_text import dumps
from app.core.lifecycle.effects import AttemptEnded
from app.core.prompt import Prompt

CHARACTERS_PER_TOKEN: Final = 4
"""The rule of the estimates: about right for English, too low for most other languages."""
MAX_COUNT: Final = 2**31 - 1
"""Most tokens that are believed of one attempt."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one attempt. None: the wire did not say; a part is never more than its whole."""

    input_tokens: int
    """All that was read."""
    output_tokens: int
    """All that was made, reasoning included."""
    cached_input_tokens: int | None = None
    """Of the input: read from the server's cache."""
    cache_write_tokens: int | None = None
    """Of the input: written to the server's cache; none of it is read from there."""
    reasoning_tokens: int | None = None
    """Of the output."""
    reported: bool = False
    """Whether the server told any of it."""
    estimated: bool = False
    """Whether some of it is an estimate."""

    def plus(self, other: Usage) -> Usage:
        """What both together used; a part is known where either of them tells it."""
        return _usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            _sum(self.cached_input_tokens, other.cached_input_tokens),
            _sum(self.cache_write_tokens, other.cache_write_tokens),
            _sum(self.reasoning_tokens, other.reasoning_tokens),
            reported=self.reported or other.reported,
            estimated=self.estimated or other.estimated,
        )


def _usage(
    read: int,
    made: int,
    cached: int | None,
    written: int | None,
    reasoning: int | None,
    *,
    reported: bool,
    estimated: bool,
) -> Usage:
    """Counts that can be believed of one attempt: none is too great, nor a part more than its whole."""
    read, made = min(read, MAX_COUNT), min(made, MAX_COUNT)
    cached = _part(cached, read)
    written = _part(written, read - (cached or 0))
    return Usage(read, made, cached, written, _part(reasoning, made), reported, estimated)


def _part(count: int | None, whole: int) -> int | None:
    return None if count is None else min(count, whole)


def _sum(one: int | None, other: int | None) -> int | None:
    return one if other is None else other + (one or 0)


def usage_of(end: AttemptEnded, prompt_length: Callable[[], int]) -> Usage:
    """What a model call used that ended so; `prompt_length` gives the code points of what it was asked.

    A report that was made when the answer was all there is taken as it is. Of any other the input counts,
    and the output as far as it is more than the estimate. A count of 0 that cannot be is none.
    """
    report = end.report
    if report is None and end.refused:
        return Usage(0, 0)
    read, made, estimated = 0, 0, not end.whole
    if report is not None:
        read, made = report.input_tokens, report.output_tokens
    if read == 0:
        read, estimated = tokens_in(prompt_length()), True
    if end.heard and not (end.whole and made):
        made, estimated = max(made, tokens_in(end.heard)), True
    if report is None:
        return Usage(read, made, estimated=estimated)
    return _usage(
        read,
        made,
        report.cached_input_tokens,
        report.cache_write_tokens,
        report.reasoning_tokens,
        reported=True,
        estimated=estimated,
    )


def tokens_in(characters: int) -> int:
    """About how many tokens a text of so many code points is."""
    return min(-(-characters // CHARACTERS_PER_TOKEN), MAX_COUNT)


def length_of(prompt: Prompt) -> int:
    """Code points of all that a prompt says: messages, tools and the schema of the answer; no images."""
    said = sum(
        len(message.text) + sum(len(call.name) + _length(call.arguments) for call in message.tool_calls)
        for message in prompt.messages
    )
    tools = sum(len(tool.name) + len(tool.description) + _length(tool.parameters) for tool in prompt.tools)
    return said + tools + (0 if prompt.response_schema is None else _length(prompt.response_schema))


def _length(value: object) -> int:
    return len(dumps(value).decode())
