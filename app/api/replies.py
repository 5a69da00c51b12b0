"""Answers made of plain values: serialized once, by orjson."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson
from starlette.responses import Response

from app.core.json_text import dumps

JSON = "application/json"


def encode(value: Any) -> bytes:
    """JSON of plain values, UUIDs, times (as RFC 3339 in UTC) and fragments."""
    return orjson.dumps(value, default=str, option=orjson.OPT_UTC_Z)


def reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(encode(value), status, dict(headers) if headers else None, media_type=JSON)


def exact(value: Any) -> orjson.Fragment | None:
    """A client's JSON value with integers of any size, which the fast serializer alone would refuse."""
    return None if value is None else orjson.Fragment(dumps(value))


def instant(moment: datetime | None) -> str | None:
    """A time as it is shown everywhere: RFC 3339 in UTC, to the millisecond."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
