"""JSON Schemas of the events, read off their classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from app.api.partial_schemas import PARTIAL_FRAME
from app.core.events import event_types
from app.core.events.base import Event, TextRef, camel
from app.core.events.structured import ALIASES
from app.core.texts import MAX_SHOWN

REF = "#/components/schemas/"
ENVELOPE = "EventEnvelope"
ANY = "Event"
PAGE = "EventPage"
CALLBACK = "FiredCallback"
CALLBACK_PAGE = "CallbackPage"
PARTIAL = "PartialFrame"
PARTIAL_PAGE = "PartialPage"
LOG_PAGE = "LogPage"

_TEXT = {
    "type": ["string", "null"],
    "description": f"Null above {MAX_SHOWN} code points; the member beside it then tells where the text is.",
}
_TEXT_REF = {
    "type": "object",
    "description": "The first `length` code points of the stream's text after the event `to_seq`; it begins "
    "with the event `from_seq`.",
    "properties": {name: {"type": "integer"} for name in ("from_seq", "to_seq", "length")},
    "required": ["from_seq", "to_seq", "length"],
}
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
            "mapping": {shown: REF + name for kind, name in names.items() for shown in _shown_as(kind)},
        },
    }
    made[CALLBACK] = _callback()
    made[PAGE] = _page_of(ANY, "One page of a run's log.")
    made[CALLBACK_PAGE] = _page_of(CALLBACK, "The callbacks that fired after the events of one page.")
    made[PARTIAL] = PARTIAL_FRAME
    made[PARTIAL_PAGE] = _page_of(PARTIAL, "How a run's value grew over the events of one page.")
    made[LOG_PAGE] = {
        "description": "Events, or with `view=callbacks` callbacks, or with `view=partial` partial values.",
        "anyOf": [{"$ref": REF + PAGE}, {"$ref": REF + CALLBACK_PAGE}, {"$ref": REF + PARTIAL_PAGE}],
    }
    return made


def _shown_as(kind: str) -> list[str]:
    """The names under which a type is shown."""
    return [kind, ALIASES[kind]] if kind in ALIASES else [kind]


def _type(kind: str) -> dict[str, Any]:
    return {"enum": _shown_as(kind)} if kind in ALIASES else {"const": kind}


def _page_of(item: str, words: str) -> dict[str, Any]:
    return {
        "type": "object",
        "description": words,
        "properties": {
            "data": {"type": "array", "items": {"$ref": REF + item}},
            "has_more": {"type": "boolean"},
            "next": {"type": ["string", "null"], "description": "`after` of the next page."},
        },
        "required": ["data", "has_more", "next"],
    }


def _event(kind: type[Event]) -> dict[str, Any]:
    meta = _meta(kind)
    return {
        "description": " ".join((kind.__doc__ or "").split()),
        "allOf": [{"$ref": REF + ENVELOPE}],
        "type": "object",
        "properties": {"type": _type(kind.type), "meta": meta},
        "required": ["type", "meta"],
        "examples": [{**_shared_example(kind), "meta": _example(meta)}],
    }


def _meta(kind: type[Event]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    declared: Any = kind
    properties: dict[str, Any] = {}
    required = []
    for member in fields(declared):
        name = camel(member.name)
        hint = hints[member.name]
        if hint is TextRef:
            properties |= {name: _TEXT, name + "Ref": _TEXT_REF}
        else:
            properties[name] = TypeAdapter(hint).json_schema()
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


_NULLABLE_ID = {"type": ["string", "null"], "format": "uuid"}
_COUNT = {"type": ["integer", "null"]}
_PLACE: Mapping[str, Any] = {
    "seq": {"type": "integer", "minimum": 1, "description": "Per run, from 1, without gaps."},
    "ts": {"type": "integer", "description": "Milliseconds since the epoch."},
    "run_id": _UUID,
    "branch_id": _NULLABLE_ID,
    "stream_id": {**_NULLABLE_ID, "description": "Null for an event of the run itself."},
    "attempt": {**_COUNT, "description": "From 1; begins anew on a fallback."},
    "fallback_index": {**_COUNT, "description": "0 for the primary model."},
    "context": {"type": "object", "description": "The caller's."},
}
"""What an event and its callbacks share."""


def _envelope() -> dict[str, Any]:
    properties = {
        **_PLACE,
        "type": {"type": "string"},
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


def _callback() -> dict[str, Any]:
    properties = {**_PLACE, "name": {"type": "string"}, "args": {"type": "array", "items": {}}}
    return {
        "type": "object",
        "description": "A callback that fired, with the event that it followed.",
        "properties": properties,
        "required": list(properties),
        "examples": [{**_PLACE_EXAMPLE, "name": "on_token", "args": ["Hel"]}],
    }


_PLACE_EXAMPLE: Mapping[str, Any] = {
    "seq": 1,
    "ts": 1_796_000_000_000,
    "run_id": _RUN,
    "branch_id": None,
    "stream_id": None,
    "attempt": None,
    "fallback_index": None,
    "context": {},
}


def _shared_example(kind: type[Event]) -> dict[str, Any]:
    return {**_PLACE_EXAMPLE, "type": kind.type, "callbacks": []}
