"""What governs the calls of one run: who may stop them, and who hears of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

from app.core.action.normalize import ActionCall
from app.core.action.table import Escalated, Outcome, Passed
from app.core.action.transaction import ActionTransaction
from app.core.action.verdict import APPROVAL_DENIED, APPROVAL_EXPIRED, Denied, Failed, Succeeded, fault_of
from app.core.governance.decision import BranchFacts, CallContext, Decision, KeyFacts, ProjectFacts
from app.core.governance.governance import Governance
from app.ports.hooks import BoundHook, ToolHookEvent
from app.ports.storage import BranchState, RunRecord
from app.services.governor import Governor
from app.services.hooks import HookBus

PERMISSION_DENIED: Final = "PERMISSION_DENIED"


class KnownKeys(Protocol):
    """The API keys, as gates are told of them."""

    async def facts(self, key_id: UUID | None) -> KeyFacts | None:
        """The key that started a run; None for one that was started without a key."""


class Overseer:
    """Binds governance and hooks to runs."""

    def __init__(self, governor: Governor, hooks: HookBus, keys: KnownKeys) -> None:
        self._governor = governor
        self._hooks = hooks
        self._keys = keys

    async def over(self, run: RunRecord, branch: BranchState) -> Oversight:
        """What governs the calls of a run on a branch in this state; asks nobody where there is nothing."""
        stored = branch.governance
        governance = Governance.of(stored)
        hooks = self._hooks.hooks_of(stored.project.hooks, stored.branch.hooks)
        if governance.is_empty and not hooks:
            return FREE
        judged = None
        if not governance.is_empty:
            judged = _Judged(
                self._governor,
                governance,
                None
                if branch.id is None
                else BranchFacts(branch.id, stored.branch_name, stored.branch_metadata),
                ProjectFacts(run.project_id, stored.project_name),
                await self._keys.facts(run.key_id),
            )
        return Oversight(run, judged, self._hooks, hooks)


@dataclass(frozen=True, slots=True)
class _Judged:
    """By whom, and what is the same for every call of the run."""

    governor: Governor
    governance: Governance
    branch: BranchFacts | None
    project: ProjectFacts
    key: KeyFacts | None


class Oversight:
    """See the module's words."""

    def __init__(
        self,
        run: RunRecord | None = None,
        judged: _Judged | None = None,
        bus: HookBus | None = None,
        hooks: Sequence[BoundHook] = (),
    ) -> None:
        self._run = run
        self._judged = judged
        self._bus = bus
        self._hooks = hooks

    @property
    def governed(self) -> bool:
        """Whether anybody can object to a call."""
        return self._judged is not None

    @property
    def hooked(self) -> bool:
        """Whether anybody is told of a call."""
        return bool(self._hooks)

    async def authorize(self, call: ActionCall, call_id: UUID) -> Decision:
        """Ask gates and permissions; never raises: what cannot be asked denies."""
        judged = self._judged
        assert judged is not None
        context = CallContext(
            call.function,
            call.arguments or {},
            call.digest,
            call_id,
            judged.branch,
            judged.project,
            judged.key,
        )
        return await judged.governor.decide(context, judged.governance)

    async def before(self, transaction: ActionTransaction) -> str | None:
        """Ask the hooks that may stop the call; why one does, None if none does. May be cancelled."""
        if self._bus is None or not self._hooks:
            return None
        blocked = await self._bus.pre(self._event(transaction), self._hooks)
        return None if blocked is None else str(blocked)

    async def after(self, transaction: ActionTransaction, took_ms: float | None) -> None:
        """Tell the hooks how it ended; they hear of successes and failures, and of nothing else."""
        if self._bus is None or not self._hooks:
            return
        took_s = None if took_ms is None else took_ms / 1000
        match transaction.verdict:
            case Succeeded(value):
                event = self._event(transaction).succeeded(value, took_s or 0.0)
            case Failed() as verdict:
                fault = fault_of(verdict)
                assert fault is not None
                event = self._event(transaction).failed(fault.type, fault.message, took_s)
            case _:
                return
        await self._bus.told(event, self._hooks)

    def _event(self, transaction: ActionTransaction) -> ToolHookEvent:
        run = self._run
        assert run is not None
        assert run.branch_id is not None
        return ToolHookEvent.before(
            transaction.call.function,
            transaction.call.arguments,
            call_id=transaction.call_id,
            run_id=run.id,
            branch_id=run.branch_id,
            project_id=run.project_id,
        )


FREE: Final = Oversight()
"""Nothing governs, and nobody listens."""


def outcome_of(decision: Decision | None) -> Outcome:
    """What a decision of governance means for the call."""
    if decision is None or decision.effect == "allow":
        return Passed()
    if decision.effect == "escalate":
        return Escalated()
    if decision.by is not None and decision.by.endswith(".gate"):
        return Denied(decision.reason or "")
    return Failed(PERMISSION_DENIED, decision.reason or "the permissions do not allow the call", False)


def outcome_of_approval(status: str, comment: str | None) -> Outcome:
    """What a person's word, or nobody's, means for the call."""
    match status:
        case "approved":
            return Passed()
        case "denied":
            return Denied(comment or "a person did not allow the call", APPROVAL_DENIED)
        case _:
            return Denied("nobody decided in time", APPROVAL_EXPIRED)
