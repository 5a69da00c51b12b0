"""Exports and imports as clients see them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Union
from uuid import UUID

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter

from app.api.schemas.common import View
from app.core.transfer.lines import KINDS
from app.services.imports import Imported

_COUNTS: dict[str, JsonValue] = {
    "branches": 2,
    "runs": 31,
    "messages": 80,
    "function_calls": 12,
    "events": 4711,
}


_LINES: list[JsonValue] = [
    {
        "object": "export",
        "format": 1,
        "version": "0.1.0",
        "of": "branch",
        "id": "019a0000-0000-7000-8000-000000000001",
        "exported_at": "2026-11-30T12:00:00+00:00",
    },
    {
        "object": "tokens",
        "seq": 9,
        "ts": 1_796_040_000_000,
        "stream": 0,
        "attempt": 1,
        "fallback": 0,
        "texts": ["It is ", "42."],
        "delays": [0, 31],
    },
    {"object": "end", "lines": 24},
    {"object": "export_end", "sections": 1},
]


class ImportView(View):
    """What an import has stored; runs and messages are those of what was not skipped."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"object": "import", **_COUNTS, "skipped": ["019a0000-0000-7000-8000-000000000001"]}]
        }
    )

    object: Literal["import"]
    branches: int
    runs: int
    messages: int
    function_calls: int
    events: int
    skipped: list[UUID] = Field(
        description="Branches, and runs without a branch, that the project had already: they were left alone."
    )


def import_view(done: Imported) -> dict[str, Any]:
    """An import as `ImportView` says."""
    return {
        "object": "import",
        "branches": done.branches,
        "runs": done.runs,
        "messages": done.messages,
        "function_calls": done.function_calls,
        "events": done.events,
        "skipped": [str(id) for id in done.skipped],
    }


def export_schemas(ref: str) -> dict[str, Any]:
    """The schemas of an export's lines by name, `ExportLine` being any of them; `ref` is how one is named."""
    any_line: Any = Annotated[Union[tuple(KINDS.values())], Field(discriminator="object")]  # noqa: UP007
    made = TypeAdapter(any_line).json_schema(ref_template=ref)
    kinds: dict[str, Any] = made.pop("$defs")
    return {**kinds, "ExportLine": {"description": "One line of an export.", "examples": _LINES, **made}}
