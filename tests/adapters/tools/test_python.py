"""Python functions as tools: where they run, what they get, how they end."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Iterator
from datetime import date
from typing import Any
from uuid import UUID

import pytest

from app.adapters.tools.python import PythonTools, Tool
from app.adapters.tools.signature import InvalidTool
from app.ports.tool import Invocation, ToolFailure, ToolRunner, ToolSpec
from examples import tools as example
from tests.support.polling import until

pytestmark = pytest.mark.anyio

TENANT: contextvars.ContextVar[str] = contextvars.ContextVar("TENANT", default="none")
made: list[PythonTools] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while made:
        made.pop().close()


def runner(*tools: Any, threads: int = 4) -> PythonTools:
    tools_ = PythonTools(tools, threads=threads)
    made.append(tools_)
    return tools_


async def call(tools: PythonTools, name: str, **arguments: Any) -> Any:
    zero, spec = UUID(int=0), tools.specs[name]
    invocation = Invocation(zero, name, arguments, zero, zero, zero)
    if spec.prepares:
        invocation = await tools.prepare(spec, invocation)
    return await tools.call(spec, invocation)


async def failure(tools: PythonTools, name: str, **arguments: Any) -> ToolFailure:
    with pytest.raises(ToolFailure) as failed:
        await call(tools, name, **arguments)
    return failed.value


def add(a: int, b: int = 40) -> int:
    """Add two numbers.

    Both whole.
    """
    return a + b


def test_a_tool_is_described_by_its_function() -> None:
    tools: ToolRunner = runner(add)
    assert tools.kind == "python"
    (spec,) = runner(Tool("plus", add, idempotent=True, strict=True)).specs.values()
    assert spec == ToolSpec(
        name="plus",
        kind="python",
        description="Add two numbers.\n\nBoth whole.",
        parameters={
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 40}},
            "required": ["a"],
            "additionalProperties": False,
        },
        strict=True,
        idempotent=True,
    )
    assert runner(Tool("plus", add, description="")).specs["plus"].description == ""
    assert runner(Tool("now", lambda: 1)).specs["now"].description == ""


@pytest.mark.parametrize("inline", [True, False])
async def test_defaults_are_the_functions_own(inline: bool) -> None:
    tools = runner(Tool("add", add, inline=inline))
    assert await call(tools, "add", a=2) == 42
    assert await call(tools, "add", a=2, b=3) == 5


async def test_arguments_that_do_not_fit_never_reach_the_function() -> None:
    calls: list[Any] = []

    def note(a: int) -> None:
        calls.append(a)

    tools = runner(note, Tool("strict", lambda a=1: calls.append(a), strict=True))
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("note", {}, "(arguments)"),
        ("note", {"a": "1"}, "/a"),
        ("note", {"a": 1, "b": 2}, "(arguments)"),
        ("strict", {}, "(arguments)"),
    ]
    for name, arguments, pointer in cases:
        failed = await failure(tools, name, **arguments)
        assert failed.type == "INVALID_ARGUMENTS"
        assert pointer in failed.message
    assert calls == []


async def test_annotations_are_kept() -> None:
    def weekday(on: date) -> int:
        return on.weekday()

    tools = runner(weekday)
    assert await call(tools, "weekday", on="2026-11-29") == 6
    assert (await failure(tools, "weekday", on="soon")).type == "INVALID_ARGUMENTS"


async def test_a_plain_function_runs_in_a_thread_with_the_callers_context() -> None:
    def where() -> tuple[int, str]:
        return threading.get_ident(), TENANT.get()

    TENANT.set("acme")
    here = threading.get_ident()
    thread, tenant = await call(runner(where), "where")
    assert thread != here
    assert tenant == "acme"
    assert await call(runner(Tool("where", where, inline=True)), "where") == (here, "acme")


async def test_a_coroutine_function_runs_on_the_loop() -> None:
    async def where() -> int:
        await asyncio.sleep(0)
        return threading.get_ident()

    class Callable_:
        async def __call__(self) -> int:
            return threading.get_ident()

    assert await call(runner(where), "where") == threading.get_ident()
    assert await call(runner(Tool("where", Callable_())), "where") == threading.get_ident()


@pytest.mark.parametrize("inline", [True, False])
async def test_a_returned_awaitable_is_awaited(inline: bool) -> None:
    async def later() -> str:
        return "later"

    def promise() -> Awaitable[str]:
        return later()

    assert await call(runner(Tool("promise", promise, inline=inline)), "promise") == "later"


async def test_blocking_tools_do_not_hold_up_the_loop_and_are_bounded() -> None:
    release, running, most = threading.Event(), 0, 0
    lock = threading.Lock()

    def block(n: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        release.wait(10)
        with lock:
            running -= 1
        return n

    tools = runner(block, threads=3)
    tasks = [asyncio.ensure_future(call(tools, "block", n=n)) for n in range(8)]
    await until(lambda: running == 3)
    release.set()
    assert await asyncio.gather(*tasks) == list(range(8))
    assert most == 3


async def test_a_cancelled_call_does_not_wait_for_its_thread() -> None:
    begun, release, done = threading.Event(), threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        release.wait(10)
        done.set()

    def quick() -> str:
        return "quick"

    tools = runner(block, quick, threads=1)
    task = asyncio.ensure_future(call(tools, "block"))
    await until(begun.is_set)
    waiting = asyncio.ensure_future(call(tools, "quick"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not done.is_set()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    release.set()
    assert await call(tools, "quick") == "quick"
    assert done.is_set(), "what had begun went on to its end"


@pytest.mark.parametrize("inline", [True, False])
async def test_what_a_tool_raises_comes_out(inline: bool) -> None:
    def boom() -> None:
        raise LookupError("nothing there")

    def refuse() -> None:
        raise ToolFailure("QUOTA", "used up", retryable=True)

    tools = runner(Tool("boom", boom, inline=inline), Tool("refuse", refuse, inline=inline))
    with pytest.raises(LookupError, match="nothing there"):
        await call(tools, "boom")
    failed = await failure(tools, "refuse")
    assert (failed.type, failed.message, failed.retryable) == ("QUOTA", "used up", True)


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()]
)
async def test_nothing_a_tool_raises_ends_the_process_or_looks_like_a_cancellation(
    error: BaseException, inline: bool
) -> None:
    def leave() -> None:
        raise error

    async def leave_later() -> None:
        raise error

    tools = runner(Tool("leave", leave, inline=inline), leave_later)
    for name in ("leave", "leave_later"):
        assert (await failure(tools, name)).type == type(error).__name__


async def test_the_end_of_an_iteration_is_a_failure_and_not_a_riddle() -> None:
    def stop() -> None:
        raise StopIteration(3)

    assert (await failure(runner(stop), "stop")).type == "StopIteration"


async def test_processors_stand_before_and_after() -> None:
    def shout(arguments: dict[str, Any], suffix: str) -> dict[str, Any]:
        return {"text": arguments["text"].upper() + suffix}

    async def measure(result: str, factor: int) -> int:
        return len(result) * factor

    tool = Tool(
        "echo",
        lambda text: text,
        parameters={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        preprocessor=shout,
        preprocessor_kwargs={"suffix": "!!"},
        postprocessor=measure,
        postprocessor_kwargs={"factor": 2},
    )
    assert await call(runner(tool), "echo", text="hi") == 8


@pytest.mark.parametrize("inline", [True, False])
async def test_processors_run_where_their_tool_does(inline: bool) -> None:
    threads: list[int] = []

    def before(arguments: dict[str, Any]) -> dict[str, Any]:
        threads.append(threading.get_ident())
        return arguments

    def after(result: int) -> int:
        threads.append(threading.get_ident())
        return result

    tool = Tool("add", add, preprocessor=before, postprocessor=after, inline=inline)
    assert await call(runner(tool), "add", a=2) == 42
    assert [thread == threading.get_ident() for thread in threads] == [inline, inline]


@pytest.mark.parametrize("made_of_them", [None, "text", {"a": "no"}, {}, {"a": 1, "b": 1, "c": 1}])
async def test_what_a_preprocessor_makes_is_validated_again(made_of_them: Any) -> None:
    calls: list[int] = []
    tool = Tool("add", lambda a, b=1: calls.append(a), parameters=dict(runner(add).specs["add"].parameters))
    processed = Tool(
        tool.name, tool.func, parameters=tool.parameters, preprocessor=lambda arguments: made_of_them
    )
    failed = await failure(runner(processed), "add", a=1)
    assert failed.type == "INVALID_ARGUMENTS"
    assert calls == []


async def test_a_tool_cannot_change_what_is_recorded() -> None:
    def spoil(items: list[int], more: Any) -> None:
        items.clear()
        more["x"] = 1

    arguments = {"items": [1], "more": {}}
    await call(runner(spoil), "spoil", **arguments)
    assert arguments == {"items": [1], "more": {}}


async def test_a_tool_that_is_not_loaded_is_not_found() -> None:
    tools = runner(add)
    spec, zero = tools.specs["add"], UUID(int=0)
    with pytest.raises(ToolFailure) as failed:
        await runner().call(spec, Invocation(zero, "add", {"a": 1}, zero, zero, zero))
    assert failed.value.type == "TOOL_NOT_FOUND"


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ([add, add], "declared twice"),
        ([Tool("a b", add)], "letters, digits"),
        ([Tool("", add)], "letters, digits"),
        ([Tool("x" * 65, add)], "letters, digits"),
        ([lambda: 1], "letters, digits"),
        ([3], "neither a Tool nor a function"),
        ([Tool("add", add, parameters={"type": "x"})], "'add'.*JSON Schema"),
        ([Tool("add", add, parameters={"type": "array"})], "must have type object"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(declared: list[Any], words: str) -> None:
    with pytest.raises(InvalidTool, match=words):
        runner(*declared)


async def test_the_example_tools_work() -> None:
    tools = runner(*example.TOOLS)
    assert list(tools.specs) == ["add", "weather"]
    assert await call(tools, "add", a=19, b=23) == 42
    assert await call(tools, "weather", city=" Oslo") == {"city": " Oslo", "celsius": 4, "sky": "snow"}
    with pytest.raises(LookupError, match="berlin, lisbon, oslo"):
        await call(tools, "weather", city="Atlantis")
