"""A gate: ordered rules whose first match decides, or another address that does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, cast

from pydantic import Discriminator, Field, Tag, TypeAdapter, ValidationInfo, field_validator

from app.core.governance.decision import MAX_REASON, Effect
from app.core.governance.remote import Outside, PolicyBody, Remote

MAX_RULES: Final = 32
MAX_EXPRESSION: Final = 2_000
"""Characters of an expression."""

_LOOPS: Final = re.compile(r"\b(?:all|exists|exists_one|existsOne)\b")
_BUILDS: Final = re.compile(r"\b(?:map|filter)(?:\s|//[^\n]*\n)*\(")
"""What makes a new list, and copies it for each of its elements: large arguments would take minutes."""


class GateRule(PolicyBody):
    """What becomes of the calls that an expression describes."""

    when: Annotated[str, Field(min_length=1, max_length=MAX_EXPRESSION)] = Field(
        description="CEL over tool, arguments, branch, project, key and call_id; true is a match.",
        examples=["function == 'delete' && arguments.path.startsWith('/srv/')"],
    )
    effect: Effect
    reason: Annotated[str, Field(min_length=1, max_length=MAX_REASON)] | None = Field(
        None, description="Told to whoever asked for the call."
    )

    @field_validator("when")
    @classmethod
    def _sound(cls, value: str, info: ValidationInfo) -> str:
        if _BUILDS.search(value):
            raise ValueError("map and filter are not offered in a gate; all, exists and exists_one are")
        if info.context is not None and (fault := cast(Outside, info.context).fault("gate", value)):
            raise ValueError(fault)
        return value

    @property
    def looped(self) -> bool:
        """Whether the expression may have a loop; a text in it that looks like one counts too."""
        return _LOOPS.search(self.when) is not None


class RulesGate(PolicyBody):
    """The first rule that matches decides; where none does, the default."""

    rules: Annotated[list[GateRule], Field(max_length=MAX_RULES)] = Field(default_factory=list)
    default: Effect = "allow"


class HttpGate(PolicyBody):
    """Another address is asked about every call; without a clear answer the call is denied."""

    http: Remote


def _kind(value: Any) -> str:
    remote = "http" in value if isinstance(value, Mapping) else isinstance(value, HttpGate)
    return "a gate at an address" if remote else "a gate of rules"


Gate = Annotated[
    Annotated[RulesGate, Tag("a gate of rules")] | Annotated[HttpGate, Tag("a gate at an address")],
    Discriminator(_kind),
]
"""Told apart by `http`. The tags are no possible names of members, so that no pointer goes astray."""

_GATE: Final[TypeAdapter[RulesGate | HttpGate]] = TypeAdapter(Gate)


def read_gate(stored: Any) -> RulesGate | HttpGate:
    """A gate as it was stored. Raises pydantic's ValidationError."""
    return _GATE.validate_python(stored)
