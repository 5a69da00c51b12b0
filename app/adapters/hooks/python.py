"""Hooks that are Python functions in this process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from app.adapters.plugins import BadPlugin, PluginKind, load_plugins
from app.adapters.tools.threads import Escaped, Threads
from app.ports.hooks import MAX_TIMEOUT_S, BoundHook, HookBlocked, HookPoint, Stop, ToolHookEvent

THREADS: Final = 8
"""Calls of one plain function at the same time; each hook has threads of its own."""


class StopHook(Exception):
    """Raised by a hook so that later hooks are not asked; the call itself goes on."""


class InvalidHook(BadPlugin):
    """The declaration of a hook makes no sense; says what to change."""


@dataclass(frozen=True, slots=True)
class Hook:
    """A function that is called around tool calls with a `ToolHookEvent`.

    It returns nothing. What it raises at TOOL_PRE blocks the call: `HookBlocked(reason)` to choose the words;
    StopHook only ends the chain. A plain function runs in a thread, a coroutine function on the event loop.
    """

    point: str
    """TOOL_PRE, TOOL_POST or TOOL_ERROR."""
    func: Callable[[ToolHookEvent], Any]
    tool: str = "*"
    """A glob for the names of the tools that it is for, case-sensitive."""
    timeout_s: float | None = None
    """How long it is waited for; the setting's by default."""
    name: str | None = None
    """The function's by default."""


def _hook(declared: Any) -> Hook:
    """The declaration, if it can be used. Raises InvalidHook."""
    if not isinstance(declared, Hook):
        raise InvalidHook(f"{declared!r} is no Hook")
    name = _name(declared)
    if declared.point not in tuple(HookPoint):
        raise InvalidHook(f"hook {name!r}: {declared.point!r} is no point; there are {', '.join(HookPoint)}")
    if not callable(declared.func) or isinstance(declared.func, type):
        raise InvalidHook(f"hook {name!r}: {declared.func!r} is no function")
    if not isinstance(declared.tool, str) or not declared.tool:
        raise InvalidHook(f"hook {name!r}: {declared.tool!r} is no glob for names of tools")
    if declared.timeout_s is not None and not 0 < declared.timeout_s <= MAX_TIMEOUT_S:
        raise InvalidHook(f"hook {name!r}: the time limit has to be above 0 and at most {MAX_TIMEOUT_S:g} s")
    try:
        inspect.signature(declared.func).bind(None)
    except TypeError:
        raise InvalidHook(f"hook {name!r} has to take the event as its one argument") from None
    except ValueError:  # some built-in functions have no signature
        pass
    return declared


HOOKS: Final = PluginKind("branchline.hooks", "HOOKS", _hook, InvalidHook)


def load_hooks(modules: Iterable[str] = ()) -> list[Hook]:
    """The hooks of all entry points, then those of `modules`, each of which has a list `HOOKS`.

    Raises InvalidHook, naming what could not be loaded.
    """
    return load_plugins(HOOKS, modules)


class PythonHooks:
    """Declared hooks, made ready to be called."""

    def __init__(self, hooks: Iterable[Hook], *, timeout_s: float) -> None:
        """`timeout_s` is for those that do not say otherwise. Raises InvalidHook."""
        checked = [_hook(hook) for hook in hooks]
        self._callers = [_Caller(hook) for hook in checked]
        self.bound: tuple[BoundHook, ...] = tuple(
            BoundHook(_name(hook), HookPoint(hook.point), hook.tool, hook.timeout_s or timeout_s, caller)
            for hook, caller in zip(checked, self._callers, strict=True)
        )
        """In the order of declaration."""

    def close(self) -> None:
        """Let the threads end."""
        for caller in self._callers:
            caller.threads.close()


class _Caller:
    """`ports.hooks.ToolHook` of a function.

    A function that hangs in its thread cannot be stopped; with threads for each hook it holds up no other.
    """

    def __init__(self, hook: Hook) -> None:
        self._func = hook.func
        self._on_loop = inspect.iscoroutinefunction(hook.func) or inspect.iscoroutinefunction(
            getattr(hook.func, "__call__", None)  # noqa: B004 - whether it is callable is not the question
        )
        self.threads = Threads(THREADS, f"hook-{_name(hook)}")

    async def call(self, event: ToolHookEvent) -> Stop | None:
        """See the port."""
        try:
            result = (
                self._func(event) if self._on_loop else await self.threads.run(partial(self._func, event))
            )
            if inspect.isawaitable(result):
                result = await result
        except StopHook:
            return Stop()
        except Escaped as error:
            raise HookBlocked(f"{error.type}: {error}".rstrip(": ")) from None
        if result is not None and not isinstance(result, Stop):
            # An answer such as False would otherwise be a veto that nobody hears.
            raise HookBlocked(f"a hook returns nothing, and raises to block; it returned {result!r:.100}")
        return result


def _name(hook: Hook) -> str:
    return hook.name or getattr(hook.func, "__name__", None) or type(hook.func).__name__
