"""Ask hooks before a tool call, and tell them afterwards: in order, in time, and each on its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from app.core.json_text import storable
from app.ports.hooks import MAX_TIMEOUT_S, BoundHook, HookBlocked, HookPoint, Stop, ToolHook, ToolHookEvent

TIMEOUT_S: Final = 5.0
"""How long a hook is waited for that does not say otherwise."""
TOLD_S: Final = 10.0
"""How long all hooks together may hold up a call after its tool has ended."""
MAX_REASON: Final = 1_000
"""Characters of a reason that are kept."""

Stored = Sequence[Mapping[str, Any]] | None
"""Hooks as projects and branches have them, checked: `{"point", "tool"?, "http"}`, and there `{"url",
"timeout_ms"?, "signing"?}`."""

log = structlog.get_logger("hooks")


@dataclass(frozen=True, slots=True)
class Blocked:
    """A hook does not allow the call."""

    hook: str
    """Its name."""
    reason: str

    def __str__(self) -> str:
        """As the error of the call says it."""
        return f"{self.hook}: {self.reason}"


class HookBus:
    """The hooks of this installation, and the way to call them and those of projects and branches."""

    def __init__(
        self,
        http: Callable[[str, Mapping[str, Any] | None], ToolHook],
        installed: Iterable[BoundHook] = (),
        *,
        timeout_s: float = TIMEOUT_S,
        told_s: float = TOLD_S,
    ) -> None:
        """`http` makes the hook that posts to a URL, signed with a secret of its own if one is named;
        `installed` are asked before all others.

        `timeout_s` is for stored hooks without one of their own, `told_s` bounds `told`.
        """
        self._http = http
        self._installed = tuple(installed)
        self._timeout_s = timeout_s
        self._told_s = told_s
        self._late: set[asyncio.Task[Any]] = set()

    def hooks_of(self, project: Stored, branch: Stored) -> tuple[BoundHook, ...]:
        """The chain: what is installed, then the project's, then the branch's.

        Costs nothing where neither has any. Raises ValueError or KeyError for what was never checked: a hook
        that is not understood must not be skipped, for it may be there to block.
        """
        if not project and not branch:
            return self._installed
        return (*self._installed, *self._bound("project", project), *self._bound("branch", branch))

    async def pre(self, event: ToolHookEvent, hooks: Iterable[BoundHook]) -> Blocked | None:
        """Ask one hook after the other; the first that raises or is late blocks, and ends the chain.

        A hook that says `Stop` ends the chain too, and blocks nothing. Takes no longer than the time limits
        of the hooks together; may be cancelled.
        """
        for hook in _meant(event, hooks):
            answer = await self._answer(hook, event, hook.timeout_s)
            if isinstance(answer, Blocked):
                return answer
            if answer is not None:
                break
        return None

    async def told(self, event: ToolHookEvent, hooks: Iterable[BoundHook]) -> None:
        """Tell all hooks at once; their failures are logged and change nothing. May be cancelled.

        Each is waited for up to its time limit, and none longer than `told_s`. They do not wait for each
        other, so that a slow one takes no time from the next; `Stop` therefore has nothing to stop here.
        """
        meant = _meant(event, hooks)
        if meant:
            await asyncio.gather(*(self._tell(hook, event) for hook in meant))

    async def _tell(self, hook: BoundHook, event: ToolHookEvent) -> None:
        answer = await self._answer(hook, event, min(hook.timeout_s, self._told_s))
        if isinstance(answer, Blocked):
            log.warning(
                "hook failed",
                hook=hook.name,
                reason=answer.reason,
                point=event.point.value,
                tool=event.tool_name,
                call_id=str(event.call_id),
            )

    async def _answer(self, hook: BoundHook, event: ToolHookEvent, limit_s: float) -> Blocked | Stop | None:
        # A task of its own: one that ignores its cancellation can be left behind.
        task = asyncio.create_task(_call(hook, event))
        try:
            await asyncio.wait({task}, timeout=limit_s)
            return task.result() if task.done() else Blocked(hook.name, f"no answer within {limit_s:g} s")
        finally:
            if not task.done():
                self._leave(task)

    def _leave(self, task: asyncio.Task[Any]) -> None:
        self._late.add(task)  # the event loop alone would not keep it
        task.add_done_callback(self._late.discard)
        task.cancel()

    def _bound(self, level: str, stored: Stored) -> Iterable[BoundHook]:
        for index, spec in enumerate(stored or ()):
            http = spec["http"]
            asked_ms = http.get("timeout_ms")
            yield BoundHook(
                f"{level} hook {index}",
                HookPoint(spec["point"]),
                spec.get("tool", "*"),
                self._timeout_s if asked_ms is None else min(asked_ms / 1000, MAX_TIMEOUT_S),
                self._http(http["url"], http.get("signing")),
            )


def _meant(event: ToolHookEvent, hooks: Iterable[BoundHook]) -> list[BoundHook]:
    """Whoever is added or removed while they are called changes nothing."""
    return [hook for hook in hooks if hook.wants(event)]


async def _call(hook: BoundHook, event: ToolHookEvent) -> Blocked | Stop | None:
    try:
        return await hook.hook.call(event)
    except HookBlocked as blocked:
        reason = blocked.reason
    except asyncio.CancelledError:  # by itself; when it was us, nobody waits for the answer any more
        reason = "the hook was cancelled from within"
    except BaseException as error:  # SystemExit, too, must not reach the event loop
        reason = _words(error)
    return Blocked(hook.name, storable(reason[:MAX_REASON]))


def _words(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}".rstrip(": ")
    except Exception:  # an error that cannot be written
        return type(error).__name__
