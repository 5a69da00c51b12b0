"""The example of a tool over HTTP runs, and the page tells what it does."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import pytest

from app.core.webhooks import secret_of
from tests.architecture.test_documents import blocks, client_blocks, follow
from tests.conftest import ROOT
from tests.support.polling import until
from tests.support.service import running

pytestmark = pytest.mark.anyio

PAGE = ROOT / "docs/how-to/add-an-http-tool.md"
PLACE = "9100"
"""Where the page has its server."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_the_example_does_what_the_page_says(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_SIGNING", secret_of(b"s" * 32))
    (source,) = blocks(PAGE, "python")
    port = str(free_port())
    (tmp_path / "shop.py").write_text(source.replace(PLACE, port), "utf-8")
    server = await asyncio.create_subprocess_exec(
        sys.executable, str(tmp_path / "shop.py"), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await until(lambda: listening(int(port)), within_s=30)
        async with running(database_url, exposed_env=("SHOP_SIGNING",)) as service:
            steps = [body.replace(PLACE, port) for body in client_blocks(PAGE)]
            assert len(await follow(service, *steps, cwd=tmp_path)) == 3
    finally:
        server.terminate()
        await server.wait()
