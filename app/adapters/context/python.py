"""Context providers that are Python functions in this process."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog

from app.adapters.plugins import BadPlugin, PluginKind, load_plugins
from app.adapters.tools.threads import Threads
from app.core.json_text import dumps, read_mended
from app.ports.context import Turn

ENTRY_POINTS: Final = "branchline.context_providers"
"""The group in which a package announces its context providers."""
TIME_LIMIT_S: Final = 5.0
MAX_BYTES: Final = 32 * 1024
"""Of what one provider adds, as JSON."""
THREADS: Final = 8

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

log = structlog.get_logger("context")


@dataclass(frozen=True, slots=True)
class ContextProvider:
    """Adds to instructions, is told of the tool calls that came of them, or both.

    A plain function runs in a thread; what it is given is its own to change.
    """

    name: str
    provide: Callable[[Turn], Any] | None = None
    """Gives a JSON value, or None for nothing to add."""
    write_back: Callable[[Turn, list[dict[str, Any]]], Any] | None = None
    """Is given `function`, `arguments`, `output`, `error`, `call_id` and `status` of each call, in order."""


class InvalidContextProvider(BadPlugin):
    """Something cannot be used as a context provider; the message says what and why."""


def _provider(declared: Any) -> ContextProvider:
    if isinstance(declared, ContextProvider):
        return declared
    raise InvalidContextProvider(f"{declared!r} is no ContextProvider")


CONTEXT_PROVIDERS: Final = PluginKind(ENTRY_POINTS, "CONTEXT_PROVIDERS", _provider, InvalidContextProvider)


def load_context_providers(modules: Iterable[str] = ()) -> list[ContextProvider]:
    """Those of all entry points, then those of `modules`, each with a list `CONTEXT_PROVIDERS`.

    Raises InvalidContextProvider.
    """
    return load_plugins(CONTEXT_PROVIDERS, modules)


class PythonContext:
    """Calls them, all at the same time; see `ports.context.ContextProviders`."""

    def __init__(self, providers: Iterable[ContextProvider], *, time_limit_s: float = TIME_LIMIT_S) -> None:
        """Raises InvalidContextProvider for one that does nothing, or whose name is taken."""
        self._providers: dict[str, ContextProvider] = {}
        self._threads = Threads(THREADS, "context")
        self._time_limit_s = time_limit_s
        for provider in providers:
            _check(provider)
            if provider.name in self._providers:
                raise InvalidContextProvider(f"context provider {provider.name!r} is declared twice")
            self._providers[provider.name] = provider

    def __bool__(self) -> bool:
        return bool(self._providers)

    async def provide(self, turn: Turn) -> Mapping[str, Any]:
        """See the port."""
        asked = [(p.name, p.provide) for p in self._providers.values() if p.provide is not None]
        added = await asyncio.gather(
            *(self._guarded(name, "provide", self._added(func, turn)) for name, func in asked)
        )
        return {name: value for (name, _), value in zip(asked, added, strict=True) if value is not None}

    async def write_back(self, turn: Turn, responses: Sequence[Mapping[str, Any]]) -> None:
        """See the port."""
        told = [(p.name, p.write_back) for p in self._providers.values() if p.write_back is not None]
        await asyncio.gather(
            *(
                self._guarded(name, "write_back", self._call(func, _own(turn), _copy(list(responses))))
                for name, func in told
            )
        )

    def close(self) -> None:
        """Let the threads end."""
        self._threads.close()

    async def _added(self, func: Callable[[Turn], Any], turn: Turn) -> Any:
        value = await self._call(func, _own(turn))
        text = dumps(value)
        if len(text) > MAX_BYTES:
            raise ValueError(f"{len(text)} bytes of context, at most {MAX_BYTES} are taken")
        return read_mended(text.decode()).value

    async def _call(self, func: Callable[..., Any], *args: Any) -> Any:
        if inspect.iscoroutinefunction(func):
            return await func(*args)
        found = await self._threads.run(lambda: func(*args))
        return await found if inspect.isawaitable(found) else found

    async def _guarded(self, name: str, what: str, work: Awaitable[Any]) -> Any:
        try:
            async with asyncio.timeout(self._time_limit_s):
                return await work
        except TimeoutError:
            log.warning("a context provider took too long", provider=name, call=what)
        except BaseException as error:  # SystemExit, too, must not reach the event loop
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            log.warning("a context provider failed", provider=name, call=what, error=repr(error)[:200])
        return None


def _check(provider: ContextProvider) -> None:
    if not _NAME.fullmatch(provider.name):
        raise InvalidContextProvider(f"{provider.name!r} is no name: up to 64 letters, digits, `_` and `-`")
    if not callable(provider.provide) and not callable(provider.write_back):
        raise InvalidContextProvider(f"context provider {provider.name!r} has no function")


def _own(turn: Turn) -> Turn:
    said = _copy([turn.instruction, turn.guidance, turn.context])
    return replace(turn, instruction=said[0], guidance=said[1], context=said[2])


def _copy(value: list[Any]) -> list[Any]:
    copied: list[Any] = read_mended(dumps(value).decode()).value
    return copied
