"""A whole MCP server of the kind that the SDK's examples are: notes, kept in memory, over standard input."""

from __future__ import annotations

import os
from typing import Any

from mcp.server import MCPServer

server = MCPServer("notes")
notes: dict[str, str] = {}


@server.tool()
def write(name: str, said: str) -> str:
    """Write a note."""
    notes[name] = said
    return "written"


@server.tool()
def read(name: str) -> str:
    """Read a note."""
    return notes[name]


@server.tool()
def about() -> dict[str, Any]:
    """Tell what this process was given."""
    others = [name for name in os.environ if name.startswith(("NOT_", "BRANCHLINE_", "DATABASE_"))]
    return {
        "owner": os.environ.get("NOTES_OWNER"),
        "others": others,
        "folder": os.getcwd(),
        "process": os.getpid(),
        "group": os.getpgrp(),
    }


if __name__ == "__main__":
    server.run()
