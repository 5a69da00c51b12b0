"""The database goes away while a process starts: that is told in a line of words, and nothing breaks."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from app.core.errors import Unavailable
from app.settings import BadSettings
from tests.support.process import ROOT
from tests.support.relay import Relay
from tests.support.service import running

pytestmark = pytest.mark.anyio

START_S = 60


class Admitting(Relay):
    """Lets so many connections through, and after them none."""

    def __init__(self, url: str, most: int) -> None:
        super().__init__(url)
        self._left = most

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._left -= 1
        self._refuses = self._left < 0
        await super()._accept(reader, writer)


async def started(relay: Relay) -> str:
    """What starting behind a relay comes to, in words."""
    try:
        async with asyncio.timeout(START_S), running(relay.url):
            return "up"
    except (BadSettings, Unavailable) as told:
        return str(told)


@pytest.mark.parametrize("most", range(4))
async def test_it_says_what_is_missing_whenever_it_goes(database_url: str, most: int) -> None:
    async with Admitting(database_url, most) as relay:
        told = await started(relay)
    # One connection migrates, another one serves, and those that come after are not waited for.
    assert told.startswith("The database ") or (told == "up" and most >= 2)


@pytest.mark.parametrize(("most", "status"), [(0, 2), (1, 1)])
async def test_the_command_tells_it_in_a_line(
    database_url: str, tmp_path: Path, most: int, status: int
) -> None:
    async with Admitting(database_url, most) as relay, asyncio.timeout(START_S):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "app.cli", "serve", "--port", "0", "--data-dir", str(tmp_path)),
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": relay.url},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        _, told = await process.communicate()
    assert process.returncode == status
    (line,) = told.decode().splitlines()
    assert line.startswith("branchline: The database ")
