"""What is on offer, as clients see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, Literal

from pydantic import ConfigDict, Field

from app.api.schemas.common import View
from app.core.events.base import Event, camel
from app.core.events.structured import ALIASES


class HealthView(View):
    """Everything is fine."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"status": "ok"}]})

    status: Literal["ok"]


class VersionView(View):
    """Which server this is."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "branchline", "version": "0.1.0"}]})

    name: Literal["branchline"]
    version: str


class EventFieldView(View):
    """A member of an event's `meta`."""

    name: str
    optional: bool = Field(description="Left out when there is nothing to say.")


class EventTypeView(View):
    """A type of event that a run can leave."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "TOKEN",
                    "code": 1,
                    "aliases": [],
                    "family": "session",
                    "per_stream": True,
                    "description": "A piece of the answer.",
                    "fields": [{"name": "text", "optional": False}],
                }
            ]
        }
    )

    type: str
    code: int = Field(description="Its number in the database; never used again for another type.")
    aliases: list[str] = Field(description="Names that `aliases` of a log shows in place of `type`.")
    family: str
    per_stream: bool = Field(description="False for an event of the run itself, whose `stream_id` is null.")
    description: str
    fields: list[EventFieldView]


class EventTypeList(View):
    """Every type of event that this version knows; clients ignore those that they do not know."""

    data: list[EventTypeView]


def event_type_view(kind: type[Event]) -> dict[str, Any]:
    """An event type as `EventTypeView` says."""
    declared: Any = kind
    return {
        "type": kind.type,
        "code": kind.code,
        "aliases": [ALIASES[kind.type]] if kind.type in ALIASES else [],
        "family": kind.family,
        "per_stream": kind.per_stream,
        "description": " ".join((kind.__doc__ or "").split()),
        "fields": [
            {"name": camel(member.name), "optional": member.default is None}
            for member in fields(declared)
            if member.default is MISSING or member.init
        ],
    }


def whole(items: list[Mapping[str, Any]]) -> dict[str, Any]:
    """A list that always fits one page."""
    return {"data": items, "has_more": False, "next": None}
