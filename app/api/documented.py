"""`responses=` of routes: what is answered, and which problems can come instead."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from pydantic import BaseModel

from app.api.problems import MEDIA_TYPE, STATUS
from app.core.errors import (
    AppError,
    BranchBusy,
    NotFound,
    PreconditionFailed,
    QueueFull,
    UnsupportedOption,
)
from app.core.limits.refusal import CostLimitReached, RunLimitReached, TokenLimitReached

Responses = dict[int | str, dict[str, Any]]


def answers(status: int, model: type[BaseModel] | None, *errors: type[AppError], says: str = "") -> Responses:
    """The answer to a request that succeeds, and its own errors; those that any route has are added by
    openapi.py.
    """
    good: dict[str, Any] = {"description": says or HTTPStatus(status).phrase}
    if model is not None:
        good["model"] = model
    return {status: good, **problems(*errors)}


def also(status: int, says: str, content: dict[str, Any]) -> Responses:
    """A further answer, its body told by media type as OpenAPI has it."""
    return {status: {"description": says, "content": content}}


EVENTS: dict[str, Any] = {
    "text/event-stream": {
        "schema": {
            "type": "string",
            "description": "Server-sent events: `id` is `<run_id>:<seq>`, `event` the type, `data` an "
            "`Event`; the last one is `stream.end`. With `view=callbacks`, `event` is the name and `data` a "
            "`FiredCallback`; only the last one of an event has an `id`. With `view=partial`, `event` is the "
            "type and `data` a `PartialFrame`.",
        }
    }
}
"""The content of an answer that follows a run."""

RUN: dict[str, Any] = {"application/json": {"schema": {"$ref": "#/components/schemas/RunView"}}}
RUN_ANSWERS: Responses = also(200, "The run has ended, or its events", {**RUN, **EVENTS}) | also(
    202, "The run goes on, at the address that Location names", RUN
)
"""What is answered to a request that starts a run."""
RUN_REFUSALS: tuple[type[AppError], ...] = (
    NotFound,
    BranchBusy,
    PreconditionFailed,
    QueueFull,
    RunLimitReached,
    TokenLimitReached,
    CostLimitReached,
    UnsupportedOption,
)
"""How every such request can be refused."""


LOG_PAGE: dict[str, Any] = {"application/json": {"schema": {"$ref": "#/components/schemas/LogPage"}}}


def problems(*errors: type[AppError]) -> Responses:
    """Problems by status, each code with an example."""
    found: Responses = {}
    for error in errors:
        status = STATUS[error.category]
        found.setdefault(status, _empty())
        add_problem(found[status], error)
    return found


def add_problem(response: dict[str, Any], error: type[AppError]) -> None:
    """Say in a documented response that `error` is one of those that it stands for."""
    content = response.setdefault("content", {}).setdefault(MEDIA_TYPE, {})
    content["schema"] = {"$ref": "#/components/schemas/Problem"}
    content.setdefault("examples", {})[error.code] = {"summary": meaning(error), "value": example(error)}
    codes = [f"`{code}`" for code in content["examples"]]
    response["description"] = ", ".join(codes)


def meaning(error: type[AppError]) -> str:
    """The first line of its docstring."""
    return (error.__doc__ or "").strip().partition("\n")[0]


def example(error: type[AppError]) -> dict[str, Any]:
    """A problem of this kind, as it is sent."""
    return {
        "type": f"/problems/{error.code}",
        "title": error.code.replace("_", " ").capitalize(),
        "status": STATUS[error.category],
        "detail": meaning(error),
        "code": error.code,
        "errors": [],
        "request_id": "019a0000-0000-7000-8000-00000000000a",
        "retryable": error.retryable,
    }


def _empty() -> dict[str, Any]:
    return {"description": ""}
