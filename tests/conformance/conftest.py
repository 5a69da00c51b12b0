"""One running service for all tests of a module here, with every kind of plug-in, failing ones among them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.conformance_tools import OPENED, SAID
from tests.support.database import migrated
from tests.support.postgres import PostgresServer
from tests.support.service import Service, running
from tests.system.conftest import model_server as model_server

PLUGINS = {
    "tool_modules": ("tests.support.tools", "tests.support.hook_plugins", "tests.support.conformance_tools"),
    "hook_modules": ("tests.support.hook_plugins",),
    "handler_modules": ("tests.support.handlers",),
    "handler_timeout_s": 0.05,
}


@pytest.fixture(scope="module")
async def service(postgres: PostgresServer) -> AsyncIterator[Service]:
    """The whole service; tests that share it make branches and models of their own."""
    async with migrated(postgres) as url, running(url, **PLUGINS) as made:
        yield made


@pytest.fixture(autouse=True)
def _nothing_yet() -> None:
    OPENED.clear()
    SAID.clear()
