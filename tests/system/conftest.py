"""One running service for all tests of a module here: a start and a database cost a second."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.database import migrated
from tests.support.model_server import ModelServer
from tests.support.postgres import PostgresServer
from tests.support.service import Service, running


@pytest.fixture(scope="module")
async def service(postgres: PostgresServer) -> AsyncIterator[Service]:
    """The whole service; tests that share it make branches and models of their own."""
    async with migrated(postgres) as url, running(url) as made:
        yield made


@pytest.fixture(scope="module")
async def model_server() -> AsyncIterator[ModelServer]:
    """A model server; tests that share it register scripts of their own names."""
    async with ModelServer() as server:
        yield server
