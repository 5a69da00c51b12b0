"""JSON Schemas of the events, read off their classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from app.core.events import event_types
from app.core.events.base import Event, TextRef, camel

REF = "#/components/schemas/"
ENVELOPE = "EventEnvelope"
ANY = "Event"
PAGE = "EventPage"

_TEXT = {"type": ["string", "null"], "description": "Null where it is too long to be shown here."}
_UUID = {"type": "string", "format": "uuid"}
_RUN = "019a0000-0000-7000-8000-000000000003"
_PLACEHOLDERS: Mapping[str, Any] = {
    "string": "…",
    "integer": 0,
    "number": 0.5,
    "boolean": True,
    "object": {},
    "array": [],
}


def event_schemas() -> dict[str, Any]:
    """By name: one schema for each type, their union, what they share, and a page of them."""
    kinds = sorted(event_types().values(), key=lambda kind: kind.code)
    names = {kind.type: kind.__name__ + "Event" for kind in kinds}
    made: dict[str, Any] = {names[kind.type]: _event(kind) for kind in kinds}
    made[ENVELOPE] = _envelope()
    made[ANY] = {
        "description": "One fact about a run. Clients ignore types that they do not know.",
        "oneOf": [{"$ref": REF + name} for name in names.values()],
        "discriminator": {
            "propertyName": "type",
            "mapping": {kind: REF + name for kind, name in names.items()},
        },
    }
    made[PAGE] = {
        "type": "object",
        "description": "One page of a run's log.",
        "properties": {
            "data": {"type": "array", "items": {"$ref": REF + ANY}},
            "has_more": {"type": "boolean"},
            "next": {"type": ["string", "null"], "description": "`after` of the next page."},
        },
        "required": ["data", "has_more", "next"],
    }
    return made


def _event(kind: type[Event]) -> dict[str, Any]:
    meta = _meta(kind)
    return {
        "description": " ".join((kind.__doc__ or "").split()),
        "allOf": [{"$ref": REF + ENVELOPE}],
        "type": "object",
        "properties": {"type": {"const": kind.type}, "meta": meta},
        "required": ["type", "meta"],
        "examples": [{**_shared_example(kind), "meta": _example(meta)}],
    }


def _meta(kind: type[Event]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    declared: Any = kind
    properties, required = {}, []
    for member in fields(declared):
        name = camel(member.name)
        hint = hints[member.name]
        properties[name] = _TEXT if hint is TextRef else TypeAdapter(hint).json_schema()
        if member.default is not None:
            required.append(name)
    return {"type": "object", "properties": properties, "required": required}


def _example(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _placeholder(meta["properties"][name]) for name in meta["required"]}


def _placeholder(schema: Mapping[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return _placeholder(schema["anyOf"][0])
    kind = schema.get("type")
    return _PLACEHOLDERS.get(kind[0] if isinstance(kind, list) else str(kind))


def _envelope() -> dict[str, Any]:
    nullable_id = {"type": ["string", "null"], "format": "uuid"}
    count = {"type": ["integer", "null"]}
    properties = {
        "seq": {"type": "integer", "minimum": 1, "description": "Per run, from 1, without gaps."},
        "ts": {"type": "integer", "description": "Milliseconds since the epoch."},
        "type": {"type": "string"},
        "run_id": _UUID,
        "branch_id": nullable_id,
        "stream_id": {**nullable_id, "description": "Null for an event of the run itself."},
        "attempt": {**count, "description": "From 1; begins anew on a fallback."},
        "fallback_index": {**count, "description": "0 for the primary model."},
        "context": {"type": "object", "description": "The caller's."},
        "meta": {"type": "object"},
        "callbacks": {
            "type": "array",
            "description": "Those that fire directly after the event, in order.",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "args": {"type": "array", "items": {}}},
                "required": ["name", "args"],
            },
        },
    }
    return {
        "type": "object",
        "description": "What every event has.",
        "properties": properties,
        "required": list(properties),
    }


def _shared_example(kind: type[Event]) -> dict[str, Any]:
    return {
        "seq": 1,
        "ts": 1_796_000_000_000,
        "type": kind.type,
        "run_id": _RUN,
        "branch_id": None,
        "stream_id": None,
        "attempt": None,
        "fallback_index": None,
        "context": {},
        "callbacks": [],
    }
