"""Ask a provider and put its answer together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.core.chunks import (
    Chunk,
    EndMark,
    FinishReason,
    KeepAlive,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from app.core.faults import Fault, ProviderError
from app.core.prompt import Prompt, PromptMessage
from app.ports.provider import ModelEndpoint, Opening, Provider

HELLO = Prompt(messages=[PromptMessage("user", "hello")])


@dataclass
class Call:
    """A tool call, its fragments joined."""

    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass
class Answer:
    """What an attempt said."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: dict[int, Call] = field(default_factory=dict)
    finish: str | None = None
    finish_raw: str | None = None
    usage: tuple[int, int] | None = None
    """Input and output tokens."""
    ended: bool = False
    """Whether the end mark came."""
    opened: bool = False
    """Whether the opening succeeded."""
    fault: Fault | None = None
    chunks: list[Chunk] = field(default_factory=list)

    @property
    def called(self) -> list[tuple[str, str]]:
        """Name and arguments of each call, by index."""
        return [(call.name, call.arguments) for _, call in sorted(self.calls.items())]

    def take(self, chunks: Iterable[Chunk]) -> None:
        """Add what came."""
        for chunk in chunks:
            self.chunks.append(chunk)
            match chunk:
                case TextDelta(text):
                    self.text += text
                case ReasoningDelta(text):
                    self.reasoning += text
                case RefusalDelta(text):
                    self.refusal += text
                case ToolCallDelta(index, id, name, arguments):
                    call = self.calls.setdefault(index, Call())
                    call.id = call.id or id or ""
                    call.name = call.name or name or ""
                    call.arguments += arguments
                case UsageReport(sent, made):
                    self.usage = (sent, made)
                case FinishReason(reason, raw):
                    self.finish, self.finish_raw = reason, raw
                case EndMark():
                    self.ended = True
                case KeepAlive():
                    pass

    def without_chunks(self) -> Answer:
        """The same, comparable whatever the pieces were."""
        return Answer(**{**vars(self), "chunks": []})


def opening(
    provider: str,
    model: str = "m",
    *,
    base_url: str | None = None,
    options: Mapping[str, Any] | None = None,
    api_key: str | None = None,
    prompt: Prompt = HELLO,
    **more: Any,
) -> Opening:
    """An opening with what does not matter filled in."""
    endpoint = ModelEndpoint(model, provider, model, base_url, api_key, options or {})
    return Opening(endpoint, prompt, **more)


async def ask(provider: Provider, what: Opening) -> Answer:
    """The whole answer, with the fault that ended it if one did."""
    answer = Answer()
    try:
        async with provider.open(what) as batches:
            answer.opened = True
            async for batch in batches:
                answer.take(batch)
                if answer.ended:
                    break
    except ProviderError as error:
        answer.fault = error.fault
    return answer
