"""Calls that hooks are told of, and hooks that are objects of a test's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from app.ports.hooks import BoundHook, HookPoint, Stop, ToolHook, ToolHookEvent
from app.services.hooks import HookBus

BEFORE = ToolHookEvent.before(
    "transfer",
    {"cents": 5},
    call_id=UUID(int=1),
    run_id=UUID(int=2),
    branch_id=UUID(int=3),
    project_id=UUID(int=4),
)
SUCCEEDED = BEFORE.succeeded({"to": "Ada"}, 0.25)
FAILED = BEFORE.failed("TIMEOUT", "too late", 600.0)


@dataclass
class Told:
    """A hook that keeps what it is told, and then does as it was made."""

    then: Callable[[], Awaitable[Stop | None]] | None = None
    events: list[ToolHookEvent] = field(default_factory=list)

    async def call(self, event: ToolHookEvent) -> Stop | None:
        """See the port."""
        self.events.append(event)
        return None if self.then is None else await self.then()


def raising(error: BaseException) -> Told:
    """One that raises."""

    async def fail() -> None:
        raise error

    return Told(fail)


def bound(
    hook: ToolHook, point: str = "TOOL_PRE", tool: str = "*", *, name: str = "hook", timeout_s: float = 10
) -> BoundHook:
    """The hook as buses take it."""
    return BoundHook(name, HookPoint(point), tool, timeout_s, hook)


def bus(*installed: BoundHook, **settings: Any) -> HookBus:
    """One whose stored hooks keep what they are told, and know their URL."""
    return HookBus(UrlHook, installed, **settings)


class UrlHook(Told):
    """What `bus` makes of a URL."""

    def __init__(self, url: str, signing: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.url = url
        self.signing = signing
