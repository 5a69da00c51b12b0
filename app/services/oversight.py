"""What governs the calls of one run: who may stop them, and who hears of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from app.core.action.normalize import ActionCall
from app.core.action.table import Escalated, Outcome, Passed
from app.core.action.transaction import ActionTransaction
from app.core.action.verdict import APPROVAL_DENIED, APPROVAL_EXPIRED, Denied, Failed
from app.core.governance.decision import Decision

PERMISSION_DENIED: Final = "PERMISSION_DENIED"

Authorize = Callable[[ActionCall, UUID], Awaitable[Decision]]
"""Asks gates and permissions about a call; never raises: what cannot be asked denies."""


@dataclass(frozen=True, slots=True)
class Oversight:
    """Governance and hooks, bound to a run."""

    authorize: Authorize | None = None
    """None where nothing governs."""

    def outcome_of(self, decision: Decision | None) -> Outcome:
        """What a decision means for the call."""
        if decision is None or decision.effect == "allow":
            return Passed()
        if decision.effect == "escalate":
            return Escalated()
        if decision.by.endswith(".gate"):
            return Denied(decision.reason or "")
        return Failed(PERMISSION_DENIED, decision.reason or "the permissions do not allow the call", False)

    def outcome_of_approval(self, status: str, comment: str | None) -> Outcome:
        """What a person's word, or nobody's, means for the call."""
        match status:
            case "approved":
                return Passed()
            case "denied":
                return Denied(comment or "a person did not allow the call", APPROVAL_DENIED)
            case _:
                return Denied("nobody decided in time", APPROVAL_EXPIRED)

    async def before(self, transaction: ActionTransaction) -> str | None:
        """Ask the hooks that may stop the call; why one does, None if none does."""
        return None

    async def after(self, transaction: ActionTransaction, took_ms: float) -> None:
        """Tell the hooks how it ended."""


FREE: Final = Oversight()
"""Nothing governs, and nobody listens."""
