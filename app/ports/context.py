"""Let others add context to an instruction, and tell them what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Turn:
    """One run of operate, as providers of context see it."""

    project_id: UUID
    branch_id: UUID | None
    run_id: UUID
    instruction: Any
    guidance: Any = None
    context: Any = None
    """What the request itself says; no provider sees what another one adds."""


class ContextProviders(Protocol):
    """All of them; what goes wrong with one of them is logged, and is nobody else's concern."""

    def __bool__(self) -> bool:
        """Whether there are any."""

    async def provide(self, turn: Turn) -> Mapping[str, Any]:
        """What each adds to the instruction, a JSON value by its name, in a lasting order.

        One that fails, takes too long or gives too much adds nothing.
        """

    async def write_back(self, turn: Turn, responses: Sequence[Mapping[str, Any]]) -> None:
        """Tell each of them how the turn's tool calls ended, failures and denials too."""


class NoContext:
    """There are none."""

    def __bool__(self) -> bool:
        return False

    async def provide(self, turn: Turn) -> Mapping[str, Any]:
        """See the port."""
        return {}

    async def write_back(self, turn: Turn, responses: Sequence[Mapping[str, Any]]) -> None:
        """See the port."""
