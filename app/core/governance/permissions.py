"""Permissions: which tools may be called with which arguments, by patterns.

A policy has three lists, `deny`, `escalate` and `allow`: each says of tools, by patterns of their names,
which arguments it means. A pattern of arguments is held against `name=value` and against `value` of an
argument, where the value is the text itself, and of anything else its compact JSON with sorted keys. The
pattern `*` alone means every call of the tool, also one without arguments.

`deny` and `escalate` mean a call of which *one* argument fits one of the patterns. `allow` means a call of
which *each* argument fits one of them, and that has at least one: what nobody thought of is not allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from app.core.governance import glob
from app.core.governance.decision import ALLOWED, By, CallContext, Decision, Unseeable
from app.core.governance.remote import PolicyBody
from app.core.json_text import canonical, pointer

MAX_PATTERNS: Final = 200
"""Patterns of a whole policy, names of tools included."""


def _sound(pattern: str) -> str:
    if fault := glob.fault(pattern):
        raise ValueError(fault)
    return pattern


Pattern = Annotated[str, AfterValidator(_sound)]
Patterns = dict[Pattern, list[Pattern]]


class Permissions(PolicyBody):
    """What may be called: `deny` beats `escalate`, which beats `allow`, which beats the mode."""

    mode: Literal["allow_all", "deny_all", "rules"] = Field(
        "allow_all",
        description="What becomes of calls that none of the lists means: allow_all allows them, deny_all and "
        "rules deny them.",
    )
    allow: Patterns = Field(
        default_factory=dict,
        description="By tool: patterns that every argument has to fit one of.",
        examples=[{"read_file": ["path=/srv/*"]}],
    )
    deny: Patterns = Field(
        default_factory=dict,
        description="By tool: patterns of which one argument fits one.",
        examples=[{"*": ["*/etc/*"]}],
    )
    escalate: Patterns = Field(
        default_factory=dict, description="As `deny`, for calls that a person decides."
    )

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        count = sum(
            1 + len(patterns)
            for named in (self.allow, self.deny, self.escalate)
            for patterns in named.values()
        )
        if count > MAX_PATTERNS:
            raise ValueError(f"there are {count} patterns, at most {MAX_PATTERNS} are taken")
        return self

    def decide(self, call: CallContext, by: By) -> Decision:
        """What the policy says of a call; `by` is the name that it speaks in."""
        seen = _Seen(call)
        try:
            if place := _one_fits(self.deny, seen):
                return Decision("deny", by, pointer("deny", *place), _told("denied", call))
            if place := _one_fits(self.escalate, seen):
                return Decision("escalate", by, pointer("escalate", *place), _told("left to a person", call))
            if self.mode == "allow_all" or _all_fit(self.allow, seen):
                return ALLOWED
        except Unseeable as hidden:
            return Decision("deny", by, None, str(hidden))
        return Decision("deny", by, "/mode", f"{call.function!r} is not allowed with these arguments")


class _Seen:
    """A call as patterns see it; its arguments are read when the first pattern needs them."""

    def __init__(self, call: CallContext) -> None:
        self.function = call.function
        self._call = call
        self._arguments: Sequence[_Argument] | None = None

    @property
    def arguments(self) -> Sequence[_Argument]:
        """Raises `Unseeable`."""
        if self._arguments is None:
            self._call.check_size()
            self._arguments = [_argument(name, value) for name, value in self._call.arguments.items()]
        return self._arguments


@dataclass(frozen=True, slots=True)
class _Argument:
    named: str
    value: str

    def fits(self, pattern: str) -> bool:
        return glob.matches(pattern, self.named) or glob.matches(pattern, self.value)


def _argument(name: str, value: Any) -> _Argument:
    text = value if isinstance(value, str) else canonical(value).decode()
    return _Argument(f"{name}={text}", text)


def _of_tool(named: Mapping[str, Sequence[str]], function: str) -> Iterator[tuple[str, int, str]]:
    """The patterns that are there for a tool, with their places."""
    for tool, patterns in named.items():
        if glob.matches(tool, function):
            for place, pattern in enumerate(patterns):
                yield tool, place, pattern


def _one_fits(named: Mapping[str, Sequence[str]], seen: _Seen) -> tuple[str, int] | None:
    for tool, place, pattern in _of_tool(named, seen.function):
        if pattern == "*" or any(argument.fits(pattern) for argument in seen.arguments):
            return tool, place
    return None


def _all_fit(named: Mapping[str, Sequence[str]], seen: _Seen) -> bool:
    patterns = [pattern for _, _, pattern in _of_tool(named, seen.function)]
    if "*" in patterns:
        return True
    return bool(patterns and seen.arguments) and all(
        any(argument.fits(pattern) for pattern in patterns) for argument in seen.arguments
    )


def _told(what: str, call: CallContext) -> str:
    return f"calls of {call.function!r} with such arguments are {what}"
