"""What holds for every kind of hook, as its bus and so every call sees it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, closing
from typing import Any, Protocol

import pytest
import structlog

from app.adapters.hooks.http import HttpHooks
from app.adapters.hooks.python import Hook, PythonHooks, StopHook
from app.ports.hooks import BoundHook, HookBlocked, ToolHook, ToolHookEvent
from app.services.hooks import Blocked
from tests.support.hooks import BEFORE, FAILED, SUCCEEDED, Told, bound, bus
from tests.support.network import ANYWHERE, unsigned
from tests.support.polling import until
from tests.support.receiver import Receiver, Reply

pytestmark = pytest.mark.anyio

EVENTS = pytest.mark.parametrize("event", [BEFORE, SUCCEEDED, FAILED], ids=lambda event: str(event.point))


class Stage(Protocol):
    """Makes hooks of one kind."""

    @property
    def heard(self) -> list[dict[str, Any]]:
        """What they were told, in order."""

    def hook(self, does: str) -> ToolHook:
        """One that passes, stops, blocks "not on Fridays", fails in another way, or hangs."""


class PythonStage:
    """Functions, plain or async."""

    def __init__(self, stack: AsyncExitStack, *, plain: bool) -> None:
        self.heard: list[dict[str, Any]] = []
        self._stack = stack
        self._plain = plain
        self._release = threading.Event()
        stack.callback(self._release.set)

    def hook(self, does: str) -> ToolHook:
        def act(event: ToolHookEvent) -> None:
            self.heard.append(event.wire())
            match does:
                case "stops":
                    raise StopHook
                case "blocks":
                    raise HookBlocked("not on Fridays")
                case "fails":
                    raise LookupError("out of order")
                case "hangs" if self._plain:
                    self._release.wait()

        async def act_async(event: ToolHookEvent) -> None:
            act(event)
            if does == "hangs":
                await asyncio.Event().wait()

        made = PythonHooks([Hook("TOOL_PRE", act if self._plain else act_async)], timeout_s=10)
        self._stack.enter_context(closing(made))
        return made.bound[0].hook


class HttpStage:
    """Posts to a receiver."""

    def __init__(self, receiver: Receiver, hooks: HttpHooks) -> None:
        self._receiver = receiver
        self._hooks = hooks
        self._release = asyncio.Event()
        self._replies = {
            "passes": Reply(),
            "stops": Reply(body=b'{"stop": true}'),
            "blocks": Reply(403, body=b'{"reason": "not on Fridays"}'),
            "fails": Reply(500),
            "hangs": Reply(after=self._release),
        }

    @property
    def heard(self) -> list[dict[str, Any]]:
        """See the stage."""
        return [json.loads(request.body) for request in self._receiver.received]

    def hook(self, does: str) -> ToolHook:
        self._receiver.replies[f"/{does}"] = [self._replies[does]]
        return self._hooks.at(self._receiver.url(f"/{does}"))

    def end(self) -> None:
        """Let what hangs go."""
        self._release.set()


@asynccontextmanager
async def http_stage() -> AsyncIterator[HttpStage]:
    async with Receiver() as receiver, aclosing(HttpHooks(ANYWHERE, unsigned())) as hooks:
        made = HttpStage(receiver, hooks)
        yield made
        made.end()


@pytest.fixture(params=["plain function", "coroutine function", "URL"])
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        if request.param == "URL":
            yield await stack.enter_async_context(http_stage())
        else:
            yield PythonStage(stack, plain=request.param == "plain function")


def at(event: ToolHookEvent, hook: ToolHook, **more: Any) -> BoundHook:
    return bound(hook, event.point.value, **more)


@EVENTS
async def test_it_is_told_everything_once(stage: Stage, event: ToolHookEvent) -> None:
    hooks = [at(event, stage.hook("passes"))]
    if event is BEFORE:
        assert await bus().pre(event, hooks) is None
    else:
        await bus().told(event, hooks)
    assert stage.heard == [event.wire()]


async def test_it_blocks_with_its_reason_and_no_other_is_asked(stage: Stage) -> None:
    later = Told()
    hooks = [bound(stage.hook("blocks"), name="fridays"), bound(later)]
    assert await bus().pre(BEFORE, hooks) == Blocked("fridays", "not on Fridays")
    assert later.events == []


async def test_a_failure_blocks_and_says_why(stage: Stage) -> None:
    blocked = await bus().pre(BEFORE, [bound(stage.hook("fails"))])
    assert blocked is not None
    assert blocked.reason in ("LookupError: out of order", "HTTP 500")


async def test_it_ends_the_chain_and_not_the_call(stage: Stage) -> None:
    earlier, later = Told(), Told()
    hooks = [bound(earlier), bound(stage.hook("stops")), bound(later)]
    assert await bus().pre(BEFORE, hooks) is None
    assert (earlier.events, len(stage.heard), later.events) == ([BEFORE], 1, [])


async def test_one_that_is_late_blocks(stage: Stage) -> None:
    later = Told()
    hooks = [bound(stage.hook("hangs"), name="slow", timeout_s=0.1), bound(later)]
    assert await bus().pre(BEFORE, hooks) == Blocked("slow", "no answer within 0.1 s")
    assert later.events == []


@pytest.mark.parametrize("does", ["blocks", "fails", "hangs", "stops"])
@pytest.mark.parametrize("event", [SUCCEEDED, FAILED], ids=lambda event: str(event.point))
async def test_after_the_call_it_changes_nothing_for_others(
    stage: Stage, event: ToolHookEvent, does: str
) -> None:
    later = Told()
    limit_s = 0.1 if does == "hangs" else 10
    hooks = [at(event, stage.hook(does), name="first", timeout_s=limit_s), at(event, later)]
    with structlog.testing.capture_logs() as logs:
        await bus().told(event, hooks)
    assert later.events == [event]
    assert [line["hook"] for line in logs] == ([] if does == "stops" else ["first"])
    assert all(line["call_id"] == str(event.call_id) and line["reason"] for line in logs)


@EVENTS
async def test_whoever_waits_for_it_can_be_cancelled(stage: Stage, event: ToolHookEvent) -> None:
    hooks = [at(event, stage.hook("hangs"))]
    waiting: asyncio.Task[Any] = asyncio.create_task(
        bus().pre(event, hooks) if event is BEFORE else bus().told(event, hooks)
    )
    await until(lambda: stage.heard)
    waiting.cancel()
    done, _ = await asyncio.wait({waiting}, timeout=10)
    assert done
    assert waiting.cancelled()


async def test_it_is_called_by_many_at_once(stage: Stage) -> None:
    hook = bound(stage.hook("passes"))
    made = bus()
    assert await asyncio.gather(*(made.pre(BEFORE, [hook]) for _ in range(40))) == [None] * 40
    assert len(stage.heard) == 40
