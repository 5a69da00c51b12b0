"""What the routes that deal with runs are given, and the answers they share."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from fastapi import Depends, Request
from pydantic import BaseModel
from pydantic_core import from_json
from starlette.responses import Response

from app.api.log_views import LogQuery, view_of
from app.api.once import REPLAYED, fingerprint_of, scope_of
from app.api.problems import STANDINGS, request_id_of
from app.api.replies import reply
from app.api.sse import EventStream, LogView
from app.api.views import run_body
from app.core.access import Principal
from app.core.errors import AppError, Category
from app.core.limits.quota import run_quotas
from app.ports.listings import Listings
from app.ports.storage import RunRecord, RunStore
from app.services.books import Books
from app.services.runs import Origin, Runs, Submission
from app.services.simulation import Simulator

EVENT_STREAM: Final = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Running:
    """The services behind runs, and how their clients are served."""

    runs: Runs
    store: RunStore
    listings: Listings
    simulator: Simulator
    books: Books
    heartbeat_s: float = 15
    wait_default_s: float = 30
    wait_max_s: float = 55
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the service is about to stop."""


async def running_of(request: Request) -> Running:
    """See `Running`."""
    found: Running = request.app.state.running
    return found


InRunning = Annotated[Running, Depends(running_of)]


class ToolCallFailed(AppError):
    """A tool call failed, and the request asked for that to be a problem."""

    code = "tool_failed"
    category = Category.TOOL_FAILED


class ResultMismatch(AppError):
    """The model's answer does not fit the response format, and the request asked for that to be a problem."""

    code = "result_mismatch"
    category = Category.INVALID


class RunFailed(AppError):
    """The run failed, and the request asked for that to be a problem."""

    code = "run_failed"
    category = Category.UPSTREAM


class RunTimedOut(AppError):
    """The model took longer than it was given, and the request asked for that to be a problem."""

    code = "run_timed_out"
    category = Category.TIMEOUT


_TIMED_OUT: Final = frozenset({"INITIAL_TOKEN_TIMEOUT", "INTER_TOKEN_TIMEOUT", "DEADLINE_EXCEEDED"})


@dataclass(frozen=True, slots=True)
class Preference:
    """How the client wants to learn of the end."""

    wait_s: float
    """0 for an answer at once."""
    applied: str | None
    """What Preference-Applied says."""


_WAIT = re.compile(r"wait\s*=\s*\"?(\d{1,6})\"?")


def preference_of(request: Request, running: Running) -> Preference:
    """What Prefer says; what it says beyond that is ignored, as the header's definition wants."""
    wishes = [part.strip().lower() for part in ",".join(request.headers.getlist("prefer")).split(",")]
    if "respond-async" in wishes:
        return Preference(0, "respond-async")
    for wish in wishes:
        if found := _WAIT.fullmatch(wish):
            wait_s = min(float(found[1]), running.wait_max_s)
            return Preference(wait_s, f"wait={wait_s:g}")
    return Preference(running.wait_default_s, None)


def wants_stream(request: Request) -> bool:
    """Whether the client accepts server-sent events."""
    accepted = (part.partition(";")[0].strip() for part in request.headers.get("accept", "").split(","))
    return any(kind.lower() == EVENT_STREAM for kind in accepted)


def origin_of(request: Request, who: Principal, *, key: str | None, if_match: int | None) -> Origin:
    """Where a request comes from; its body must have been read."""
    once = None if key is None else (scope_of(request, who), key, fingerprint_of(request))
    traceparent = request.headers.get("traceparent")
    return Origin(
        project_id=who.project_id,
        key_id=who.key_id,
        request_id=request_id_of(request.scope),
        traceparent=traceparent
        if traceparent and len(traceparent) <= 128 and traceparent.isascii()
        else None,
        if_match=if_match,
        idempotency=once,
        quotas=run_quotas(who.quotas) if who.quotas else (),
    )


async def answer(
    request: Request, running: Running, submission: Submission, log: LogQuery, *, raises: BaseModel
) -> Response:
    """The answer to a request that made a run, in the form that the client asks for.

    `log` says how its log is shown where that is followed, and `raises` is the request: it says which ends of
    the run are problems.
    """
    if submission.limits:
        request.scope[STANDINGS] = [*request.scope.get(STANDINGS, ()), *submission.limits]
    headers = {"Run-Id": str(submission.run.id)}
    if submission.replayed:
        headers[REPLAYED] = "true"
    if wants_stream(request):
        view = view_of(log, submission.run)
        return follow(running, submission.run, after=0, view=view, headers=headers)
    preference = preference_of(request, running)
    if preference.applied is not None:
        headers["Preference-Applied"] = preference.applied
    run = submission.run
    if preference.wait_s:
        run = await running.runs.wait(run, preference.wait_s, unless=running.closing)
    if not run.ended:
        headers["Location"] = f"/v1/runs/{run.id}"
        return reply(run_body(run), 202, headers)
    _raise_if_asked(run, raises)
    return reply(run_body(run), 200, headers)


def follow(
    running: Running, run: RunRecord, *, after: int, view: LogView, headers: Mapping[str, str]
) -> EventStream:
    """The run's events from a cursor on."""
    return EventStream(
        running.runs.follow(run, after, view.reader, pace_s=view.pace_s),
        str(run.id),
        view=view,
        heartbeat_s=running.heartbeat_s,
        closing=running.closing,
        headers=headers,
    )


def _raise_if_asked(run: RunRecord, request: BaseModel) -> None:
    if run.status != "failed" or run.error is None:
        return
    error: dict[str, Any] = from_json(run.error)
    kind = _raised(error["code"], request)
    if kind is not None:
        raise kind(error["message"], extra={"run_id": str(run.id), "error": error})


def _raised(code: str, request: BaseModel) -> type[AppError] | None:
    if code == "RESULT_MISMATCH":
        return ResultMismatch
    if getattr(request, "suppress_errors", True):
        return None
    if code == "TOOL_FAILED":
        return ToolCallFailed
    return RunTimedOut if code in _TIMED_OUT else RunFailed


def given(**filters: Any) -> dict[str, Any]:
    """The filters of a listing that were given."""
    return {name: value for name, value in filters.items() if value is not None}
