"""Replay a script in place of a model: for demonstrations, for tests, and for a first start without a key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Annotated, Any, Final, Self

import httpx
from pydantic import Field, model_validator

from app.adapters.options import Options, checked
from app.core.chunks import (
    Chunk,
    EndMark,
    FinishReason,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from app.core.errors import FieldError, Invalid
from app.core.faults import Fault, FaultKind, ProviderError
from app.ports.provider import Capabilities, ModelEndpoint, Opening

BATCH: Final = 32
"""Chunks that are given at once where the script does not wait."""

_REASONS: Final = frozenset({"stop", "length", "tool_calls", "content_filter", "refusal"})

Milliseconds = Annotated[int, Field(ge=0, le=86_400_000)]
Count = Annotated[int, Field(ge=0)]


class ScriptedCall(Options):
    """A fragment of a tool call."""

    index: Count
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class ScriptedUsage(Options):
    """A report of token counts."""

    input_tokens: Count
    output_tokens: Count
    cached_input_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    reasoning_tokens: Count | None = None


class ScriptedError(Options):
    """A failure; the first step of an attempt fails its opening."""

    kind: Annotated[FaultKind, Field(strict=False)]
    type: str = ""
    status: Annotated[int, Field(ge=100, le=599)] | None = None
    message: str = "the script says so"
    code: str | int | None = None
    retry_after_ms: Milliseconds | None = None

    @model_validator(mode="after")
    def _status_with_its_kind(self) -> Self:
        if self.kind is FaultKind.STATUS and self.status is None:
            raise ValueError("an error of kind status needs a status")
        return self


class Step(Options):
    """One step of an attempt: exactly one of these."""

    open_wait_ms: Milliseconds | None = None
    """The server does not accept the request for so long; the first step only."""
    wait_ms: Milliseconds | None = None
    text: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_call: ScriptedCall | None = None
    usage: ScriptedUsage | None = None
    error: ScriptedError | None = None
    end: str | None = None
    """The reason to stop, and the end mark after it; null for the end mark alone."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        said = self.model_fields_set
        if len(said) != 1:
            raise ValueError("a step holds exactly one of " + ", ".join(sorted(Step.model_fields)))
        if said != {"end"} and getattr(self, next(iter(said))) is None:
            raise ValueError("only end may be null")
        return self


class ScriptedStream(Options):
    """What the model yields, attempt by attempt."""

    attempts: Annotated[list[list[Step]], Field(min_length=1)]


class Script(Options):
    """The options of a scripted model."""

    streams: Annotated[list[ScriptedStream], Field(min_length=1)]
    native_tools: bool = True
    native_schema: bool = True


class ScriptedProvider:
    """`options.streams[k].attempts[j]` is what the k-th stream of a run on this model gets at attempt j + 1.

    The last stream and the last attempt repeat. An attempt without an `end` is a cut stream.
    """

    name = "scripted"
    adapter_id = "openai"
    """A script stands in for the usual wire, so that a run reads the same whichever of the two answered."""

    def __init__(self, client: httpx.AsyncClient | None = None) -> None:
        """Nothing is asked over the network."""

    def check(self, endpoint: ModelEndpoint) -> None:
        """Raise `Invalid` with pointers when the script makes no sense."""
        script = checked(endpoint.options, Script)
        errors = [
            FieldError(f"/options/streams/{k}/attempts/{j}/{at}", message)
            for k, stream in enumerate(script.streams)
            for j, steps in enumerate(stream.attempts)
            for at, message in _out_of_order(steps)
        ]
        if errors:
            raise Invalid("the script makes no sense", errors=errors)

    def capabilities(self, endpoint: ModelEndpoint) -> Capabilities:
        """Both, unless the options say otherwise."""
        return Capabilities(
            tools=endpoint.options.get("native_tools", True),
            response_schema=endpoint.options.get("native_schema", True),
        )

    @asynccontextmanager
    async def open(self, opening: Opening) -> AsyncIterator[AsyncIterator[Sequence[Chunk]]]:
        """Play the attempt that the opening names; see `ports.provider.Provider.open`."""
        streams = opening.endpoint.options["streams"]
        attempts = streams[min(opening.stream_index, len(streams) - 1)]["attempts"]
        steps: Sequence[dict[str, Any]] = attempts[min(opening.attempt, len(attempts)) - 1]
        if steps and "open_wait_ms" in steps[0]:
            await asyncio.sleep(steps[0]["open_wait_ms"] / 1000)
            steps = steps[1:]
        if steps and "error" in steps[0]:
            raise ProviderError(_fault(steps[0]["error"]))
        async with aclosing(_play(steps)) as answer:
            yield answer


def _out_of_order(steps: Sequence[Step]) -> Iterator[tuple[int, str]]:
    over = False
    for at, step in enumerate(steps):
        if over:
            yield at, "nothing can follow an end or an error"
        if at and step.open_wait_ms is not None:
            yield at, "open_wait_ms can only come first"
        over = over or step.error is not None or "end" in step.model_fields_set


async def _play(steps: Sequence[dict[str, Any]]) -> AsyncGenerator[Sequence[Chunk], None]:
    """The answer; what follows without a wait comes together, and others have their turn in between."""
    batch: list[Chunk] = []
    for step in steps:
        ((word, value),) = step.items()
        if word in ("wait_ms", "error") or len(batch) >= BATCH:
            await asyncio.sleep(0)
            if batch:
                yield batch
            batch = []
        if word == "wait_ms":
            await asyncio.sleep(value / 1000)
        elif word == "error":
            raise ProviderError(_fault(value))
        else:
            batch += _chunks(word, value)
    if batch:
        await asyncio.sleep(0)
        yield batch


def _chunks(word: str, value: Any) -> Sequence[Chunk]:
    match word:
        case "text":
            return [TextDelta(value)]
        case "reasoning":
            return [ReasoningDelta(value)]
        case "refusal":
            return [RefusalDelta(value)]
        case "tool_call":
            return [ToolCallDelta(**value)]
        case "usage":
            return [UsageReport(**value)]
        case _:
            reason = [] if value is None else [FinishReason(value if value in _REASONS else None, value)]
            return [*reason, EndMark()]


def _fault(error: dict[str, Any]) -> Fault:
    return Fault(
        FaultKind(error["kind"]),
        error.get("message", ScriptedError.model_fields["message"].default),
        type=error.get("type", ""),
        status=error.get("status"),
        provider_code=error.get("code"),
        retry_after_ms=error.get("retry_after_ms"),
    )


PROVIDER = ScriptedProvider
