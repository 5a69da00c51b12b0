"""The OpenAPI document: what the framework reads off the routes, and what only we know of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app.api.bodies import JsonBody
from app.api.deps import Requires, if_match_of
from app.api.documented import add_problem
from app.api.event_schemas import event_schemas
from app.api.once import HEADER, asked_of, idempotency_key_of
from app.api.problems import STATUS
from app.api.schemas.problems import Problem
from app.api.schemas.transfer import export_schemas
from app.core.errors import (
    AppError,
    BodyTooLarge,
    Conflict,
    Forbidden,
    Invalid,
    InvalidJson,
    KeyReused,
    Malformed,
    NotFound,
    Unauthenticated,
    Unavailable,
    UnsupportedMedia,
)
from app.core.limits.refusal import RequestLimitReached

REF = "#/components/schemas/{model}"
SCHEME = "key"

TAGS = [
    {"name": "branches", "description": "Conversations and their messages."},
    {"name": "runs", "description": "Operate, act, consensus, and what became of them."},
    {"name": "function calls", "description": "Every call of a tool, whatever became of it."},
    {"name": "usage", "description": "What attempts at models used and cost."},
    {"name": "models", "description": "Models that runs can call."},
    {"name": "tools", "description": "Tools that models can call, and MCP servers that have some."},
    {"name": "credentials", "description": "Secrets that models, tools and MCP servers refer to by name."},
    {
        "name": "approvals",
        "description": "Tool calls that wait for a person, and what was decided.",
    },
    {
        "name": "client calls",
        "description": "Tool calls that a client's own program carries out.",
    },
    {"name": "webhooks", "description": "Where callbacks of runs are posted to, and what became of that."},
    {"name": "transfer", "description": "Histories as files: out of one installation and into another."},
    {"name": "governance", "description": "What calls are judged by, and who changed what."},
    {"name": "projects", "description": "Tenants and their API keys."},
    {"name": "limits", "description": "What keys and projects may use, and what is left of it."},
    {"name": "catalog", "description": "What this server is and knows."},
    {"name": "operations", "description": "For those who keep the server running."},
]

_BODY_ERRORS: tuple[type[AppError], ...] = (InvalidJson, BodyTooLarge, UnsupportedMedia, Invalid)


def describe(app: FastAPI, routes: Sequence[APIRoute]) -> dict[str, Any]:
    """The OpenAPI 3.1 document of the application with these routes."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary="Runs language-model work and keeps a durable record of it.",
        routes=app.router.routes,
        tags=TAGS,
        separate_input_output_schemas=False,
    )
    components = document.setdefault("components", {})
    components["securitySchemes"] = {
        SCHEME: {"type": "http", "scheme": "bearer", "description": "An API key: `bl_…`."}
    }
    schemas = components.setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    # Over those that the framework made: it drops every null, those of the examples too.
    schemas.update(_model_schemas(routes))
    schemas.update(event_schemas())
    schemas.update(export_schemas(REF))
    for route in routes:
        if route.include_in_schema:
            for method in route.methods or ():
                _complete(document["paths"][route.path_format][method.lower()], route)
    return document


def _model_schemas(routes: Sequence[APIRoute]) -> dict[str, Any]:
    """The schemas of all bodies and answers, by name."""
    models: set[type[BaseModel]] = {Problem}
    for route in routes:
        models |= {call.model for call in _calls(route) if isinstance(call, JsonBody)}
        models |= {answer["model"] for answer in route.responses.values() if "model" in answer}
    wanted = [(model, "validation") for model in sorted(models, key=lambda model: model.__name__)]
    _, made = models_json_schema(wanted, ref_template=REF)  # type: ignore[arg-type]
    schemas: dict[str, Any] = made["$defs"]
    return schemas


def _calls(route: APIRoute) -> Iterator[Any]:
    """Every dependency of a route, at any depth."""
    waiting: list[Dependant] = [route.dependant]
    while waiting:
        dependant = waiting.pop()
        yield dependant.call
        waiting.extend(dependant.dependencies)


def _complete(operation: dict[str, Any], route: APIRoute) -> None:
    calls = list(_calls(route))
    operation["operationId"] = route.name
    operation["summary"] = (route.description or "").partition("\n")[0].rstrip(".")
    # The framework's own words for bad parameters never go out: those in a path are a 404.
    operation["responses"].get("422", {}).get("content", {}).pop("application/json", None)
    if not operation["responses"].get("422", {}).get("content", True):
        del operation["responses"]["422"]
    errors: list[type[AppError]] = [AppError]
    for call in calls:
        if isinstance(call, JsonBody):
            operation["requestBody"] = {
                "required": not call.optional,
                "content": {"application/json": {"schema": {"$ref": REF.format(model=call.model.__name__)}}},
            }
            errors += _BODY_ERRORS
        elif isinstance(call, Requires):
            operation["security"] = [{SCHEME: []}]
            operation["x-scope"] = None if call.scope is None else call.scope.value
            errors += [Unauthenticated, Forbidden, Unavailable]
            errors += [RequestLimitReached] if call.counted else []
        elif call in (asked_of, idempotency_key_of):
            _add_header(operation, HEADER, "Repeats with the same key get the first answer, for 24 hours.")
            errors += [Malformed, Conflict, KeyReused]
        elif call is if_match_of:
            _add_header(operation, "If-Match", "The ETag of the version that is to be changed.")
    if any(parameter["in"] == "query" for parameter in operation.get("parameters", ())):
        errors.append(Invalid)
    if route.dependant.path_params:
        errors.append(NotFound)
    for error in errors:
        add_problem(operation["responses"].setdefault(str(STATUS[error.category]), {}), error)
    operation["responses"] = dict(sorted(operation["responses"].items()))


def _add_header(operation: dict[str, Any], name: str, words: str) -> None:
    operation.setdefault("parameters", []).append(
        {
            "name": name,
            "in": "header",
            "required": False,
            "schema": {"type": "string"},
            "description": words,
        }
    )
