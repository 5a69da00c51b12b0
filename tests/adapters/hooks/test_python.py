"""Hooks as plug-ins declare them: what is found, what is refused, and how a function is called."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.adapters.hooks.python import THREADS, Hook, InvalidHook, PythonHooks, StopHook, load_hooks
from app.ports.hooks import HookBlocked, HookPoint, Stop, ToolHookEvent
from app.services.hooks import Blocked
from tests.support.hooks import BEFORE, bus
from tests.support.polling import until

pytestmark = pytest.mark.anyio

Write = Callable[[str, str], None]

MODULE = """
from app.adapters.hooks.python import Hook

def guard(event): pass
def declared():
    yield Hook("TOOL_PRE", guard, name="generated")

SINGLE = Hook("TOOL_POST", guard, name="single")
HOOKS = [Hook("TOOL_PRE", guard), Hook("TOOL_ERROR", guard, name="second")]
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write a file into a directory on the path; what is imported from there is forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write_file(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    yield write_file
    for name in [
        name for name, module in sys.modules.items() if str(tmp_path) in str(getattr(module, "__file__", ""))
    ]:
        del sys.modules[name]


def announce(write: Write, entry: str) -> None:
    write("plug_in-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: plug-in\nVersion: 1.0\n")
    write("plug_in-1.0.dist-info/entry_points.txt", f"[branchline.hooks]\n{entry}\n")


def names(hooks: list[Hook]) -> list[str]:
    with closing(PythonHooks(hooks, timeout_s=1)) as made:
        return [hook.name for hook in made.bound]


def fine(event: ToolHookEvent) -> None:
    """Passes."""


takes_nothing: Any = lambda: None  # noqa: E731
takes_more: Any = lambda event, more: None  # noqa: E731


# What is found


def test_nothing_is_loaded_unasked() -> None:
    assert load_hooks() == []


def test_modules_offer_their_list(write: Write) -> None:
    write("my_hooks.py", MODULE)
    found = load_hooks(["my_hooks", "examples.hooks"])
    assert names(found) == ["guard", "second", "harmless", "not_paused", "add_up", "complain"]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("all = plugged", ["guard", "second"]),
        ("all = plugged:HOOKS", ["guard", "second"]),
        ("all = plugged:SINGLE", ["single"]),
        ("all = plugged:declared", ["generated"]),
    ],
)
def test_entry_points_may_lead_to_anything_that_declares_hooks(
    write: Write, entry: str, expected: list[str]
) -> None:
    write("plugged.py", MODULE)
    announce(write, entry)
    assert names(load_hooks()) == expected


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("HOOKS = [print]", "is no Hook"),
        ("HOOKS = 3", "is no Hook"),
        ("x = 1", "no list `HOOKS`"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_what_cannot_be_loaded_is_named(write: Write, source: str, words: str) -> None:
    write("broken.py", source)
    with pytest.raises(InvalidHook, match=words) as refused:
        load_hooks(["broken"])
    assert "module 'broken'" in str(refused.value)


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (Hook("TOOL_SOON", fine), "no point; there are TOOL_PRE, TOOL_POST, TOOL_ERROR"),
        (Hook("TOOL_PRE", 3), "is no function"),  # type: ignore[arg-type]
        (Hook("TOOL_PRE", StopHook), "is no function"),
        (Hook("TOOL_PRE", takes_nothing), "the event as its one argument"),
        (Hook("TOOL_PRE", takes_more), "the event as its one argument"),
        (Hook("TOOL_PRE", fine, tool=""), "no glob"),
        (Hook("TOOL_PRE", fine, tool=["add"]), "no glob"),  # type: ignore[arg-type]
        (Hook("TOOL_PRE", fine, timeout_s=0), "time limit"),
        (Hook("TOOL_PRE", fine, timeout_s=31), "time limit"),
        (Hook("TOOL_PRE", fine, timeout_s=float("nan")), "time limit"),
    ],
)
def test_what_makes_no_sense_is_refused(hook: Hook, words: str) -> None:
    with pytest.raises(InvalidHook, match=words):
        PythonHooks([hook], timeout_s=1)


def test_a_hook_is_bound_as_it_was_declared() -> None:
    hooks = [
        Hook("TOOL_PRE", fine, tool="add*", timeout_s=2),
        Hook("TOOL_POST", fine, name="mine"),
        Hook("TOOL_ERROR", partial(fine)),
    ]
    with closing(PythonHooks(hooks, timeout_s=7)) as made:
        told = [(hook.name, hook.point, hook.tool, hook.timeout_s) for hook in made.bound]
    assert told == [
        ("fine", HookPoint.TOOL_PRE, "add*", 2),
        ("mine", HookPoint.TOOL_POST, "*", 7),
        ("partial", HookPoint.TOOL_ERROR, "*", 7),
    ]


# How a function is called


async def asked(func: Callable[[ToolHookEvent], Any]) -> Stop | None:
    with closing(PythonHooks([Hook("TOOL_PRE", func)], timeout_s=10)) as made:
        return await made.bound[0].hook.call(BEFORE)


WHERE: contextvars.ContextVar[str] = contextvars.ContextVar("where")


async def test_a_plain_function_runs_in_a_thread_and_a_coroutine_function_does_not() -> None:
    seen: list[tuple[bool, str]] = []
    WHERE.set("here")

    def plain(event: ToolHookEvent) -> None:
        seen.append((threading.current_thread() is threading.main_thread(), WHERE.get()))

    async def coroutine(event: ToolHookEvent) -> None:
        plain(event)

    class Both:
        async def __call__(self, event: ToolHookEvent) -> None:
            plain(event)

    for func in (plain, coroutine, Both()):
        assert await asked(func) is None
    assert seen == [(False, "here"), (True, "here"), (True, "here")]


async def test_what_a_plain_function_returns_is_awaited() -> None:
    async def later() -> Stop:
        return Stop()

    assert await asked(lambda event: later()) == Stop()


@pytest.mark.parametrize("answer", [False, True, 0, "", "no", {}])
async def test_an_answer_that_would_not_be_heard_is_told(answer: Any) -> None:
    with pytest.raises(HookBlocked, match="raises to block"):
        await asked(lambda event: answer)


@pytest.mark.parametrize(
    ("error", "reason"), [(SystemExit(3), "SystemExit: 3"), (StopIteration(), "StopIteration")]
)
async def test_what_may_not_reach_the_loop_is_a_reason(error: BaseException, reason: str) -> None:
    def leave(event: ToolHookEvent) -> None:
        raise error

    with pytest.raises(HookBlocked) as blocked:
        await asked(leave)
    assert blocked.value.reason == reason


async def test_a_function_that_hangs_holds_up_no_other() -> None:
    release = threading.Event()
    hung: list[ToolHookEvent] = []

    def hang(event: ToolHookEvent) -> None:
        hung.append(event)
        release.wait()

    hooks = [Hook("TOOL_PRE", hang), Hook("TOOL_PRE", fine)]
    with closing(PythonHooks(hooks, timeout_s=10)) as made:
        hanging, other = made.bound
        calls = [asyncio.create_task(bus().pre(BEFORE, [hanging])) for _ in range(2 * THREADS)]
        try:
            await until(lambda: len(hung) == THREADS)
            assert await bus().pre(BEFORE, [other]) is None
        finally:
            release.set()
        assert await asyncio.gather(*calls) == [None] * len(calls)


async def test_a_veto_names_the_function() -> None:
    def guard(event: ToolHookEvent) -> None:
        raise HookBlocked("no")

    with closing(PythonHooks([Hook("TOOL_PRE", guard)], timeout_s=10)) as made:
        assert await bus().pre(BEFORE, made.bound) == Blocked("guard", "no")
