"""What runs around a tool call: hooks, and what they are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final, Protocol
from uuid import UUID

from app.core.action.verdict import MAX_MESSAGE

SUMMARY: Final = 200
"""Characters of arguments and results that hooks are shown."""
MAX_TIMEOUT_S: Final = 30.0
"""Longest that one hook is waited for, whatever is asked for."""


class HookPoint(StrEnum):
    """When a hook is called."""

    TOOL_PRE = "TOOL_PRE"
    """Before the tool runs, and after the call was authorized and recorded; a hook can block it."""
    TOOL_POST = "TOOL_POST"
    """After a call that succeeded."""
    TOOL_ERROR = "TOOL_ERROR"
    """After a call that failed or was blocked."""


@dataclass(frozen=True, slots=True)
class HookError:
    """Why a call failed."""

    type: str
    message: str


@dataclass(frozen=True, slots=True)
class ToolHookEvent:
    """What a hook is told of a call; the same `call_id` at every point."""

    point: HookPoint
    tool_name: str
    call_id: UUID
    run_id: UUID
    branch_id: UUID
    project_id: UUID
    arguments_summary: str
    """The beginning of the arguments, as Python writes them."""
    result_summary: str | None = None
    """The beginning of the result, as Python writes it; at TOOL_POST only."""
    error: HookError | None = None
    """At TOOL_ERROR only."""
    duration_s: float | None = None
    """How long the tool ran; None when it has not."""

    @classmethod
    def before(
        cls,
        tool_name: str,
        arguments: Mapping[str, Any] | None,
        *,
        call_id: UUID,
        run_id: UUID,
        branch_id: UUID,
        project_id: UUID,
    ) -> ToolHookEvent:
        """A call that is about to be made. Arguments that could not be read are None."""
        shown = "" if arguments is None else _beginning(arguments)
        return cls(HookPoint.TOOL_PRE, tool_name, call_id, run_id, branch_id, project_id, shown)

    def succeeded(self, result: Any, duration_s: float) -> ToolHookEvent:
        """The same call after its success."""
        return replace(
            self, point=HookPoint.TOOL_POST, result_summary=_beginning(result), duration_s=duration_s
        )

    def failed(self, type: str, message: str, duration_s: float | None) -> ToolHookEvent:
        """The same call after its failure; without a duration when the tool never ran."""
        return replace(
            self,
            point=HookPoint.TOOL_ERROR,
            error=HookError(type, message[:MAX_MESSAGE]),
            duration_s=duration_s,
        )

    def wire(self) -> dict[str, Any]:
        """As plain JSON types, every member present."""
        members = asdict(self)
        for name in ("call_id", "run_id", "branch_id", "project_id"):
            members[name] = str(members[name])
        return {**members, "point": self.point.value}


@dataclass(frozen=True, slots=True)
class Stop:
    """A hook's answer that ends its chain: later hooks are not asked, and the call goes on."""


class HookBlocked(Exception):
    """The hook does not allow the call, or could not be asked. After a call it changes nothing."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ToolHook(Protocol):
    """One hook."""

    async def call(self, event: ToolHookEvent) -> Stop | None:
        """Tell it. Whatever it raises blocks the call at TOOL_PRE; it is cancelled when it is late."""


@dataclass(frozen=True, slots=True)
class BoundHook:
    """A hook, and what it wants to be told of."""

    name: str
    """For people: in logs, and in the error of a call that it blocks."""
    point: HookPoint
    tool: str
    """A glob for the tool's name, case-sensitive."""
    timeout_s: float
    hook: ToolHook

    def wants(self, event: ToolHookEvent) -> bool:
        """Whether the event is one for this hook."""
        return self.point is event.point and fnmatchcase(event.tool_name, self.tool)


def _beginning(value: Any) -> str:
    return str(value)[:SUMMARY]
