"""Hooks put together from the settings, as the service has them; and the example."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from app.adapters.checked_network import CheckedNetwork
from app.core.addresses import AddressRule
from app.hook_wiring import hooking
from app.services.hooks import Blocked
from app.settings import BadSettings, Settings
from examples.hooks import FAILURES, PAUSED, SECONDS
from tests.support.hooks import BEFORE, FAILED, SUCCEEDED
from tests.support.network import ANYWHERE, unsigned
from tests.support.receiver import Receiver, Reply

pytestmark = pytest.mark.anyio

EXAMPLE = Settings(hook_modules=("examples.hooks",))
STRICT = CheckedNetwork(AddressRule().admits)


async def test_the_example() -> None:
    weather = replace(BEFORE, tool_name="weather_of")
    async with hooking(EXAMPLE, STRICT, unsigned()) as bus:
        chain = bus.hooks_of(None, None)
        assert await bus.pre(weather, chain) is None
        PAUSED.update(["weather_of", "add"])
        try:
            blocked = await bus.pre(weather, chain)
            assert blocked == Blocked("not_paused", "weather_of is paused, try another way")
            assert await bus.pre(replace(BEFORE, tool_name="add"), chain) is None
        finally:
            PAUSED.clear()
        await bus.told(SUCCEEDED, chain)
        await bus.told(weather.failed("LookupError", "no report", 0.1), chain)
        await bus.told(FAILED, chain)
    assert SECONDS == {"transfer": 0.25}
    assert FAILURES == ["weather_of({'cents': 5}): LookupError"]


async def test_plug_ins_are_asked_before_stored_hooks() -> None:
    async with Receiver() as receiver, hooking(EXAMPLE, ANYWHERE, unsigned()) as bus:
        receiver.replies["/in"] = [Reply(403, body=b'{"reason": "no"}')]
        chain = bus.hooks_of([{"point": "TOOL_PRE", "tool": "*", "http": {"url": receiver.url("/in")}}], None)
        assert await bus.pre(BEFORE, chain) == Blocked("project hook 0", "no")
        assert await bus.pre(replace(BEFORE, tool_name="add"), chain) is None
        assert len(receiver.received) == 1


async def test_stored_hooks_do_not_reach_private_addresses() -> None:
    async with Receiver() as receiver, hooking(Settings(), STRICT, unsigned()) as bus:
        chain = bus.hooks_of(None, [{"point": "TOOL_PRE", "tool": "*", "http": {"url": receiver.url("/in")}}])
        blocked = await bus.pre(BEFORE, chain)
        assert blocked is not None
        assert "may not be reached" in blocked.reason
        assert receiver.received == []


async def test_a_plug_in_that_cannot_be_used_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "broken_hooks", raising=False)
    (tmp_path / "broken_hooks.py").write_text("raise ValueError('first\\nsecond')\n", "utf-8")
    with pytest.raises(BadSettings) as refused:
        async with hooking(Settings(hook_modules=("broken_hooks",)), ANYWHERE, unsigned()):
            raise AssertionError("it started")
    assert str(refused.value) == "module 'broken_hooks' cannot be loaded: ValueError: first second"


@pytest.mark.parametrize("value", ["0", "31", "soon"])
def test_the_time_limit_has_bounds(value: str) -> None:
    with pytest.raises(ValueError, match="hook_timeout_s"):
        Settings(hook_timeout_s=value)
