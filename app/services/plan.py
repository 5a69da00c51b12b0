"""What a service makes of a request before it is accepted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from app.core.events.base import Event
from app.core.events.run import RunStarted
from app.ports.provider import ModelEndpoint
from app.ports.storage import BranchState, RunRecord
from app.services.earlier import Earlier
from app.services.execution import Execution

Request = TypeVar("Request", contravariant=True)

Asked = tuple[ModelEndpoint, int]
"""A model, and how many code points it is asked, as far as that can be known beforehand."""


def nobody_asked(stream: int, fallback_index: int) -> Asked | None:
    """Tells of a run that asks no models."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A run ready to be started: its first events, and what is to be done then."""

    perform: Callable[[Execution], Awaitable[None]]
    """Carries the run to its end; the first events are recorded by then."""
    recover: Callable[[Execution, Earlier], Awaitable[None]]
    """Carries a run to its end that another process had begun, from where `execution.past` says it stands."""
    stream_events: Sequence[Event] = ()
    """The first events of its first stream, which is already on its way when the run is accepted."""
    propose: Callable[[Execution], None] | None = None
    """Appends what else can be recorded before anything has happened, and may be at once."""
    go_on: Callable[[Execution, Any, Earlier], Awaitable[None]] | None = None
    """Carries a run on that waited, from what it left; None for kinds of runs that never wait."""
    asked: Callable[[int, int], Asked | None] = nobody_asked
    """Whom a stream of the run asks, by its index and the fallback index; None where that is not known."""
    position: int | None = None
    """Where in the conversation the run begins; None without a branch."""

    def begin(self, execution: Execution) -> None:
        """Append what the run begins with; to be committed with the acceptance itself, unless it queued."""
        execution.log.event(RunStarted(self.position))
        for event in self.stream_events:
            execution.log.event(event, 0, 1, 0)
        if self.propose is not None:
            self.propose(execution)


def placed(plan: Plan, branch: BranchState) -> Plan:
    """The plan of a run that begins where the conversation of its branch ends."""
    return plan if branch.id is None else replace(plan, position=branch.next_position)


class Planner(Protocol[Request]):
    """One kind of run."""

    kind: str
    converses: bool
    """Whether it reads the conversation of the branch, which may be long."""

    def read(self, body: Any) -> Any:
        """The request as it was stored."""

    async def plan(self, run: RunRecord, branch: BranchState, request: Request) -> Plan:
        """Prepare a run on a branch in this state. Raises AppError; sets what is known
        of the run by then (`model`, `context`).
        """
