"""The page about client tools tells what happens, and its worker works."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.architecture.test_documents import client_blocks, follow, output_of
from tests.conftest import ROOT
from tests.support.acting import call
from tests.support.clients import Clients
from tests.support.service import running

pytestmark = pytest.mark.anyio

PAGE = ROOT / "docs/how-to/answer-client-tools.md"
WORKER = ROOT / "examples/client_worker.py"


async def test_the_page_and_its_worker(database_url: str, tmp_path: Path) -> None:
    async with running(database_url) as service:
        assert len(await follow(service, *client_blocks(PAGE), cwd=tmp_path)) > 8

        clients = Clients(service.http)
        doors = [call("open_door", door=door) for door in ("east", "west")]
        branch = await service.branch()
        run = await clients.waiting(branch, *doors)
        workers = (
            output_of(sys.executable, str(WORKER), "--once", cwd=tmp_path, WORKER_URL=service.url)
            for _ in range(2)
        )
        said = "".join(await asyncio.gather(*workers))
        assert sorted(said.splitlines()) == [
            'open_door {"door": "east"} answered',
            'open_door {"door": "west"} answered',
        ]
        ended = await service.ended(run["id"])
        assert [result["error"] for result in ended["result"]] == [
            None,
            "ValueError: the west door does not move",
        ]
