"""What a call is judged by, and what was decided about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal
from uuid import UUID

from app.core.json_text import NotJson, canonical

Effect = Literal["allow", "deny", "escalate"]
By = Literal["project.gate", "branch.gate", "project.permissions", "branch.permissions"]

MAX_SEEN: Final = 64 * 1024
"""Bytes of JSON that the arguments may have which expressions and patterns look at."""
MAX_REASON: Final = 500
"""Characters of a reason."""
VARIABLES: Final = ("function", "arguments", "branch", "project", "key", "call_id")
"""What the expressions of a gate may use."""

_LARGEST: Final = 2**63


class Unseeable(ValueError):
    """Arguments that cannot be shown whole; whoever would have to look at them denies the call."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a call, and on whose word."""

    effect: Effect
    by: By | None = None
    """None when nobody objected."""
    rule: str | None = None
    """JSON Pointer to what decided, within the policy that `by` names; None when it is none of its rules."""
    reason: str | None = None
    """For people, and for the model that asked for the call."""

    def then(self, later: Decision) -> Decision:
        """Both together: a denial beats an escalation, and that an allowance; of two alike, this one."""
        return later if _GRAVITY[later.effect] > _GRAVITY[self.effect] else self

    def wire(self) -> dict[str, Any]:
        """As it is stored with the call and shown."""
        return {"effect": self.effect, "by": self.by, "rule": self.rule, "reason": self.reason}


_GRAVITY: Final[Mapping[Effect, int]] = {"allow": 0, "escalate": 1, "deny": 2}

ALLOWED: Final = Decision("allow")
"""Nobody objects."""


@dataclass(frozen=True, slots=True)
class BranchFacts:
    """The branch that the call was asked for on."""

    id: UUID
    name: str | None
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ProjectFacts:
    """The project of the call."""

    id: UUID
    name: str


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """The API key that started the run."""

    id: UUID
    name: str
    scopes: Sequence[str]


@dataclass(frozen=True, slots=True)
class CallContext:
    """One call, normalized: every gate and every policy is told the same."""

    function: str
    arguments: Mapping[str, Any]
    digest: str
    """SHA-256 of the arguments, in hex."""
    call_id: UUID
    branch: BranchFacts | None
    project: ProjectFacts
    key: KeyFacts | None
    """None for a run that was started without a key of the database."""

    def variables(self) -> dict[str, Any]:
        """What expressions are told, by the names of `VARIABLES`.

        Raises `Unseeable` for arguments that are too large, or have an integer of more than 64 bits, which
        an expression would see as another number.
        """
        self.check_size()
        if _has_huge_integer(self.arguments):
            raise Unseeable("the arguments have an integer of more than 64 bits, which no expression can see")
        told = self.wire()
        return {name: told[name] for name in VARIABLES}

    def check_size(self) -> None:
        """Raises `Unseeable` for arguments that are too large."""
        try:
            size = len(canonical(self.arguments))
        except NotJson as error:
            raise Unseeable(f"the arguments are no JSON: {error}") from None
        if size > MAX_SEEN:
            raise Unseeable(f"the arguments have {size} bytes of JSON, and only {MAX_SEEN} are looked at")

    def wire(self) -> dict[str, Any]:
        """As a gate at another address is told, in JSON types."""
        branch, project, key = self.branch, self.project, self.key
        return {
            "call_id": str(self.call_id),
            "function": self.function,
            "arguments": dict(self.arguments),
            "arguments_digest": self.digest,
            "branch": branch
            and {"id": str(branch.id), "name": branch.name, "metadata": dict(branch.metadata)},
            "project": {"id": str(project.id), "name": project.name},
            "key": key and {"id": str(key.id), "name": key.name, "scopes": list(key.scopes)},
        }


def _has_huge_integer(value: Any) -> bool:
    waiting = [value]
    while waiting:
        match waiting.pop():
            case bool():
                pass
            case int() as number if not -_LARGEST <= number < _LARGEST:
                return True
            case Mapping() as members:
                waiting.extend(members.values())
            case list() | tuple() as elements:
                waiting.extend(elements)
    return False
