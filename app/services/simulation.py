"""Try a policy on calls that took place."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pydantic_core import from_json

from app.core.governance.decision import BranchFacts, CallContext, Decision, ProjectFacts
from app.core.governance.governance import Governance, StoredGovernance, StoredPolicies
from app.ports.catalog import Slice
from app.ports.listings import Caller, Listings
from app.ports.storage import CallRecord
from app.services.governor import Governor


@dataclass(frozen=True, slots=True)
class Judged:
    """A call, and what the policy says of it."""

    call: CallRecord
    then: str | None
    """The effect that was decided then; None for a call that nobody was asked about, as it could not run."""
    now: Decision | None
    """None for such a call too."""

    @property
    def differs(self) -> bool:
        """Whether the policy would have decided otherwise."""
        return self.now is not None and self.now.effect != self.then


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a policy says of calls, the newest first."""

    judged: Sequence[Judged]
    has_more: bool
    """Whether there are older calls."""


class Simulator:
    """Judges stored calls as if a policy were the project's only one; nothing is changed, nobody is told."""

    def __init__(self, governor: Governor, listings: Listings) -> None:
        self._governor = governor
        self._listings = listings

    async def simulate(
        self, project_id: UUID, policies: StoredPolicies, filters: Mapping[str, Any], limit: int
    ) -> Simulation:
        """`filters` are those of `Listings.calls`; a gate at another address is asked, so leave it out."""
        page = await self._listings.calls(project_id, filters, Slice(limit, descending=True))
        callers = await self._listings.callers(project_id, {call.run_id for call in page.items})
        governance = Governance.of(StoredGovernance(project=policies))
        judged = []
        for call in page.items:
            judged.append(await self._judge(project_id, call, callers[call.run_id], governance))
            await asyncio.sleep(0)  # Expressions take their time; others have a turn in between.
        return Simulation(judged, page.has_more)

    async def _judge(
        self, project_id: UUID, call: CallRecord, caller: Caller, governance: Governance
    ) -> Judged:
        if call.arguments is None:
            return Judged(call, None, None)
        context = _context(project_id, call, caller)
        return Judged(call, decided_then(call), await self._governor.decide(context, governance))


def decided_then(call: CallRecord) -> str:
    """The effect that was decided; a call without a record of it was not objected to."""
    effect: str = "allow" if call.gate is None else from_json(call.gate).get("effect", "allow")
    return effect


def totals(judged: Iterable[Judged]) -> dict[str, Any]:
    """How often what was decided, then and now."""
    then, now = (dict.fromkeys(("allow", "deny", "escalate"), 0) for _ in range(2))
    calls = asked = differ = 0
    for one in judged:
        calls += 1
        if one.now is not None and one.then is not None:
            asked += 1
            differ += one.differs
            then[one.then] += 1
            now[one.now.effect] += 1
    return {"calls": calls, "judged": asked, "differ": differ, "then": then, "now": now}


def _context(project_id: UUID, call: CallRecord, caller: Caller) -> CallContext:
    branch = call.branch_id
    return CallContext(
        function=call.function,
        arguments=from_json(call.arguments or "{}"),
        digest=call.arguments_digest or "",
        call_id=call.call_id,
        branch=None if branch is None else BranchFacts(branch, caller.branch_name, caller.branch_metadata),
        project=ProjectFacts(project_id, caller.project_name),
        key=caller.key,
    )
