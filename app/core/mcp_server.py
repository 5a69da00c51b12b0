"""What is said of an MCP server, and what its tools are called here."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from app.core.header_values import variables_in
from app.core.http_tool import header_faults

SERVER_NAME: Final = r"^[a-z0-9]([_-]?[a-z0-9]){0,23}$"
"""Without two underscores in a row, so that the name of a tool can be taken apart again."""
MCP_PREFIX: Final = "mcp__"
"""What the names of all their tools begin with."""
NAME_LENGTH: Final = 64
"""Longest name of a tool that every model takes."""

CONNECT_MS: Final = 5_000
REQUEST_MS: Final = 15_000
CALL_MS: Final = 60_000

_OURS: Final = frozenset(
    {
        *("accept", "last-event-id", "mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name"),
    }
)
_LEGAL: Final = re.compile(r"[a-zA-Z0-9_-]+")
_OTHER: Final = re.compile(r"[^a-zA-Z0-9_-]")


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server, and how it is reached: at a URL, or as a process that the operator has named."""

    name: str
    url: str | None = None
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """A value may be a secret, or `env:NAME`, or `credential:NAME`."""
    command: tuple[str, ...] = ()
    """The program and its arguments, no shell."""
    env: tuple[str, ...] = ()
    """Variables that the process is given beside PATH and its like."""
    cwd: str | None = None
    connect_ms: int = CONNECT_MS
    """Until a connection is made."""
    request_ms: int = REQUEST_MS
    """Any request but a call: the greeting, a page of the list."""
    call_ms: int = CALL_MS
    """A whole call."""
    trust_hints: bool = False
    """Whether what the server says of its tools' effects is believed."""

    @classmethod
    def of(cls, name: str, settings: Mapping[str, Any]) -> McpServer:
        """The server at a URL that `settings` made."""
        limits = settings["timeout_ms"]
        return cls(
            name,
            settings["url"],
            tuple(settings["headers"].items()),
            connect_ms=limits["connect"],
            request_ms=limits["request"],
            call_ms=limits["call"],
            trust_hints=settings["trust_hints"],
        )

    def settings(self) -> dict[str, Any]:
        """All but the name, as JSON; only of a server at a URL."""
        return {
            "url": self.url,
            "headers": dict(self.headers),
            "timeout_ms": self.timeouts(),
            "trust_hints": self.trust_hints,
        }

    def timeouts(self) -> dict[str, int]:
        """Every limit of time, in milliseconds."""
        return {"connect": self.connect_ms, "request": self.request_ms, "call": self.call_ms}

    def variables(self) -> dict[str, str]:
        """The variables that headers name, by header."""
        return variables_in(dict(self.headers))


def server_header_faults(names: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with the names of headers, by name."""
    ours = {name: "this header is set by the service" for name in names if name.lower() in _OURS}
    return {**header_faults(names), **ours}


def offered_name(server: str, tool: str) -> str:
    """What a tool is called here: `mcp__SERVER__TOOL`, in letters that every model takes.

    A name that is not made of those, or is too long, is changed and ends in eight hexadecimal digits of its
    SHA-256, so that it stays the same for ever and is told apart from others that would look like it.
    """
    prefix = f"{MCP_PREFIX}{server}__"
    room = NAME_LENGTH - len(prefix)
    if _LEGAL.fullmatch(tool) and len(tool) <= room:
        return prefix + tool
    digest = hashlib.sha256(tool.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{prefix}{_OTHER.sub('_', tool)[: room - 9]}_{digest}"
