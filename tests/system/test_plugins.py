"""Plug-ins that cannot be used: the service does not start, and says in one line which and why."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from app.settings import BadSettings
from tests.support.service import running

pytestmark = pytest.mark.anyio

SETTINGS = ["tool_modules", "guardrail_modules", "handler_modules"]


@pytest.mark.parametrize("setting", SETTINGS)
async def test_a_module_that_is_missing_is_named(database_url: str, setting: str) -> None:
    with pytest.raises(
        BadSettings, match=r"^module 'no_such_module' cannot be loaded: ModuleNotFoundError: .*$"
    ):
        async with running(database_url, **{setting: ("no_such_module",)}):
            raise AssertionError("it started")


@pytest.mark.parametrize("setting", SETTINGS)
async def test_what_a_module_raises_is_told_in_one_line(
    database_url: str, setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "broken_plugin", raising=False)
    (tmp_path / "broken_plugin.py").write_text("raise ValueError('first\\nsecond')\n", "utf-8")
    with pytest.raises(BadSettings) as refused:
        async with running(database_url, **{setting: ("broken_plugin",)}):
            raise AssertionError("it started")
    assert str(refused.value) == "module 'broken_plugin' cannot be loaded: ValueError: first second"
