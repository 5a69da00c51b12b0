"""The bus: who is asked, in which order, and what no hook can do to a call."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from app.ports.hooks import MAX_TIMEOUT_S, SUMMARY, BoundHook, HookBlocked, HookPoint, Stop, ToolHookEvent
from app.services.hooks import MAX_REASON, Blocked
from tests.support.hooks import BEFORE, FAILED, SUCCEEDED, Told, UrlHook, bound, bus, raising
from tests.support.polling import until

pytestmark = pytest.mark.anyio

EVENTS = {event.point: event for event in (BEFORE, SUCCEEDED, FAILED)}


async def hang() -> None:
    await asyncio.Event().wait()


def stored(url: str, point: str = "TOOL_PRE", **more: Any) -> dict[str, Any]:
    return {"point": point, "tool": "*", "http": {"url": url, **more}}


def shown(hook: BoundHook) -> tuple[str, str, str, float, str]:
    assert isinstance(hook.hook, UrlHook)
    return hook.name, hook.point.value, hook.tool, hook.timeout_s, hook.hook.url


# Events


@pytest.mark.parametrize(
    ("arguments", "summary"),
    [(None, ""), ({}, "{}"), ({"a": 1, "b": "x"}, "{'a': 1, 'b': 'x'}"), ({"a": "x" * 300}, None)],
)
def test_arguments_are_shown_by_their_beginning(arguments: Any, summary: str | None) -> None:
    ids = dict.fromkeys(("call_id", "run_id", "branch_id", "project_id"), UUID(int=1))
    event = ToolHookEvent.before("add", arguments, **ids)
    assert event.arguments_summary == (str(arguments)[:SUMMARY] if summary is None else summary)
    assert len(event.arguments_summary) <= SUMMARY


@pytest.mark.parametrize("result", [None, 0, "", [], {}, "x" * 300])
def test_results_are_shown_by_their_beginning_falsy_ones_too(result: Any) -> None:
    assert BEFORE.succeeded(result, 1.0).result_summary == str(result)[:SUMMARY]


def test_the_events_of_a_call_have_its_ids_and_what_belongs_to_their_point() -> None:
    told = [event.wire() for event in EVENTS.values()]
    assert [event["point"] for event in told] == ["TOOL_PRE", "TOOL_POST", "TOOL_ERROR"]
    assert [event["result_summary"] for event in told] == [None, "{'to': 'Ada'}", None]
    assert [event["error"] for event in told] == [None, None, {"type": "TIMEOUT", "message": "too late"}]
    assert [event["duration_s"] for event in told] == [None, 0.25, 600.0]
    assert BEFORE.failed("HOOK_BLOCKED", "no", None).duration_s is None
    for name in ("tool_name", "call_id", "run_id", "branch_id", "project_id", "arguments_summary"):
        assert len({event[name] for event in told}) == 1


# The chain


def test_without_stored_hooks_the_chain_is_what_is_installed() -> None:
    made = bus(bound(Told()))
    assert made.hooks_of(None, None) is made.hooks_of([], []) is made.hooks_of(None, [])


def test_the_installation_comes_first_then_the_project_then_the_branch() -> None:
    first = bound(Told())
    made = bus(first, timeout_s=3)
    chain = made.hooks_of(
        [stored("http://a"), stored("http://b", "TOOL_POST", timeout_ms=1_500)],
        [{"point": "TOOL_ERROR", "http": {"url": "http://c", "timeout_ms": None}}],
    )
    assert chain[0] is first
    assert [shown(hook) for hook in chain[1:]] == [
        ("project hook 0", "TOOL_PRE", "*", 3, "http://a"),
        ("project hook 1", "TOOL_POST", "*", 1.5, "http://b"),
        ("branch hook 0", "TOOL_ERROR", "*", 3, "http://c"),
    ]


def test_no_hook_is_waited_for_without_end() -> None:
    (hook,) = bus().hooks_of([stored("http://a", timeout_ms=10**9)], None)
    assert hook.timeout_s == MAX_TIMEOUT_S


@pytest.mark.parametrize("spec", [stored("http://a", "TOOL_SOON"), {"point": "TOOL_PRE"}])
def test_a_hook_that_is_not_understood_is_not_skipped(spec: dict[str, Any]) -> None:
    with pytest.raises((ValueError, KeyError)):
        bus().hooks_of([spec], None)


async def test_hooks_are_asked_in_order_each_after_the_answer_of_the_one_before() -> None:
    order: list[str] = []

    def noting(name: str) -> BoundHook:
        async def note() -> None:
            order.append(f"{name} begins")
            await asyncio.sleep(0)
            order.append(f"{name} ends")

        return bound(Told(note))

    await bus().pre(BEFORE, [noting("a"), noting("b"), noting("c")])
    assert order == [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]


@pytest.mark.parametrize(
    ("glob", "name", "wanted"),
    [
        ("*", "transfer", True),
        ("transfer", "transfer", True),
        ("trans*", "transfer", True),
        ("trans?er", "transfer", True),
        ("[st]ransfer", "transfer", True),
        ("[!t]ransfer", "transfer", False),
        ("Transfer", "transfer", False),
        ("trans", "transfer", False),
    ],
)
async def test_a_glob_says_for_which_tools(glob: str, name: str, wanted: bool) -> None:
    hook = Told()
    await bus().pre(BEFORE, [bound(hook, tool=glob)])
    assert (hook.events == [BEFORE]) is wanted


@pytest.mark.parametrize("point", HookPoint)
async def test_a_hook_is_called_at_its_point_alone(point: HookPoint) -> None:
    hook = Told()
    await bus().pre(BEFORE, [bound(hook, point.value)])
    for event in (SUCCEEDED, FAILED):
        await bus().told(event, [bound(hook, point.value)])
    assert hook.events == [EVENTS[point]]


async def test_who_comes_or_goes_while_hooks_are_called_changes_nothing() -> None:
    last, newcomer = Told(), Told()
    chain: list[BoundHook] = []

    async def change() -> None:
        chain[:] = [bound(newcomer)]

    chain += [bound(Told(change)), bound(last)]
    await bus().pre(BEFORE, chain)
    assert (last.events, newcomer.events) == ([BEFORE], [])


@pytest.mark.parametrize("hooks", [[], [bound(raising(HookBlocked("no")), tool="other")]])
def test_without_a_hook_nothing_is_waited_for(hooks: list[BoundHook]) -> None:
    made = bus()
    for waiting in (made.pre(BEFORE, hooks), made.told(SUCCEEDED, hooks)):
        with pytest.raises(StopIteration) as ended:  # no event loop is here that could be yielded to
            waiting.send(None)
        assert ended.value.value is None


# Whatever a hook does


class Unwritable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (HookBlocked("no"), "no"),
        (ValueError("bad"), "ValueError: bad"),
        (ValueError(), "ValueError"),
        (TimeoutError("mine"), "TimeoutError: mine"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (asyncio.CancelledError(), "the hook was cancelled from within"),
        (Unwritable(), "Unwritable"),
        (HookBlocked("\0a\ud800"), "\ufffda\ufffd"),
        (HookBlocked("x" * 5_000), "x" * MAX_REASON),
    ],
)
async def test_whatever_is_raised_is_a_reason(error: BaseException, reason: str) -> None:
    blocked = await bus().pre(BEFORE, [bound(raising(error), name="guard")])
    assert blocked == Blocked("guard", reason)
    assert str(blocked) == f"guard: {reason}"
    later = Told()
    await bus().told(FAILED, [bound(raising(error), "TOOL_ERROR"), bound(later, "TOOL_ERROR")])
    assert later.events == [FAILED]


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
async def test_one_that_does_not_heed_its_cancellation_is_left_behind(event: ToolHookEvent) -> None:
    release = asyncio.Event()
    ended = []

    async def stay() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        ended.append(True)

    made = bus()
    hooks = [bound(Told(stay), event.point.value, name="deaf", timeout_s=0.05)]
    if event is BEFORE:
        assert await made.pre(event, hooks) == Blocked("deaf", "no answer within 0.05 s")
    else:
        await made.told(event, hooks)
    assert not ended
    release.set()
    await until(lambda: ended)


async def test_hooks_that_are_told_do_not_wait_for_each_other_and_have_one_limit() -> None:
    hanging = [bound(Told(hang), "TOOL_POST", timeout_s=600) for _ in range(20)]
    last = Told()
    async with asyncio.timeout(10):  # twenty limits one after the other would take longer
        await bus(told_s=0.6).told(SUCCEEDED, [*hanging, bound(last, "TOOL_POST")])
    assert last.events == [SUCCEEDED]


async def test_a_hook_that_was_waited_for_is_cancelled_with_its_caller() -> None:
    cancelled = []

    async def wait() -> None:
        try:
            await hang()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    for event in EVENTS.values():
        hook, made = Told(wait), bus()
        hooks = [bound(hook, event.point.value)]
        calling: Any = made.pre(event, hooks) if event is BEFORE else made.told(event, hooks)
        task = asyncio.create_task(calling)
        await until(lambda hook=hook: hook.events)  # type: ignore[misc]
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
    await until(lambda: len(cancelled) == 3)


async def test_stop_is_no_block_for_those_asked_before_and_after() -> None:
    async def stop() -> Stop:
        return Stop()

    blocker = bound(raising(HookBlocked("no")), name="blocker")
    assert await bus().pre(BEFORE, [bound(Told(stop)), blocker]) is None
    assert await bus().pre(BEFORE, [blocker, bound(Told(stop))]) == Blocked("blocker", "no")
