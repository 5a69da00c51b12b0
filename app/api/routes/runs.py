"""Runs: their state, their log, their end."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from app.api.deps import Reader as ReadingKey
from app.api.deps import Runner
from app.api.documented import EVENTS, LOG_PAGE, also, answers
from app.api.log_views import LogQuery, checked, view_of
from app.api.paging import MAX_LIMIT, PageQuery, id_cursor, paged
from app.api.replies import reply
from app.api.running import InRunning, Running, follow, given, wants_stream
from app.api.schemas.moments import RunNowOrThen, Seq, run_then
from app.api.schemas.runs import RunPage, RunTextView, RunView
from app.api.sse import LogView
from app.api.views import run_body, text_body
from app.core.errors import Conflict, EventsGone, FieldError, Invalid, InvalidCursor, NotFound, RunEnded
from app.ports.storage import RunRecord
from app.services.follow import page_of
from app.services.moments import moment_of
from app.services.pages import log_page, text_at

router = APIRouter(prefix="/v1", tags=["runs"])

Status = Literal["queued", "running", "waiting", "completed", "failed", "cancelled", "expired"]
Kind = Literal["operate", "act", "consensus"]


class RunsQuery(PageQuery):
    """Which runs are listed."""

    status: Status | None = None
    kind: Kind | None = None
    branch_id: UUID | None = None


class EventsQuery(PageQuery, LogQuery):
    """Which events are read, and in what form."""


class TextQuery(BaseModel):
    """Which text is read, and up to where."""

    model_config = ConfigDict(extra="forbid")

    stream_id: UUID | None = Field(None, description="One of the run's streams; the main one by default.")
    to_seq: Seq | None = Field(None, description="The event after which it is read; the last by default.")


@router.get("/runs", responses=answers(200, RunPage, InvalidCursor))
async def list_runs(
    request: Request, who: ReadingKey, running: InRunning, query: Annotated[RunsQuery, Query()]
) -> Response:
    """Runs of the project, the newest first."""
    filters = given(status=query.status, kind=query.kind, branch_id=query.branch_id)
    page = await running.listings.runs(who.project_id, filters, query.part(id_cursor))
    return paged(request, page, run_body, lambda run: run.id)


@router.get("/branches/{branch_id}/runs", responses=answers(200, RunPage, NotFound, InvalidCursor))
async def list_branch_runs(
    request: Request,
    branch_id: UUID,
    who: ReadingKey,
    running: InRunning,
    query: Annotated[PageQuery, Query()],
) -> Response:
    """Runs of a branch, the newest first."""
    await running.runs.require_branch(who.project_id, branch_id)
    page = await running.listings.runs(who.project_id, {"branch_id": branch_id}, query.part(id_cursor))
    return paged(request, page, run_body, lambda run: run.id)


class ThenQuery(BaseModel):
    """Of which moment a run is read."""

    model_config = ConfigDict(extra="forbid")

    at: Seq | None = Field(None, description="The event after which it is; as the run is now by default.")


@router.get("/runs/{run_id}", responses=answers(200, RunNowOrThen, NotFound, EventsGone))
async def get_run(
    run_id: UUID, who: ReadingKey, running: InRunning, query: Annotated[ThenQuery, Query()]
) -> Response:
    """A run as it is now; with `at`, as it stood after that event, from its log alone."""
    run = await running.runs.get(who.project_id, run_id)
    if query.at is None:
        return reply(run_body(run))
    moment = await moment_of(running.store, run, query.at)
    if moment.ended and not run.ended:
        run = await running.runs.get(
            who.project_id, run_id
        )  # it ended between the two looks: with its result
    return reply(run_then(run, moment))


@router.post(
    "/runs/{run_id}/cancel",
    responses=answers(200, RunView, NotFound, RunEnded, says="Cancelled")
    | answers(202, RunView, says="Asked to end"),
)
async def cancel_run(run_id: UUID, who: Runner, running: InRunning) -> Response:
    """Have a run end: 200 when it has been cancelled, 202 when that is on its way."""
    run = await running.runs.cancel(who.project_id, run_id)
    return reply(run_body(run), 200 if run.ended else 202)


@router.get(
    "/runs/{run_id}/events",
    responses=also(200, "A page, or the stream", {**LOG_PAGE, **EVENTS})
    | answers(
        204, None, NotFound, InvalidCursor, Conflict, EventsGone, says="The stream has nothing more to say"
    ),
)
async def read_events(
    request: Request,
    run_id: UUID,
    who: ReadingKey,
    running: InRunning,
    query: Annotated[EventsQuery, Query()],
) -> Response:
    """The run's log: a page as JSON, or, with `Accept: text/event-stream`, all of it and what is to come."""
    checked(query)
    if query.order == "desc":
        raise Invalid(
            "A log is read from its beginning.",
            errors=[FieldError("", "only asc is offered", "unsupported_option", "order")],
        )
    run = await running.runs.get(who.project_id, run_id)
    view = view_of(query, run)
    if not wants_stream(request):
        return await _page(running, run, _cursor(run, query.after), min(query.limit, MAX_LIMIT), view)
    after = _cursor(run, request.headers.get("last-event-id") or query.after)
    if run.ended:
        if after == run.last_seq:
            return Response(status_code=204)
        # Looked at before the answer begins: later there is no way to say that it is gone.
        await page_of(running.store, run, after=after, limit=1)
    return follow(running, run, after=after, view=view, headers={"Run-Id": str(run.id)})


@router.get("/runs/{run_id}/text", responses=answers(200, RunTextView, NotFound, InvalidCursor, EventsGone))
async def read_text(
    run_id: UUID, who: ReadingKey, running: InRunning, query: Annotated[TextQuery, Query()]
) -> Response:
    """The text of one of the run's streams as it stands after an event, also before the run has ended."""
    run = await running.runs.get(who.project_id, run_id)
    found = await text_at(running.store, run, stream=query.stream_id, to_seq=query.to_seq)
    return reply(text_body(run.id, found))


async def _page(running: Running, run: RunRecord, after: int, limit: int, view: LogView) -> Response:
    found = await log_page(
        running.store, run, view.reader, after=after, limit=limit, types=view.types, show=view.texts
    )
    more, following = ("true", f'"{found.last_seq}"') if found.has_more else ("false", "null")
    body = f'{{"data":[{",".join(found.items)}],"has_more":{more},"next":{following}}}'
    return Response(body, media_type="application/json")


def _cursor(run: RunRecord, text: str | None) -> int:
    """The number of the last event seen, from a seq or an event id. Raises InvalidCursor, Conflict."""
    if text is None or text == "":
        return 0
    run_id, colon, seq = text.rpartition(":")
    if colon and run_id != str(run.id):
        raise Conflict("The cursor belongs to another run.")
    if not seq.isdecimal() or len(seq) > 10:
        raise InvalidCursor("A cursor is the seq of an event, or its id.")
    if int(seq) > run.last_seq:
        raise InvalidCursor(f"The cursor is ahead of the log, whose last event is number {run.last_seq}.")
    return int(seq)
