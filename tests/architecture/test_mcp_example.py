"""The example of an MCP server runs, and the page tells what it does."""

from __future__ import annotations

import asyncio
import os
import sys
import tomllib
from pathlib import Path

import pytest

from app.settings import McpServerSettings
from tests.architecture.test_documents import blocks, client_blocks, follow
from tests.architecture.test_http_tool_example import free_port, listening
from tests.conftest import ROOT
from tests.support.polling import until
from tests.support.service import running

pytestmark = pytest.mark.anyio

PAGE = ROOT / "docs/how-to/use-mcp-servers.md"
PLACE = "9200"
"""Where the page has its server."""


async def test_the_example_does_what_the_page_says(database_url: str, tmp_path: Path) -> None:
    (source,) = blocks(PAGE, "python")
    port = str(free_port())
    (tmp_path / "stock.py").write_text(source, "utf-8")
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, str(tmp_path / "stock.py")),
        env={**os.environ, "PORT": port},
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await until(lambda: listening(int(port)), within_s=30)
        async with running(database_url) as service:
            steps = [body.replace(PLACE, port) for body in client_blocks(PAGE)]
            assert len(await follow(service, *steps, cwd=tmp_path)) >= 3
    finally:
        server.terminate()
        await server.wait()


def test_the_settings_of_the_page_are_some() -> None:
    (text,) = blocks(PAGE, "toml")
    servers = [McpServerSettings.model_validate(each) for each in tomllib.loads(text)["mcp_servers"]]
    assert [each.server().name for each in servers] == ["notes", "wiki"]
