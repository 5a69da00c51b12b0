"""Runs and function calls as clients see them. Stored JSON text is passed on as it is."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import orjson
from pydantic_core import from_json

from app.api.replies import instant
from app.core.usage.totals import Totals
from app.ports.storage import CallRecord, RunRecord
from app.services.pages import StreamText


def raw(text: str | None) -> Any:
    """JSON text as part of a larger body; None is null."""
    return None if text is None else orjson.Fragment(text)


def _id(id: UUID | None) -> str | None:
    return None if id is None else str(id)


def run_body(run: RunRecord) -> dict[str, Any]:
    """A `Run`."""
    totals = Totals.of(from_json(run.usage) if run.usage else None)
    return {
        "id": str(run.id),
        "object": "run",
        "kind": run.kind,
        "branch_id": _id(run.branch_id),
        "status": run.status,
        "result": raw(run.result),
        "error": raw(run.error),
        "validation": raw(run.validation),
        "finish_reason": run.finish_reason,
        "finish_reason_raw": run.finish_reason_raw,
        "partial_text": run.partial_text,
        "model": run.model,
        "function_calls": [str(call) for call in run.function_calls],
        "usage": totals.counts(),
        "cost": totals.cost(),
        "attempts": run.attempts,
        "fallback_index": run.fallback_index,
        "created_at": instant(run.created_at),
        "started_at": instant(run.started_at),
        "ended_at": instant(run.ended_at),
        "events_url": f"/v1/runs/{run.id}/events",
        "last_seq": run.last_seq,
    }


def text_body(run_id: UUID, found: StreamText) -> dict[str, Any]:
    """A `RunText`."""
    return {
        "run_id": str(run_id),
        "stream_id": str(found.stream_id),
        "to_seq": found.to_seq,
        "text": found.text,
        "length": len(found.text),
    }


def call_body(call: CallRecord) -> dict[str, Any]:
    """A `FunctionCall`."""
    return {
        "id": str(call.id),
        "object": "function_call",
        "call_id": str(call.call_id),
        "attempt": call.attempt,
        "run_id": str(call.run_id),
        "branch_id": _id(call.branch_id),
        "batch": call.batch,
        "index": call.index,
        "function": call.function,
        "arguments": raw(call.arguments),
        "raw_arguments": raw(call.raw_arguments),
        "arguments_digest": call.arguments_digest,
        "provider_call_id": call.provider_call_id,
        "status": call.status,
        "execution": {
            "status": call.status,
            "duration": call.duration,
            "response": raw(call.response),
            "error": raw(call.error),
            "retryable": call.retryable,
        },
        "gate": raw(call.gate),
        "action_request_id": str(call.action_request_id),
        "action_response_id": _id(call.action_response_id),
        "created_at": instant(call.created_at),
        "started_at": instant(call.started_at),
        "ended_at": instant(call.ended_at),
    }
