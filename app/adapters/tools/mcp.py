"""Tools of MCP servers: one `tools/call` for each call."""

from __future__ import annotations

from typing import Any, Final

from app.adapters.mcp.answer import output_in
from app.adapters.mcp.listing import MCP_KIND
from app.adapters.mcp.peers import Peers
from app.adapters.mcp.trouble import Kind, Trouble
from app.adapters.tools.headers import NOT_CONFIGURED
from app.core.errors import CredentialUnreadable, UnknownCredential
from app.core.json_text import NotJson, dumps
from app.ports.tool import Invocation, ToolFailure, ToolSpec

_FAILURES: Final[dict[Kind, tuple[str, bool | None]]] = {
    Kind.DOWN: ("SERVER_UNAVAILABLE", True),
    Kind.BLOCKED: ("BLOCKED_ADDRESS", False),
    Kind.NOT_CONFIGURED: (NOT_CONFIGURED, False),
    Kind.NO_CREDENTIAL: (UnknownCredential.code.upper(), False),
    Kind.UNREADABLE: (CredentialUnreadable.code.upper(), False),
    Kind.NOT_SENT: ("CONNECTION_FAILED", True),
    Kind.SESSION_LOST: ("SERVER_UNAVAILABLE", True),
    Kind.UNAVAILABLE: ("SERVER_UNAVAILABLE", True),
    Kind.LOST: ("OUTCOME_UNKNOWN", True),
    Kind.TOO_LARGE: ("MCP_TOO_LARGE", False),
    Kind.INVALID: ("INVALID_RESPONSE", False),
    Kind.REFUSED: ("MCP_ERROR", False),
}
"""The type of the failure, and whether the same may work later."""


class McpTools:
    """Calls tools of MCP servers; a `ToolRunner`."""

    kind = MCP_KIND

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def call(self, spec: ToolSpec, invocation: Invocation) -> Any:
        """Call the tool under the name that its server gave it. Raises `ToolFailure`.

        What counts is the spec: the server's list may have changed since the run was planned.
        """
        assert spec.origin is not None
        owner, server, schema = (spec.settings[part] for part in ("owner", "server", "output"))
        tool = spec.origin["tool"]
        try:
            # The SDK ends the whole session over what it cannot write.
            dumps(invocation.arguments)
            return output_in(await self._peers.call(owner, server, tool, invocation.arguments), schema)
        except NotJson as error:
            raise ToolFailure("INVALID_ARGUMENTS", str(error), retryable=False) from None
        except TimeoutError:
            words = f"no answer within {server.call_ms} ms; whether the tool took effect is unknown"
            raise ToolFailure("TIMEOUT", words) from None
        except Trouble as trouble:
            type, retryable = _FAILURES[trouble.kind]
            raise ToolFailure(type, trouble.words, retryable=retryable) from None
