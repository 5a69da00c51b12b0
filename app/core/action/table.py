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
    """Ask permissions and gates."""
    RECORDING_INTENT = "recording_intent"
    """Commit the request message and a `processing` function call, before anything can take effect."""
    PRE_HOOKS = "pre_hooks"
    REVALIDATING = "revalidating"
    """Check the arguments again, and authorize again if they have changed."""
    INVOKING = "invoking"
    POST_HOOKS = "post_hooks"
    """Tell the hooks of a success; none can change it."""
    ERROR_HOOKS = "error_hooks"
    """Tell the hooks of a failure; none can change it."""
    RECORDING = "recording"
    """Commit the end: function call, response message and events together."""
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Passed:
    """The phase did what it was for, and nothing speaks against going on."""


Outcome = Passed | Succeeded | Failed | Denied | Cancelled | Lost

TRANSITIONS: Final[Mapping[tuple[Phase, type[Outcome]], Phase]] = {
    (Phase.AUTHORIZING, Passed): Phase.RECORDING_INTENT,
    (Phase.AUTHORIZING, Failed): Phase.ERROR_HOOKS,
    (Phase.AUTHORIZING, Denied): Phase.RECORDING,
    (Phase.AUTHORIZING, Cancelled): Phase.RECORDING,
    (Phase.RECORDING_INTENT, Passed): Phase.PRE_HOOKS,
    (Phase.RECORDING_INTENT, Cancelled): Phase.RECORDING,
    (Phase.PRE_HOOKS, Passed): Phase.REVALIDATING,
    (Phase.PRE_HOOKS, Failed): Phase.ERROR_HOOKS,
    (Phase.PRE_HOOKS, Cancelled): Phase.RECORDING,
    (Phase.REVALIDATING, Passed): Phase.INVOKING,
    (Phase.REVALIDATING, Failed): Phase.ERROR_HOOKS,
    (Phase.REVALIDATING, Denied): Phase.RECORDING,
    (Phase.REVALIDATING, Cancelled): Phase.RECORDING,
    (Phase.INVOKING, Succeeded): Phase.POST_HOOKS,
    (Phase.INVOKING, Failed): Phase.ERROR_HOOKS,
    (Phase.INVOKING, Cancelled): Phase.RECORDING,
    (Phase.INVOKING, Lost): Phase.RECORDING,
    (Phase.POST_HOOKS, Passed): Phase.RECORDING,
    (Phase.POST_HOOKS, Cancelled): Phase.RECORDING,
    (Phase.ERROR_HOOKS, Passed): Phase.RECORDING,
    (Phase.ERROR_HOOKS, Cancelled): Phase.RECORDING,
    (Phase.RECORDING, Passed): Phase.DONE,
}


class IllegalStep(Exception):
    """An outcome that its phase cannot have: a bug in us, which changes nothing."""
