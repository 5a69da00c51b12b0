"""What runs used and cost: attempt by attempt, and in sums."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Query, Request
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError
from starlette.responses import Response

from app.api.deps import Reader
from app.api.documented import answers
from app.api.paging import PageQuery, paged
from app.api.replies import reply
from app.api.running import InRunning
from app.api.schemas.catalog import whole
from app.api.schemas.models import NAME
from app.api.schemas.usage import AttemptList, UsagePage, attempt_body, sum_body
from app.core.errors import InvalidCursor, NotFound
from app.ports.usage import GroupBy

router = APIRouter(prefix="/v1", tags=["usage"])

NO_KEY: Final = "-"
"""The cursor after a group without a key."""


def _as_day(value: object) -> object:
    # Left alone, numbers and times would be taken for days too.
    if not isinstance(value, str) or not re.fullmatch(r"\d{4}-\d{2}-\d{2}", value):
        raise PydanticCustomError("day", "give a day as YYYY-MM-DD")
    return value


Day = Annotated[date, BeforeValidator(_as_day)]


class UsageQuery(PageQuery):
    """Which attempts are summed, and how."""

    group_by: GroupBy = Field("project", description="What makes a group; `project` sums all of them.")
    first: Day | None = Field(
        None, alias="from", description="The first day, in UTC; 30 days before the last by default."
    )
    last: Day | None = Field(
        None, alias="to", description="The last day, in UTC; today by default. At most 366 days are summed."
    )
    branch_id: UUID | None = Field(None, description="Attempts of this branch alone.")


@router.get("/runs/{run_id}/attempts", responses=answers(200, AttemptList, NotFound))
async def list_attempts(run_id: UUID, who: Reader, running: InRunning) -> Response:
    """Every attempt at a model that a run has made, and that has ended."""
    found = await running.books.attempts(who.project_id, run_id)
    return reply(whole([attempt_body(run_id, attempt) for attempt in found]))


@router.get("/usage", responses=answers(200, UsagePage, InvalidCursor))
async def sum_usage(
    request: Request, who: Reader, running: InRunning, query: Annotated[UsageQuery, Query()]
) -> Response:
    """What the project's attempts used and cost, by the day on which they ended; in the order of the keys."""
    group_by = query.group_by
    part = query.part(_CURSORS[group_by], newest_first=group_by in ("day", "run"))
    page = await running.books.sums(
        who.project_id, group_by, part, first=query.first, last=query.last, branch_id=query.branch_id
    )
    return paged(request, page, lambda found: sum_body(group_by, found), lambda found: found.key or NO_KEY)


def _day(text: str) -> str:
    return date.fromisoformat(text).isoformat()


def _id(text: str) -> str:
    return "" if text == NO_KEY else str(UUID(text))


def _name(text: str) -> str:
    if text == NO_KEY:
        return ""
    if not re.fullmatch(NAME, text):
        raise ValueError(text)
    return text


def _none(text: str) -> str:
    if text != NO_KEY:
        raise ValueError(text)
    return ""


_CURSORS: Final[Mapping[GroupBy, Callable[[str], str]]] = {
    "project": _none,
    "day": _day,
    "model": _name,
    "branch": _id,
    "run": _id,
}
