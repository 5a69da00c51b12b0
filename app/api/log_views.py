"""Which view of a log a client asks for, on every route that shows one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from fastapi import Depends, Query
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from app.api.problems import short
from app.api.sse import END, LogView, View, frame
from app.core.errors import AppError, FieldError, Invalid
from app.core.events import event_types
from app.core.events.structured import ALIASES
from app.core.partial.log import PartialLog
from app.core.partial.wanted import place_wanted
from app.core.record import Entry
from app.ports.storage import RunRecord
from app.services.feed import Batch
from app.services.follow import reader_of

PACE_S: Final = 0.05
"""Between two frames of a partial view."""


class LogQuery(BaseModel):
    """In what form a log is shown."""

    model_config = ConfigDict(extra="forbid")

    types: str | None = Field(None, description="Only these types, separated by commas.")
    view: Literal["events", "callbacks", "partial"] | None = Field(
        None,
        description="`callbacks`: those that fired, in order, in place of the events. `partial`: how the "
        "value that was asked for grows, begins anew and ends.",
    )
    aliases: Literal["structured"] | None = Field(
        None, description="Shows the `STRUCTURED_*` names of the types that have one; `types` takes both."
    )
    framing: Literal["message"] | None = Field(None, description="Server-sent events without `event:` lines.")


def checked(query: LogQuery) -> LogQuery:
    """The query, if it makes sense. Raises Invalid."""
    _types(query)
    if query.view == "partial" and (query.types is not None or query.aliases is not None):
        name = "types" if query.types is not None else "aliases"
        words = "a partial view shows no events; leave it out"
        raise Invalid(words, errors=[FieldError("", words, "contradiction", name)])
    return query


async def log_query(query: Annotated[LogQuery, Query()]) -> LogQuery:
    """The same, of a request that may follow the log of the run that it makes."""
    return checked(query)


InLog = Annotated[LogQuery, Depends(log_query)]


def view_of(query: LogQuery, run: RunRecord) -> LogView:
    """The view of a run's log that a checked query asks for."""
    named = query.framing != "message"
    if query.view == "partial":
        place = None
        # Of a request that this version would not take any more the result alone is shown.
        with suppress(AppError, ValidationError):
            place = place_wanted(from_json(run.request)) if run.kind == "operate" else None
        return PartialView(PartialLog(run.id, place), named)
    return View(reader_of(run), _types(query), query.view == "callbacks", _aliases(query), named=named)


@dataclass(frozen=True, slots=True)
class PartialView:
    """How the value of a run grows: a `LogView`."""

    reader: PartialLog
    named: bool
    """Whether each frame has an `event:` line."""
    types: Collection[str] | None = None
    pace_s: float = PACE_S

    def texts(self, entries: Iterable[Entry]) -> list[str]:
        """See `LogView`."""
        return [frame.text for frame in self.reader.frames(entries)]

    def frames(self, batch: Batch, run_id: str) -> bytes:
        """See `LogView`."""
        return b"".join(
            frame(f"{run_id}:{step.seq}", step.type if self.named else None, step.text)
            for step in self.reader.frames(batch.entries)
        )

    def end(self, last_id: str) -> bytes:
        """See `LogView`."""
        return f"id: {last_id}\n".encode() + END


def _aliases(query: LogQuery) -> Mapping[str, str]:
    return ALIASES if query.aliases else {}


def _types(query: LogQuery) -> frozenset[str] | None:
    if query.types is None:
        return None
    own = {alias: name for name, alias in _aliases(query).items()}
    names = frozenset(
        own.get(name, name) for name in (part.strip() for part in query.types.split(",")) if name
    )
    unknown = sorted(names - event_types().keys())
    if unknown:
        words = f"there is no event type {short(unknown[0])!r}"
        raise Invalid(words, errors=[FieldError("", words, "unknown_event_type", "types")])
    return names
