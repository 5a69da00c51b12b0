"""Runs as they were, as clients see them and ask for them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field, RootModel

from app.api.bodies import Body
from app.api.replies import exact, instant
from app.api.schemas.branches import Name
from app.api.schemas.common import View
from app.api.schemas.runs import RunStatus, RunView
from app.api.schemas.usage import UsageView
from app.api.views import raw
from app.core.ids import stream_id
from app.core.moments.calls import CallThen
from app.core.moments.moment import Moment, StreamThen
from app.ports.storage import RunRecord

MAX_SEQ = 2**31 - 1
"""Numbers of events are 32 bits wide."""

Seq = Annotated[int, Field(ge=1, le=MAX_SEQ)]
_NOW = "2026-11-30T12:00:00.000Z"


class ForkRun(Body):
    """Where a run is to be forked."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"at_seq": 12, "name": "another way"}]})

    at_seq: Seq = Field(
        description="The event of the run after which it is: the fork has what was in the conversation then. "
        "A tool call is copied only with its response."
    )
    name: Name | None = Field(None, description="The name of the fork; the branch's by default.")


class StreamThenView(View):
    """A stream as it stood."""

    stream_id: UUID
    purpose: str = Field(description="`main`, `repair` or `voter`.")
    index: int | None = Field(description="Which voter of a consensus, from 0.")
    status: Literal["open", "completed", "failed"]
    attempt: int
    fallback_index: int
    attempts: int = Field(description="How often a model was asked.")
    text: str = Field(description="What stood of its answer.")


class CallThenView(View):
    """A tool call as it stood."""

    call_id: UUID | None = Field(description="null for one that was asked for, and nothing done about it.")
    tool_call_id: str
    function: str | None
    arguments: Any = Field(description="As they were asked for; null once a person has changed them.")
    status: Literal[
        "requested", "pending", "processing", "completed", "failed", "skipped", "cancelled", "aborted"
    ]
    attempts: int = Field(description="How often the tool was begun.")
    output: Any
    error: str | None


class RunThenView(View):
    """A run as it stood after an event, from its log alone.

    What the log does not say is left out: names of models, reasons why an answer ended, cost, and what was
    mended of a value.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "019a0000-0000-7000-8000-000000000003",
                    "object": "run_then",
                    "kind": "operate",
                    "branch_id": "019a0000-0000-7000-8000-000000000001",
                    "at": 7,
                    "ts": _NOW,
                    "status": "running",
                    "result": None,
                    "error": None,
                    "validation": None,
                    "usage": None,
                    "attempts": 1,
                    "streams": [
                        {
                            "stream_id": "019a0000-0000-7abc-9def-0123456789ab",
                            "purpose": "main",
                            "index": None,
                            "status": "open",
                            "attempt": 1,
                            "fallback_index": 0,
                            "attempts": 1,
                            "text": "Half an ans",
                        }
                    ],
                    "function_calls": [
                        {
                            "call_id": None,
                            "tool_call_id": "call_1",
                            "function": "add",
                            "arguments": {"a": 19, "b": 23},
                            "status": "requested",
                            "attempts": 0,
                            "output": None,
                            "error": None,
                        }
                    ],
                    "created_at": _NOW,
                    "started_at": _NOW,
                    "ended_at": None,
                }
            ]
        }
    )

    id: UUID
    object: Literal["run_then"]
    kind: Literal["operate", "act", "consensus"]
    branch_id: UUID | None
    at: int = Field(description="The event after which it is.")
    ts: datetime = Field(description="When that was.")
    status: RunStatus
    result: Any = Field(description="As in a run; null before its end.")
    error: dict[str, Any] | None
    validation: dict[str, Any] | None = Field(description="`{ok, kind, errors}` once that was judged.")
    usage: UsageView | None = Field(description="Of all its attempts; null before its end.")
    attempts: int
    streams: list[StreamThenView]
    function_calls: list[CallThenView] = Field(
        description="In the order in which they were asked for. One that a client carries out is "
        "`processing` until the run waits for it."
    )
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class RunNowOrThen(RootModel[RunView | RunThenView]):
    """A run: as it is now, or, with `at`, as it stood."""


def run_then(run: RunRecord, moment: Moment) -> dict[str, Any]:
    """A run as `RunThenView` says."""
    return {
        "id": run.id,
        "object": "run_then",
        "kind": run.kind,
        "branch_id": run.branch_id,
        "at": moment.seq,
        "ts": _instant(moment.ts),
        "status": moment.status,
        # Stored with the run alone, and part of its last event wherever that is read.
        "result": raw(run.result) if moment.ended else None,
        "error": exact(moment.error),
        "validation": moment.validation,
        "usage": moment.usage,
        "attempts": moment.attempts,
        "streams": [_stream(run, index, stream) for index, stream in sorted(moment.streams.items())],
        "function_calls": [_call(call) for call in moment.calls],
        "created_at": instant(run.created_at),
        "started_at": _instant(moment.started_ts),
        "ended_at": _instant(moment.ended_ts),
    }


def _stream(run: RunRecord, index: int, stream: StreamThen) -> dict[str, Any]:
    replay = stream.replay
    return {
        "stream_id": stream_id(run.id, index),
        "purpose": stream.purpose,
        "index": stream.index,
        "status": stream.status,
        "attempt": replay.attempt,
        "fallback_index": replay.fallback_index,
        "attempts": replay.openings,
        "text": replay.text,
    }


def _call(call: CallThen) -> dict[str, Any]:
    return {
        "call_id": call.call_id,
        "tool_call_id": call.tool_call_id,
        "function": call.function,
        "arguments": exact(call.arguments),
        "status": call.status,
        "attempts": call.attempts,
        "output": exact(call.output),
        "error": call.error,
    }


def _instant(ms: int | None) -> str | None:
    return None if ms is None else instant(datetime.fromtimestamp(ms / 1000, UTC))
