"""What governs the calls of a branch: its project's gate and permissions, and its own beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from app.core.governance.decision import By
from app.core.governance.gate import HttpGate, RulesGate, read_gate
from app.core.governance.permissions import Permissions

T = TypeVar("T")

POLICIES: Final = ("gate", "permissions", "hooks")
"""The members of a project or a branch that govern calls."""


@dataclass(frozen=True, slots=True)
class StoredPolicies:
    """What a project or a branch has of policies, as it is stored; None says nothing."""

    gate: Mapping[str, Any] | None = None
    permissions: Mapping[str, Any] | None = None
    hooks: Sequence[Mapping[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class StoredGovernance:
    """All that a call on a branch is judged by, as it was read with the branch."""

    project_name: str = ""
    project: StoredPolicies = StoredPolicies()
    branch_name: str | None = None
    branch_metadata: Mapping[str, Any] = field(default_factory=dict)
    branch: StoredPolicies = StoredPolicies()
    self_approval: bool = False
    """Whether a key may decide calls of runs that it has started itself."""


class Unreadable:
    """A stored policy that this version cannot read; whatever it was meant to say, it denies."""


Gate = RulesGate | HttpGate | Unreadable


@dataclass(frozen=True, slots=True)
class Governance:
    """The four that are asked, in this order; None has nothing against any call.

    A branch can only add to its project: a denial of either is a denial, so is every escalation that nobody
    denies.
    """

    project_gate: Gate | None = None
    branch_gate: Gate | None = None
    project_permissions: Permissions | Unreadable | None = None
    branch_permissions: Permissions | Unreadable | None = None

    @classmethod
    def of(cls, stored: StoredGovernance) -> Governance:
        """Read what is stored; never raises."""
        return cls(
            _read(read_gate, stored.project.gate),
            _read(read_gate, stored.branch.gate),
            _read(Permissions.model_validate, stored.project.permissions),
            _read(Permissions.model_validate, stored.branch.permissions),
        )

    @property
    def is_empty(self) -> bool:
        """Whether nobody can object to anything."""
        return not any(self._parts())

    def gates(self) -> Iterator[tuple[By, Gate]]:
        """Those that there are, the project's first."""
        if self.project_gate is not None:
            yield "project.gate", self.project_gate
        if self.branch_gate is not None:
            yield "branch.gate", self.branch_gate

    def permissions(self) -> Iterator[tuple[By, Permissions | Unreadable]]:
        """Those that there are, the project's first."""
        if self.project_permissions is not None:
            yield "project.permissions", self.project_permissions
        if self.branch_permissions is not None:
            yield "branch.permissions", self.branch_permissions

    def _parts(self) -> Iterator[object]:
        yield from self.gates()
        yield from self.permissions()


def _read(read: Callable[[Any], T], stored: Any) -> T | Unreadable | None:
    if stored is None:
        return None
    try:
        return read(stored)
    except ValidationError:
        return Unreadable()
