"""A call as it was stored: what its caller is told of it, long after it ended."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from app.core.action.verdict import DENIED_BY_GATE, GATE_DENIED, CallStatus


def stored_result(
    *,
    function: str,
    arguments: Any,
    call_id: UUID,
    status: str,
    response: Any,
    error: Any,
    truncated: bool = False,
) -> dict[str, Any]:
    """What `ActionTransaction.result` gave when the call ended, from its row.

    `error` is `{"error": type, "message": text}`, None for a call that succeeded.
    """
    result = {
        "function": function,
        "arguments": arguments,
        "output": response,
        "error": None,
        "call_id": str(call_id),
        "status": CallStatus(status).value,
    }
    if error is None:
        return result | {"output_truncated": True} if truncated else result
    if error["error"] == GATE_DENIED:
        return result | {
            "output": {"error": DENIED_BY_GATE, "function": function},
            "error": DENIED_BY_GATE,
        }
    told = f"{error['error']}: {error['message']}"
    return result | {
        "output": {"error": told, "function": function, "arguments": arguments},
        "error": told,
    }
