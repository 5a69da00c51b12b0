"""The phases of one call, and which outcome leads from each to which, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.core.action.verdict import Cancelled, Denied, Failed, Lost, Succeeded


class Phase(StrEnum):
    """What is to be done next."""

    AUTHORIZING = "authorizing"
    """Ask gates and permissions."""
    WAITING = "waiting"
    """Wait for a person, for as long as that takes: the question is stored, and nothing else is held."""
    RECORDING_INTENT = "recording_intent"
    """Commit the request message and a `processing` function call, before anything can take effect."""
    PRE_HOOKS = "pre_hooks"
    """Ask the hooks that may stop the call."""
    REVALIDATING = "revalidating"
    """Check the arguments again, and authorize again if they have changed."""
    INVOKING = "invoking"
    HANDED_OVER = "handed_over"
    """Wait for a client to bring the result, for as long as that takes: the call is stored, and nothing else
    is held."""
    RECORDING = "recording"
    """Commit the end: function call, response message and events together."""
    TELLING = "telling"
    """Tell the hooks of a success or a failure; none can change what is recorded."""
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Passed:
    """The phase did what it was for, and nothing speaks against going on."""


@dataclass(frozen=True, slots=True)
class Escalated:
    """A person has to decide."""


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A client carries the call out."""


Outcome = Passed | Escalated | HandedOver | Succeeded | Failed | Denied | Cancelled | Lost

TRANSITIONS: Final[Mapping[tuple[Phase, type[Outcome]], Phase]] = {
    (Phase.AUTHORIZING, Passed): Phase.RECORDING_INTENT,
    (Phase.AUTHORIZING, Escalated): Phase.WAITING,
    (Phase.AUTHORIZING, Failed): Phase.RECORDING,
    (Phase.AUTHORIZING, Denied): Phase.RECORDING,
    (Phase.AUTHORIZING, Cancelled): Phase.RECORDING,
    (Phase.WAITING, Passed): Phase.RECORDING_INTENT,
    (Phase.WAITING, Failed): Phase.RECORDING,
    (Phase.WAITING, Denied): Phase.RECORDING,
    (Phase.WAITING, Cancelled): Phase.RECORDING,
    (Phase.RECORDING_INTENT, Passed): Phase.PRE_HOOKS,
    (Phase.RECORDING_INTENT, Cancelled): Phase.RECORDING,
    (Phase.PRE_HOOKS, Passed): Phase.REVALIDATING,
    (Phase.PRE_HOOKS, Failed): Phase.RECORDING,
    (Phase.PRE_HOOKS, Cancelled): Phase.RECORDING,
    (Phase.REVALIDATING, Passed): Phase.INVOKING,
    (Phase.REVALIDATING, Failed): Phase.RECORDING,
    (Phase.REVALIDATING, Denied): Phase.RECORDING,
    (Phase.REVALIDATING, Cancelled): Phase.RECORDING,
    (Phase.INVOKING, Succeeded): Phase.RECORDING,
    (Phase.INVOKING, Failed): Phase.RECORDING,
    (Phase.INVOKING, Cancelled): Phase.RECORDING,
    (Phase.INVOKING, Lost): Phase.RECORDING,
    (Phase.INVOKING, HandedOver): Phase.HANDED_OVER,
    (Phase.HANDED_OVER, Succeeded): Phase.RECORDING,
    (Phase.HANDED_OVER, Failed): Phase.RECORDING,
    (Phase.HANDED_OVER, Cancelled): Phase.RECORDING,
    (Phase.RECORDING, Passed): Phase.TELLING,
    (Phase.TELLING, Passed): Phase.DONE,
    (Phase.TELLING, Cancelled): Phase.DONE,
}


class IllegalStep(Exception):
    """An outcome that its phase cannot have: a bug in us, which changes nothing."""
