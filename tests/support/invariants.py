"""What holds for every event and every session: checked wherever a test reads a log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby, pairwise
from typing import Any

import jsonschema_rs

from app.api.event_schemas import event_schemas
from app.core.events import event_types
from tests.conftest import DATA, SHARED

Event = Mapping[str, Any]

CONTRACT: dict[str, Any] = {
    row["type"]: row for row in json.loads((DATA / "l0-events.json").read_text("utf-8"))
}
CANONICAL = SHARED / "spec/l0-canonical/canonical-spec.json"
"""Fields with their types; not part of the project, so it is not everywhere."""

JSON_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
}

LONG = "Ref"
"""A text that is too long to be shown is null, and this member beside it tells where it stands."""


@cache
def canonical() -> Mapping[str, Any]:
    """The canonical description; empty where it is not at hand."""
    found: Mapping[str, Any] = json.loads(CANONICAL.read_text("utf-8")) if CANONICAL.exists() else {}
    return found


_schemas = cache(event_schemas)


@cache
def _meta_validator(kind: str) -> Any:
    schema = _schemas()[event_types()[kind].__name__ + "Event"]["properties"]["meta"]
    return jsonschema_rs.validator_for(schema)


def assert_event(event: Event) -> None:
    """The event has the fields of both contracts, with their types, and those that we document."""
    kind, meta = event["type"], event["meta"]
    error = next(_meta_validator(kind).iter_errors(meta), None)
    assert error is None, f"{kind}: {error}"
    for field in CONTRACT[kind]["meta"] if kind in CONTRACT else ():
        optional = field == "violation" or (kind, field) == ("NETWORK_ERROR", "code")
        assert field in meta or optional, f"{kind} lacks {field}: {meta}"
    fields = canonical().get("monitoring", {}).get("observabilityEvents", {}).get("events", {})
    for field in fields.get(kind, {}).get("fields", ()):
        assert_field(kind, field, meta)
    if kind == "ERROR":
        known = canonical().get("monitoring", {})
        if known:
            assert meta["failureType"] in known["failureTypes"]["values"]
            assert meta["recoveryStrategy"] in known["recoveryStrategies"]["values"]


def assert_field(kind: str, field: Mapping[str, Any], meta: Event) -> None:
    """One canonical field."""
    name = field["name"]
    if name not in meta:
        assert not field["required"], f"{kind} lacks {name}: {meta}"
        return
    value = meta[name]
    if value is None and name + LONG in meta:
        return
    expected = JSON_TYPES.get(field["type"].removesuffix("[]"))
    if field["type"].endswith("[]"):
        expected = list
    if expected is not None and kind != "TOOL_RESULT":
        right = isinstance(value, expected) and (expected is bool or not isinstance(value, bool))
        assert right, f"{kind}.{name} is {value!r}"
    if "enum" in field:
        assert value in field["enum"], f"{kind}.{name} is {value!r}"


def assert_session(events: Sequence[Event]) -> None:
    """The eight invariants, for the whole log of one stream."""
    kinds = [event["type"] for event in events]
    assert kinds.count("SESSION_START") == 1
    assert kinds[0] == "SESSION_START"
    previous = ""
    for kind, event in zip(kinds, events, strict=True):
        if kind == "ATTEMPT_START":
            assert event["meta"]["attempt"] >= 2
            assert event["meta"]["isRetry"] is True
            assert previous == "RETRY_ATTEMPT", previous
        if kind == "FALLBACK_START":
            assert event["meta"]["toIndex"] == event["meta"]["fromIndex"] + 1
        if not kind.startswith("GUARDRAIL_"):
            previous = kind
    assert all(before["ts"] <= after["ts"] for before, after in pairwise(events))
    assert len({event["stream_id"] for event in events}) == 1
    assert all(event["context"] == events[0]["context"] for event in events)


def assert_log(events: Iterable[Event]) -> None:
    """Everything that holds for a run's whole log."""
    log = list(events)
    for event in log:
        assert_event(event)
    by_stream = sorted((e for e in log if e["stream_id"] is not None), key=lambda e: str(e["stream_id"]))
    for _, stream in groupby(by_stream, key=lambda event: event["stream_id"]):
        session = list(stream)
        if session[0]["type"] == "SESSION_START":
            assert_session(session)
