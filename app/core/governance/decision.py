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
MAX_MEMBERS: Final = 500
"""Members of objects and elements of lists, at all depths, that an expression looks at: of the arguments
and of the branch's metadata together. What it puts together it copies again and again."""
MAX_LOOPED: Final = 100
"""The same for an expression with a loop, which may do that for each of them."""
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

    def same_rule(self, other: Decision) -> bool:
        """Whether both have the same effect for the same reason."""
        return (self.effect, self.by, self.rule) == (other.effect, other.by, other.rule)

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

    def variables(self, *, looped: bool) -> dict[str, Any]:
        """What an expression is told, by the names of `VARIABLES`; `looped` says whether it has a loop.

        Raises `Unseeable` for arguments that are too large, have too many parts, or have an integer of more
        than 64 bits, which an expression would see as another number.
        """
        self.check_size()
        most = MAX_LOOPED if looped else MAX_MEMBERS
        if _members([self.arguments, self.branch.metadata if self.branch else {}]) > most:
            where = "an expression with a loop" if looped else "an expression"
            raise Unseeable(f"the arguments have too many parts: {where} looks at {most} at most")
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


def _members(values: Sequence[Any]) -> int:
    """How many there are in them, at all depths. Raises `Unseeable` for an integer of more than 64 bits."""
    count, waiting = 0, list(values)
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping | list | tuple):
            count += len(value)
            waiting.extend(value.values() if isinstance(value, Mapping) else value)
        elif isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
            raise Unseeable("there is an integer of more than 64 bits, which no expression can see")
    return count
