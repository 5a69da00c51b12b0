"""What a service makes of a request before it is accepted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from app.core.events.base import Event
from app.core.events.run import RunStarted
from app.core.record import EventEntry
from app.ports.storage import BranchState, RunRecord
from app.services.earlier import Earlier
from app.services.entries import entry_of
from app.services.execution import Execution

Request = TypeVar("Request", contravariant=True)


@dataclass(frozen=True, slots=True)
class Plan:
    """A run ready to be started: its first events, and what is to be done then."""

    perform: Callable[[Execution], Awaitable[None]]
    """Carries the run to its end; the first events are recorded by then."""
    stream_events: Sequence[Event] = ()
    """The first events of its first stream, which is already on its way when the run is accepted."""

    def entries(self, ts: int) -> list[EventEntry]:
        """The first events, to be committed with the acceptance itself."""
        out = [entry_of(RunStarted(), 1, ts)]
        for event in self.stream_events:
            out.append(entry_of(event, len(out) + 1, ts, 0, 1, 0))
        return out

    go_on: Callable[[Execution, Any, Earlier], Awaitable[None]] | None = None
    """Carries a run on that waited, from what it left; None for kinds of runs that never wait."""

    async def start(self, execution: Execution) -> None:
        """Perform a run that had to queue: its first events are recorded now."""
        execution.log.event(RunStarted())
        for event in self.stream_events:
            execution.log.event(event, 0, 1, 0)
        await self.perform(execution)


class Planner(Protocol[Request]):
    """One kind of run."""

    kind: str

    def read(self, body: Any) -> Any:
        """The request as it was stored."""

    async def plan(self, run: RunRecord, branch: BranchState, request: Request) -> Plan:
        """Prepare a run on a branch in this state. Raises AppError; sets what is known
        of the run by then (`model`, `context`).
        """
