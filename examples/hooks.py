"""Four small hooks, and how a module offers its hooks: a list named `HOOKS`.

Load it with `BRANCHLINE_HOOK_MODULES=examples.hooks`.
"""

from __future__ import annotations

from collections import defaultdict

from app.adapters.hooks.python import Hook, StopHook
from app.ports.hooks import HookBlocked, ToolHookEvent

PAUSED: set[str] = set()
"""Names of tools that are not to be used for now."""
SECONDS: defaultdict[str, float] = defaultdict(float)
"""How long each tool has run, of calls that succeeded."""
FAILURES: list[str] = []
"""What went wrong, oldest first."""


def harmless(event: ToolHookEvent) -> None:
    """Let a tool be, whatever later hooks would say of it."""
    raise StopHook


def not_paused(event: ToolHookEvent) -> None:
    """Block tools that are paused."""
    if event.tool_name in PAUSED:
        raise HookBlocked(f"{event.tool_name} is paused, try another way")


async def add_up(event: ToolHookEvent) -> None:
    """Add up how long tools take."""
    SECONDS[event.tool_name] += event.duration_s or 0


def complain(event: ToolHookEvent) -> None:
    """Note why a call failed."""
    assert event.error is not None
    FAILURES.append(f"{event.tool_name}({event.arguments_summary}): {event.error.type}")


HOOKS = [
    Hook("TOOL_PRE", harmless, tool="add"),
    Hook("TOOL_PRE", not_paused, timeout_s=1),
    Hook("TOOL_POST", add_up),
    Hook("TOOL_ERROR", complain, tool="weather*"),
]
