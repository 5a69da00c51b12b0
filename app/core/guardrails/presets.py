"""From what a request names to the rules that are applied."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final, get_args

from pydantic import ValidationError

from app.core.discovery import discover
from app.core.guardrails import rules
from app.core.guardrails.base import Rule, Severity

_RECOMMENDED: Final = ("json", "markdown", "pattern", "zero_output")

PRESETS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "none": (),
        "minimal": ("json", "zero_output"),
        "recommended": _RECOMMENDED,
        "strict": (*_RECOMMENDED, "strict_json", "latex", "stall", "repetition"),
        "json_only": ("json",),
        "markdown_only": ("markdown",),
        "latex_only": ("latex",),
    }
)
"""Names for choices of rules."""

SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)

_SEVERAL: Final = frozenset({"custom_pattern"})
"""Rules that may stand more than once: each has patterns of its own."""

Path = tuple[str | int, ...]
"""Where something stands under `guardrails`."""


class BadGuardrails(ValueError):
    """A choice of rules that cannot be applied."""

    def __init__(self, faults: Sequence[tuple[Path, str]]) -> None:
        """`faults` are all of them: where, and what is wrong."""
        self.faults = tuple(faults)
        super().__init__("; ".join(f"{_worded(path)}{message}" for path, message in self.faults))


@cache
def built_in_rules() -> Mapping[str, type[Rule]]:
    """Every built-in rule by its name."""
    found: list[type[Rule]] = list(discover(rules, "RULE").values())
    return MappingProxyType({rule.name: rule for rule in found})


def rules_of(
    chosen: str | Sequence[str | Mapping[str, Any]], further: Mapping[str, Rule] | None = None
) -> tuple[Rule, ...]:
    """The rules that a preset or a list names, in its order; `further` are rules beside the built-in ones.

    An entry is a name, or an object with `name` and, optionally, `options` and `severity`. Raises
    `BadGuardrails` with everything that is wrong.
    """
    if isinstance(chosen, str):
        if chosen not in PRESETS:
            raise BadGuardrails([((), f"there is no preset {chosen!r}; there are {', '.join(PRESETS)}")])
        return tuple(built_in_rules()[name]() for name in PRESETS[chosen])
    made: list[Rule] = []
    faults: list[tuple[Path, str]] = []
    seen: set[str] = set()
    for index, entry in enumerate(chosen):
        said = {"name": entry} if isinstance(entry, str) else entry
        name = said["name"]
        if name in seen and name not in _SEVERAL:
            faults.append(((index,), f"the rule {name!r} is named twice"))
        seen.add(name)
        try:
            made.append(_made(name, said, further or {}))
        except BadGuardrails as bad:
            faults += [((index, *path), message) for path, message in bad.faults]
    if faults:
        raise BadGuardrails(faults)
    return tuple(made)


def _made(name: str, said: Mapping[str, Any], further: Mapping[str, Rule]) -> Rule:
    options, severity = said.get("options") or {}, said.get("severity")
    if severity is not None and severity not in SEVERITIES:
        raise BadGuardrails([(("severity",), f"there are {', '.join(SEVERITIES)}")])
    kind = built_in_rules().get(name)
    if kind is not None:
        try:
            return kind(options, severity)
        except ValidationError as error:
            raise BadGuardrails(list(_faults(error))) from None
    if name not in further:
        known = ", ".join(sorted({*built_in_rules(), *further}))
        raise BadGuardrails([((), f"there is no rule {name!r}; there are {known}")])
    if options:
        raise BadGuardrails([(("options",), f"the rule {name!r} has no options")])
    if severity is None:
        return further[name]
    rule = copy.copy(further[name])
    rule.chosen = severity
    return rule


def _faults(error: ValidationError) -> Iterator[tuple[Path, str]]:
    for fault in error.errors(include_url=False, include_input=False):
        yield ("options", *fault["loc"]), fault["msg"].removeprefix("Value error, ")


def _worded(path: Path) -> str:
    steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return f"{steps.removeprefix('.')}: " if steps else ""
