"""What the service makes of a model server's answer, seen by a client over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from tests.support.model_server import Attempt, ModelServer
from tests.support.service import Service, text_by_offset

ONCE: dict[str, Any] = {"retry": None}
"""Lifecycle options that ask a model once and no more."""

_numbers = count(1)


@dataclass(frozen=True)
class Heard:
    """A run at its end and what it left behind."""

    run: dict[str, Any]
    events: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    """Of the branch, which had none before."""

    @property
    def code(self) -> str | None:
        """The error's, None without an error."""
        return None if self.run["error"] is None else str(self.run["error"]["code"])

    @property
    def detail(self) -> dict[str, Any]:
        """What else the error says."""
        return dict(self.run["error"].get("detail") or {})

    @property
    def text(self) -> str:
        """The visible text, as a client puts it together from the events."""
        return text_by_offset(self.events)

    @property
    def answer(self) -> dict[str, Any] | None:
        """The content of the answer in the conversation, None where there is none."""
        found = [m["content"] for m in self.messages if m["kind"] == "assistant_response"]
        assert len(found) <= 1
        return found[0] if found else None

    @property
    def calls(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Id, name and arguments of the tool calls that were announced."""
        return [
            (event["meta"]["toolCallId"], event["meta"]["toolName"], event["meta"]["arguments"])
            for event in self.events
            if event["type"] == "TOOL_REQUESTED"
        ]

    @property
    def types(self) -> list[str]:
        """The events' types."""
        return [event["type"] for event in self.events]


async def served(service: Service, server: ModelServer, attempts: Sequence[Attempt], **spec: Any) -> str:
    """Register a model that answers so; its name."""
    name = f"served-{next(_numbers)}"
    server.scripts[name] = attempts
    await service.model(name, **{"provider": "openai", "base_url": server.base_url, **spec})
    return name


async def hear(service: Service, model: str, *, lifecycle: Any = ONCE, **body: Any) -> Heard:
    """Ask a model on a branch of its own, and read everything."""
    branch = await service.branch(chat_model=model)
    run = await service.operate(branch, lifecycle=lifecycle, **body)
    return await heard(service, run)


async def heard(service: Service, run: dict[str, Any]) -> Heard:
    """Read everything about a run on a branch of its own."""
    return Heard(run, await service.events(run["id"]), await service.messages(run["branch_id"]))
