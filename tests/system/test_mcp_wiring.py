"""Servers of the settings that the service cannot start with."""

from __future__ import annotations

from typing import Any, cast

import pytest

from app.core.addresses import AddressRule
from app.mcp_wiring import speaking
from app.settings import BadSettings, McpServerSettings, Settings
from tests.support.ambient import CountingIds, FakeClock

pytestmark = pytest.mark.anyio

WIKI: dict[str, Any] = {"name": "wiki", "url": "http://127.0.0.1:1/mcp"}


async def refusal(*servers: dict[str, Any], installed: bool = True) -> str:
    settings = Settings(mcp_servers=tuple(McpServerSettings.model_validate(each) for each in servers))
    unused = cast(Any, None)
    with pytest.raises(BadSettings) as caught:
        async with speaking(
            settings, unused, FakeClock(), CountingIds(), AddressRule(), *(unused,) * 3, installed=installed
        ):
            pass
    return str(caught.value)


async def test_the_extra_has_to_be_there() -> None:
    assert "pip install 'branchline[mcp]'" in await refusal(WIKI, installed=False)


async def test_each_has_a_name_of_its_own() -> None:
    assert "the same name" in await refusal(WIKI, WIKI)


@pytest.mark.parametrize(
    "more",
    [
        {**WIKI, "headers": {"Authorization": "env:SURELY_NOT_SET"}},
        {"name": "wiki", "command": ["x"], "env": ["SURELY_NOT_SET"]},
    ],
)
async def test_a_variable_that_is_not_set_is_named(more: dict[str, Any]) -> None:
    assert "wiki: the variable 'SURELY_NOT_SET' is not set" in await refusal(more)
