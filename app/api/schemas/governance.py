"""Policies that are tried, and changes that are told, as clients send and see them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field, model_validator

from app.api.bodies import Body
from app.api.paging import MAX_LIMIT, PageQuery
from app.api.replies import instant
from app.api.schemas.common import PageView, View
from app.api.schemas.policies import stored
from app.api.views import raw
from app.core.governance.gate import Gate, HttpGate
from app.core.governance.governance import StoredPolicies
from app.core.governance.permissions import Permissions
from app.ports.listings import AuditRecord
from app.services.simulation import Judged, Simulation, totals

Id = Annotated[UUID, Field(strict=False)]
CallStatus = Literal["pending", "processing", "completed", "failed", "skipped", "cancelled", "aborted"]
EffectName = Literal["allow", "deny", "escalate"]

_ID = "019a0000-0000-7000-8000-000000000001"
_NOW = "2026-11-30T12:00:00.000Z"


class PolicyDraft(Body):
    """A policy that is nobody's yet."""

    gate: Gate | None = Field(None, description="Of rules; one at another address cannot be tried.")
    permissions: Permissions | None = None

    @property
    def needs_others(self) -> bool:
        """Whether somebody else would have to be asked."""
        return isinstance(self.gate, HttpGate)


class CallFilter(Body):
    """Which calls."""

    function: str | None = None
    status: CallStatus | None = None
    run_id: Id | None = None
    branch_id: Id | None = None


class SimulatePolicy(Body):
    """A policy, and the stored calls that it is tried on; all of the project unless some are chosen."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "policy": {"permissions": {"deny": {"shell": ["command=rm *"]}}},
                    "function_calls": {"function": "shell"},
                    "limit": 500,
                }
            ]
        }
    )

    policy: PolicyDraft
    run_id: Id | None = None
    branch_id: Id | None = None
    function_calls: CallFilter | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = Field(100, description="The newest calls.")

    @model_validator(mode="after")
    def _one_choice(self) -> SimulatePolicy:
        chosen = [
            name for name in ("run_id", "branch_id", "function_calls") if getattr(self, name) is not None
        ]
        if len(chosen) > 1:
            raise ValueError(f"give one of {' and '.join(chosen)}")
        return self

    def policies(self) -> StoredPolicies:
        """As a project would have them."""
        return StoredPolicies(stored(self.policy.gate), stored(self.policy.permissions))

    def filters(self) -> dict[str, Any]:
        """Columns and the values that they have to have."""
        chosen = self.function_calls or CallFilter(run_id=self.run_id, branch_id=self.branch_id)
        return {name: value for name, value in chosen if value is not None}


class DecisionView(View):
    """What is decided about a call, and on whose word."""

    effect: EffectName
    by: str | None = Field(
        description="project.gate, branch.gate, project.permissions or branch.permissions; null when nobody "
        "objects."
    )
    rule: str | None = Field(description="JSON Pointer to what decides, within that policy.")
    reason: str | None


class DecidedThenView(View):
    """What became of a call when it was made."""

    status: CallStatus
    gate: dict[str, Any] | None = Field(description="What was decided; null when nobody objected.")


class SimulatedCallView(View):
    """What a policy says of one call."""

    function_call_id: UUID
    call_id: UUID
    run_id: UUID
    branch_id: UUID | None
    function: str
    created_at: datetime
    then: DecidedThenView
    now: DecisionView | None = Field(
        description="As if the policy were the project's only one; null for a call that could not run anyway."
    )
    differs: bool = Field(description="Whether the effect is another one.")


class EffectCountsView(View):
    """How often each effect."""

    allow: int
    deny: int
    escalate: int


class TotalsView(View):
    """All calls of a simulation counted."""

    calls: int
    judged: int = Field(description="Those that the policy has a say in.")
    differ: int
    then: EffectCountsView
    now: EffectCountsView


class SimulationView(View):
    """What a policy says of stored calls, the newest first."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "object": "policy_simulation",
                    "data": [
                        {
                            "function_call_id": _ID,
                            "call_id": _ID,
                            "run_id": _ID,
                            "branch_id": None,
                            "function": "shell",
                            "created_at": _NOW,
                            "then": {"status": "completed", "gate": None},
                            "now": {
                                "effect": "deny",
                                "by": "project.permissions",
                                "rule": "/deny/shell/0",
                                "reason": "calls of 'shell' with such arguments are denied",
                            },
                            "differs": True,
                        }
                    ],
                    "has_more": False,
                    "totals": {
                        "calls": 1,
                        "judged": 1,
                        "differ": 1,
                        "then": {"allow": 1, "deny": 0, "escalate": 0},
                        "now": {"allow": 0, "deny": 1, "escalate": 0},
                    },
                }
            ]
        }
    )

    object: Literal["policy_simulation"]
    data: list[SimulatedCallView]
    has_more: bool = Field(description="Whether there are older calls, which were left out.")
    totals: TotalsView


def simulation_view(simulation: Simulation) -> dict[str, Any]:
    """A simulation as `SimulationView` says."""
    return {
        "object": "policy_simulation",
        "data": [_judged_view(judged) for judged in simulation.judged],
        "has_more": simulation.has_more,
        "totals": totals(simulation.judged),
    }


def _judged_view(judged: Judged) -> dict[str, Any]:
    call = judged.call
    return {
        "function_call_id": call.id,
        "call_id": call.call_id,
        "run_id": call.run_id,
        "branch_id": call.branch_id,
        "function": call.function,
        "created_at": instant(call.created_at),
        "then": {"status": call.status, "gate": raw(call.gate)},
        "now": judged.now and judged.now.wire(),
        "differs": judged.differs,
    }


class AuditView(View):
    """One change of a project's settings."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": _ID,
                    "object": "audit_record",
                    "at": _NOW,
                    "key_id": _ID,
                    "action": "project.update",
                    "subject": f"project:{_ID}",
                    "digest_before": "sha256:" + 64 * "0",
                    "digest_after": "sha256:" + 64 * "1",
                    "detail": {"changed": ["permissions"]},
                }
            ]
        }
    )

    id: UUID
    object: Literal["audit_record"]
    at: datetime
    key_id: UUID | None = Field(description="Whose key; null in development mode and for the bootstrap key.")
    action: str
    subject: str
    digest_before: str | None = Field(description="Of what was; null when there was nothing.")
    digest_after: str | None = Field(description="Of what is; null when there is nothing.")
    detail: dict[str, Any] | None = Field(description="`changed`: the names of the members that differ.")


class AuditPage(PageView[AuditView]):
    """One page of the audit log."""


class AuditQuery(PageQuery):
    """Which changes."""

    action: str | None = Field(None, description="Exactly this, such as project.update.")
    subject: str | None = Field(None, description="Exactly this, such as model:local.")
    key_id: UUID | None = None


def audit_view(record: AuditRecord) -> dict[str, Any]:
    """A record as `AuditView` says."""
    return {
        "id": record.id,
        "object": "audit_record",
        "at": instant(record.at),
        "key_id": record.key_id,
        "action": record.action,
        "subject": record.subject,
        "digest_before": record.digest_before,
        "digest_after": record.digest_after,
        "detail": record.detail,
    }
