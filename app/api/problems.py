"""Errors as `application/problem+json`: the only place that knows HTTP statuses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route

from app.core.errors import AppError, Category, FieldError, Invalid, NotFound, UnsupportedOption
from app.core.json_schema import InvalidSchema
from app.core.json_text import pointer
from app.core.limits.refusal import LimitReached

STATUS: Final[Mapping[Category, int]] = {
    Category.MALFORMED: 400,
    Category.UNAUTHENTICATED: 401,
    Category.FORBIDDEN: 403,
    Category.NOT_FOUND: 404,
    Category.CONFLICT: 409,
    Category.GONE: 410,
    Category.PRECONDITION: 412,
    Category.TOO_LARGE: 413,
    Category.HEAD_TOO_LARGE: 431,
    Category.UNSUPPORTED_MEDIA: 415,
    Category.INVALID: 422,
    Category.TOOL_FAILED: 424,
    Category.TOO_MANY: 429,
    Category.INTERNAL: 500,
    Category.UPSTREAM: 502,
    Category.UNAVAILABLE: 503,
    Category.TIMEOUT: 504,
}

MEDIA_TYPE = "application/problem+json"

REQUEST_ID = "branchline.request_id"
"""Key of the ASGI scope under which the middleware leaves the request's id."""

STANDINGS = "branchline.standings"
"""Key of the ASGI scope under which it is left where the limits of the key and its project stand."""

MAX_ERRORS = 20
MAX_WORDS = 300
"""Characters of one message, and of one step of a pointer: a huge input is never sent back."""

_FRAMEWORK: Final[Mapping[int, tuple[str, str]]] = {
    400: ("malformed_request", "The request could not be read."),
    404: ("not_found", "There is nothing at this address."),
    405: (
        "method_not_allowed",
        "This address does not take this method; the Allow header lists those it does.",
    ),
}
"""Code and detail for what the framework itself refuses."""


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    request_id: str | None,
    errors: Sequence[FieldError] = (),
    extra: Mapping[str, Any] | None = None,
    retryable: bool = False,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A problem as a response. `code` is stable and names the type, which `GET /problems/{code}` explains."""
    body: dict[str, Any] = {
        "type": f"/problems/{code}",
        "title": code.replace("_", " ").capitalize(),
        "status": status,
        "detail": detail,
        "code": code,
        "errors": [_field(error) for error in errors],
        "request_id": request_id,
        "retryable": retryable,
    }
    for name, value in (extra or {}).items():
        body.setdefault(name, value)
    content = orjson.dumps(body, default=str)
    return Response(content, status, dict(headers) if headers else None, media_type=MEDIA_TYPE)


def problem_of(error: AppError, request_id: str | None) -> Response:
    """The problem that tells the caller of `error`."""
    headers: dict[str, str] = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    if error.category is Category.UNAUTHENTICATED:
        headers["WWW-Authenticate"] = "Bearer"
    return problem(
        STATUS[error.category],
        error.code,
        error.detail,
        request_id=request_id,
        errors=error.errors,
        extra=error.extra,
        retryable=error.retryable,
        headers=headers,
    )


def _field(error: FieldError) -> dict[str, str]:
    out = {"pointer": error.pointer, "message": error.message, "code": error.code}
    if error.parameter is not None:
        out["parameter"] = error.parameter
    return out


def install(app: FastAPI) -> None:
    """Make problems of everything that routes, and the framework around them, raise."""
    app.add_exception_handler(AppError, _on_app_error)
    app.add_exception_handler(RequestValidationError, _on_bad_parameters)
    app.add_exception_handler(HTTPException, _on_framework_refusal)


def request_id_of(scope: Mapping[str, Any]) -> str | None:
    """The id of the request with this ASGI scope."""
    found: str | None = scope.get(REQUEST_ID)
    return found


async def _on_app_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, AppError)
    if isinstance(error, LimitReached):
        request.scope[STANDINGS] = [*request.scope.get(STANDINGS, ()), error.standing]
    return problem_of(error, request_id_of(request.scope))


async def _on_bad_parameters(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = error.errors()
    if any(fault["loc"][0] == "path" for fault in faults):
        return problem_of(NotFound("There is nothing with this id."), request_id_of(request.scope))
    return problem_of(parameter_faults(faults), request_id_of(request.scope))


async def _on_framework_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code, detail = _FRAMEWORK.get(error.status_code, ("http_error", "The request was refused."))
    headers = {"Allow": _methods(request)} if error.status_code == 405 else error.headers
    return problem(error.status_code, code, detail, request_id=request_id_of(request.scope), headers=headers)


def _methods(request: Request) -> str:
    """What the address takes, by all its routes; the framework names the methods of one."""
    found: set[str] = set()
    for route in request.app.router.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return ", ".join(sorted(found))


def body_faults(faults: Iterable[ErrorDetails], body: Any) -> Invalid:
    """What pydantic found wrong with `body`, as one error."""
    found = [
        FieldError(_pointer(fault, body), _message(fault), _code(fault["type"]))
        for fault in list(faults)[:MAX_ERRORS]
    ]
    kind: type[Invalid] = Invalid
    if any(error.code == UnsupportedOption.code for error in found):
        kind = UnsupportedOption
    elif all(error.code == InvalidSchema.code for error in found):
        kind = InvalidSchema
    return kind(_summary(found, "body"), errors=found)


def parameter_faults(faults: Iterable[Any]) -> Invalid:
    """What the framework found wrong with the query and the headers, as one error."""
    found = [
        FieldError(
            "",
            _message(fault),
            "unknown_parameter" if fault["type"] == "extra_forbidden" else _code(fault["type"]),
            ".".join(short(str(step)) for step in fault["loc"][1:]),
        )
        for fault in list(faults)[:MAX_ERRORS]
    ]
    return Invalid(_summary(found, "query or headers"), errors=found)


def _summary(found: Sequence[FieldError], where: str) -> str:
    first = found[0]
    place = first.parameter or first.pointer
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"The {where} cannot be used: {first.message}" + (f" (at {place!r}{more})" if place else more)


def _pointer(fault: ErrorDetails, body: Any) -> str:
    """Pointer to the value at fault; what pydantic puts between (the arms of a union) is left out."""
    steps: list[str | int] = []
    node = body
    for step in fault["loc"]:
        if isinstance(node, dict) and step in node:
            node = node[step]
            steps.append(short(str(step)))
        elif isinstance(node, list) and isinstance(step, int) and step < len(node):
            node = node[step]
            steps.append(step)
        elif fault["type"] == "missing" and step == fault["loc"][-1]:
            steps.append(step)
    return pointer(*steps)


def _code(kind: str) -> str:
    match kind:
        case "missing":
            return "missing"
        case "extra_forbidden":
            return "unknown_field"
        case InvalidSchema.code:
            return kind
        case _ if kind.endswith("_type"):
            return "wrong_type"
        case _ if kind.endswith("_option") or kind.startswith(("field_", "unknown_")):
            return kind
        case _:
            return "invalid"


_WORDS = {"missing": "this has to be given", "extra_forbidden": "there is nothing of this name here"}


def _message(fault: Mapping[str, Any]) -> str:
    words = _WORDS.get(fault["type"]) or str(fault["msg"]).removeprefix("Value error, ")
    return short(words[:1].lower() + words[1:])


def short(text: str) -> str:
    """At most MAX_WORDS characters of it."""
    return text if len(text) <= MAX_WORDS else text[: MAX_WORDS - 1] + "…"
