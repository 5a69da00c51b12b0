"""Read a JSON body: within bounds, exactly, and as the model that a route asks for.

The framework's own parsing takes NaN and lets a key stand twice, so no route declares a body parameter: it
depends on `json_body(Model)`, and openapi.py tells clients of the model.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn, TypeVar

from fastapi import Depends
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request

from app.api.problems import body_faults, short
from app.core import json_text
from app.core.errors import BodyTooLarge, FieldError, Invalid, InvalidJson, UnsupportedMedia

M = TypeVar("M", bound=BaseModel)


class Body(BaseModel):
    """A request body: nothing unknown, nothing converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class JsonBody:
    """A dependency that gives the body as a `model`."""

    def __init__(self, model: type[BaseModel], *, optional: bool = False) -> None:
        """`optional`: no body at all means an empty object."""
        self.model = model
        self.optional = optional

    async def __call__(self, request: Request) -> Any:
        """See `read_body`."""
        return await read_body(request, self.model, optional=self.optional)


def json_body(model: type[BaseModel], *, optional: bool = False) -> Any:
    """`body: Annotated[Model, json_body(Model)]` in the signature of a route."""
    return Depends(JsonBody(model, optional=optional))


async def read_body(request: Request, model: type[M], *, optional: bool = False) -> M:
    """The body as a `model`. Raises UnsupportedMedia, BodyTooLarge, InvalidJson, Invalid."""
    value = await read_json(request, optional=optional)
    try:
        return model.model_validate(value, context=request.app.state.services.choices)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        raise body_faults(faults, value) from None


async def read_json(request: Request, *, optional: bool = False) -> Any:
    """The body as a JSON value; kept in the request's state for who needs it again."""
    edge = request.app.state.services.edge
    raw = await _read_bytes(request, edge.body_bytes)
    if not raw:
        if not optional:
            raise InvalidJson("The body is empty; send a JSON object.")
        value: Any = {}
    else:
        _check_media_type(request.headers.get("content-type"))
        value = _parse(raw, edge.json_depth)
    request.state.body = value
    return value


def _check_media_type(header: str | None) -> None:
    kind, _, parameters = (header or "").partition(";")
    if kind.strip().lower() == "application/json":
        charset = parameters.lower().replace(" ", "").replace('"', "")
        if "charset=" not in charset or "charset=utf-8" in charset:
            return
    raise UnsupportedMedia("Bodies are JSON in UTF-8: send Content-Type: application/json.")


async def _read_bytes(request: Request, limit: int) -> bytes:
    # What Content-Length says only spares reading; the count decides.
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body has more than {limit} bytes.", extra={"limit": limit})


def _parse(raw: bytes, depth: int) -> Any:
    try:
        return json_text.read(raw, max_depth=depth)
    except json_text.NotJson as error:
        if error.too_deep:
            words = f"nested more than {depth} levels deep"
            where = FieldError(short(error.pointer or ""), words, "too_deep")
            raise Invalid(f"The body cannot be taken: {words}.", errors=[where]) from None
        place: dict[str, Any] = {}
        if error.offset is not None:
            place["offset"] = error.offset
        raise InvalidJson(short(f"The body cannot be read: {error}."), extra=place) from None


def check_name(kind: str, pattern: str, name: str, said: str | None) -> None:
    """Raise `Invalid` for a name in an address that cannot be one, or that the body contradicts."""
    if not re.fullmatch(pattern, name):
        _refuse(kind, "", f"a name has to match {pattern}")
    if said is not None and said != name:
        _refuse(kind, "/name", "it is not the name in the address")


def _refuse(kind: str, pointer: str, words: str) -> NoReturn:
    raise Invalid(f"The {kind} cannot be registered: {words}.", errors=[FieldError(pointer, words)])
