"""The tools for tests without the one that `branchline run` brings itself."""

from __future__ import annotations

from tests.support import tools

TOOLS = [tool for tool in tools.TOOLS if tool is not tools.add]
