"""Hints between processes: something has happened, look. They may be lost, so nothing depends on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Protocol
from uuid import UUID


class Topic(StrEnum):
    """What a hint is about; the values are what is sent."""

    WORK = "w"
    """A run wants a process; the hint names none."""
    CANCEL = "c"
    """These runs are asked to end."""
    FOLLOW = "f"
    """These runs are followed where the hint comes from: it wants to hear of their news and ends."""
    AWAIT = "a"
    """Of these runs it wants to hear the end."""
    NEWS = "n"
    """Something was committed for these runs."""
    END = "e"
    """These runs have ended, or wait."""


class Hints(Protocol):
    """The way to the other processes."""

    @property
    def deaf(self) -> bool:
        """Whether nothing can be heard at this moment, so that one has to look oneself."""

    def tell(self, topic: Topic, runs: Iterable[UUID] = ()) -> None:
        """Tell every other process, soon and together with what else is told; never waits."""


class Hearer(Protocol):
    """Who listens to the other processes."""

    def heard(self, topic: Topic, runs: Sequence[UUID]) -> None:
        """A hint of another process has come."""

    def missed(self) -> None:
        """Hints may have been lost; from now on they are heard."""
