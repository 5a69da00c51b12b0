"""What is not used is not imported: the service starts without what only some installations need."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT

MCP = ("mcp", "mcp_types", "httpx2", "httpcore2", "jsonschema", "sse_starlette", "jwt")
"""What the extra `mcp` brings along and the service does not need by itself."""

SCRIPT = """
import sys
import {modules}
print(*sorted({{name.partition(".")[0] for name in sys.modules}} & set(sys.argv[1:])))
"""


def imported(modules: str) -> list[str]:
    """Which of the extra's modules are there after an import in a fresh process."""
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(modules=modules), *MCP],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return run.stdout.split()


def test_the_service_does_without_the_sdk_of_mcp() -> None:
    assert imported("app.main, app.cli, app.wiring, app.mcp_wiring") == []


@pytest.mark.parametrize("module", ["app.adapters.mcp.session"])
def test_which_module_brings_it(module: str) -> None:
    assert {"mcp", "httpx2"} <= set(imported(module))
