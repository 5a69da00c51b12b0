"""Tools that are Python functions in this process."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from app.adapters.tools.signature import Arguments, InvalidTool, Unconvertible, arguments_of
from app.adapters.tools.threads import Escaped, Threads
from app.core.action.normalize import INVALID_ARGUMENTS, argument_faults
from app.core.json_schema import InvalidSchema, SchemaError, current_schema
from app.core.json_text import copied
from app.ports.tool import Invocation, ToolFailure, ToolSpec

TOOL_KIND: Final = "python"
DEFAULT_THREADS: Final = 32

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    description: str | None = None
    """What models are told; the docstring by default."""
    parameters: Mapping[str, Any] | None = None
    """JSON Schema of the arguments; made from the signature by default."""
    preprocessor: Callable[..., Any] | None = None
    """Called with the arguments, a dict; what it returns takes their place and is validated again."""
    preprocessor_kwargs: Mapping[str, Any] = field(default_factory=dict)
    postprocessor: Callable[..., Any] | None = None
    """Called with the result; what it returns takes its place."""
    postprocessor_kwargs: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False
    """Whether a call must give exactly the schema's properties."""
    idempotent: bool = False
    """Whether a call may be repeated when its outcome is unknown."""
    inline: bool = False
    """Whether plain functions run on the event loop; only for those that never block."""


@dataclass(frozen=True, slots=True)
class Tool(_Options):
    """A function that models and clients may call by name.

    A plain function, and a plain processor, runs in a thread unless `inline` is set; what it returns is
    awaited when it is awaitable. A name has up to 64 letters, digits, `_` and `-`.
    """

    name: str
    func: Callable[..., Any]

    @classmethod
    def of(cls, declared: Any) -> Tool:
        """The tool that a `TOOLS` entry declares: itself, or one named after a plain function."""
        if isinstance(declared, Tool):
            return declared
        if inspect.isroutine(declared):
            return cls(declared.__name__, declared)
        raise InvalidTool(f"{declared!r} is neither a Tool nor a function")


@dataclass(frozen=True, slots=True)
class _Registered:
    tool: Tool
    spec: ToolSpec
    arguments: Arguments

    def validated(self, arguments: Any) -> dict[str, Any]:
        """The arguments, which fit the schema. Raises `ToolFailure`."""
        if not isinstance(arguments, dict):
            raise _bad_arguments([SchemaError("", f"an object is needed, not {type(arguments).__name__}")])
        faults = argument_faults(arguments, self.spec.parameters, strict=self.spec.strict)
        if faults:
            raise _bad_arguments(faults)
        return arguments

    def converted(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as the function expects them. Raises `ToolFailure`."""
        try:
            return self.arguments.convert(arguments)
        except Unconvertible as error:
            raise _bad_arguments(error.faults) from None


class PythonTools:
    """Runs Python tools; a `ToolRunner`, and the list of what it can run."""

    kind = TOOL_KIND

    def __init__(self, tools: Iterable[Any], *, threads: int = DEFAULT_THREADS) -> None:
        """`tools` are `Tool`s or plain functions. Raises `InvalidTool` for one that cannot be called."""
        self._registered: dict[str, _Registered] = {}
        self._threads = Threads(threads, "python-tool")
        for declared in tools:
            entry = _registered(Tool.of(declared))
            if entry.spec.name in self._registered:
                raise InvalidTool(f"tool {entry.spec.name!r} is declared twice")
            self._registered[entry.spec.name] = entry

    @property
    def specs(self) -> dict[str, ToolSpec]:
        """Every tool by name, in the order of declaration."""
        return {name: entry.spec for name, entry in self._registered.items()}

    async def prepare(self, spec: ToolSpec, invocation: Invocation) -> Invocation:
        """See the port: what the tool's preprocessor makes of the arguments."""
        entry = self._entry(spec)
        tool = entry.tool
        if tool.preprocessor is None:
            return invocation
        arguments = copied(dict(invocation.arguments))
        work = partial(tool.preprocessor, arguments, **tool.preprocessor_kwargs)
        try:
            prepared = entry.validated(await self._run(tool, work))
        except ToolFailure:
            raise
        except Exception as failure:
            raise ToolFailure(type(failure).__name__, str(failure)) from failure
        return replace(invocation, arguments=prepared)

    async def call(self, spec: ToolSpec, invocation: Invocation) -> Any:
        """Run the tool and return what it returned, as it is; its arguments are prepared already.

        Raises `ToolFailure` for arguments that do not fit, and otherwise what the tool raises. A cancelled
        call of a plain function is left at once; the function itself cannot be stopped and runs on unheard.
        """
        entry = self._entry(spec)
        tool = entry.tool
        # The record keeps what was asked for, whatever a tool does to the objects it is given.
        arguments = entry.validated(copied(dict(invocation.arguments)))
        result = await self._run(tool, partial(tool.func, **entry.converted(arguments)))
        if tool.postprocessor is not None:
            result = await self._run(tool, partial(tool.postprocessor, result, **tool.postprocessor_kwargs))
        return result

    def _entry(self, spec: ToolSpec) -> _Registered:
        entry = self._registered.get(spec.name)
        if entry is None:
            raise ToolFailure("TOOL_NOT_FOUND", f"no Python tool {spec.name!r} is loaded in this process")
        return entry

    def close(self) -> None:
        """Let the threads end."""
        self._threads.close()

    async def _run(self, tool: Tool, work: partial[Any]) -> Any:
        try:
            on_loop = tool.inline or _is_coroutine_function(work.func)
            result = work() if on_loop else await self._threads.run(work)
            return await result if inspect.isawaitable(result) else result
        except Escaped as error:
            raise ToolFailure(error.type, str(error)) from None
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            raise ToolFailure(type(error).__name__, "the tool was cancelled from within") from None
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
            raise ToolFailure(type(error).__name__, str(error)) from None


def _registered(tool: Tool) -> _Registered:
    if not _NAME.fullmatch(tool.name):
        raise InvalidTool(f"tool {tool.name!r}: a name has 1 to 64 letters, digits, _ and -")
    arguments = arguments_of(tool.name, tool.func, tool.parameters)
    try:
        parameters = current_schema(arguments.parameters, at="/parameters")
    except InvalidSchema as error:
        raise InvalidTool(f"tool {tool.name!r}: {error.detail}") from None
    if parameters.get("type") != "object":
        raise InvalidTool(f"tool {tool.name!r}: the schema of its arguments must have type object")
    description = inspect.getdoc(tool.func) if tool.description is None else tool.description
    spec = ToolSpec(
        name=tool.name,
        kind=TOOL_KIND,
        description=description or "",
        parameters=parameters,
        strict=tool.strict,
        idempotent=tool.idempotent,
        prepares=tool.preprocessor is not None,
    )
    return _Registered(tool, spec, arguments)


def _is_coroutine_function(func: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(
        getattr(func, "__call__", None)  # noqa: B004 - whether it is callable is not the question
    )


def _is_cancelled() -> bool:
    """Whether it is our own task that somebody cancels, not something inside the tool."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _bad_arguments(faults: Sequence[SchemaError]) -> ToolFailure:
    told = "; ".join(f"{fault.pointer or '(arguments)'}: {fault.message}" for fault in faults)
    return ToolFailure(INVALID_ARGUMENTS, told)
