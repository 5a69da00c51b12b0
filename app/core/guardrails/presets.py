"""Which built-in guardrails there are, and the rules that a request's choice stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cache
from typing import Any, Final, get_args

from pydantic import ValidationError

from app.core.discovery import discover
from app.core.guardrails import rules
from app.core.guardrails.base import MAX_WEIGHT, Rule, Severity

_RECOMMENDED: Final = ("json", "markdown", "pattern", "zero_output")

PRESETS: Final[Mapping[str, tuple[str, ...]]] = {
    "minimal": ("json", "zero_output"),
    "recommended": _RECOMMENDED,
    "strict": (*_RECOMMENDED, "strict_json", "latex", "stall", "repetition"),
    "json_only": ("json",),
    "markdown_only": ("markdown",),
    "latex_only": ("latex",),
    "none": (),
}
"""The rules that each preset stands for, by name."""

_MAY_REPEAT: Final = "custom_pattern"
"""The one rule that may be chosen several times: each time it looks for something else."""

Path = tuple[str | int, ...]
Fault = tuple[Path, str]


class BadGuardrails(ValueError):
    """A choice of guardrails that cannot be had; `faults` are (path within it, message)."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(message for _, message in faults))
        self.faults = list(faults)


@cache
def built_in_rules() -> Mapping[str, type[Rule]]:
    """The rules that are always there, by name."""
    return {rule.name: rule for rule in discover(rules, "RULE").values()}


def rules_of(
    chosen: str | Sequence[str | Mapping[str, Any]], further: Mapping[str, Rule] | None = None
) -> tuple[Rule, ...]:
    """The rules that `chosen` names: a preset, or a list of names and of {name, options?, severity?}.

    `further` are rules beside the built-in ones, by name; a built-in rule of the same name comes first.
    Raises BadGuardrails with all faults that there are.
    """
    if isinstance(chosen, str):
        if chosen not in PRESETS:
            raise BadGuardrails([((), f"there is no preset {chosen!r}, only {_listed(PRESETS)}")])
        return _of_preset(chosen)
    further = further or {}
    made: list[Rule] = []
    faults: list[Fault] = []
    seen: set[str] = set()
    for index, entry in enumerate(chosen):
        try:
            name, options, severity = _parts(entry)
            if name in seen and name != _MAY_REPEAT:
                raise BadGuardrails([(("name",), f"the rule {name!r} is chosen twice")])
            seen.add(name)
            made.append(_rule(name, options, severity, further))
            if made[-1].weight and sum(rule.weight for rule in made) > MAX_WEIGHT:
                raise BadGuardrails([(("options",), f"it makes the {name} rules too heavy together")])
        except BadGuardrails as error:
            # A name that stands alone has no fields to point into.
            plain = isinstance(entry, str)
            faults += [((index,) if plain else (index, *path), message) for path, message in error.faults]
    if faults:
        raise BadGuardrails(faults)
    return tuple(made)


@cache
def _of_preset(name: str) -> tuple[Rule, ...]:
    """Rules hold nothing of any run, so every run of a preset shares them."""
    return tuple(built_in_rules()[rule]() for rule in PRESETS[name])


def _parts(entry: Any) -> tuple[str, Mapping[str, Any], Severity | None]:
    """An entry's name, options and severity."""
    if isinstance(entry, str):
        return entry, {}, None
    if not isinstance(entry, Mapping):
        raise BadGuardrails([((), "a rule is a name, or an object with a name")])
    faults: list[Fault] = [
        ((str(field),), "a rule has no such field")
        for field in entry
        if field not in {"name", "options", "severity"}
    ]
    name, options, severity = entry.get("name"), entry.get("options"), entry.get("severity")
    if not isinstance(name, str):
        faults.append((("name",), "a rule needs a name"))
    if options is not None and not isinstance(options, Mapping):
        faults.append((("options",), "options are an object"))
    if severity is not None and severity not in get_args(Severity):
        faults.append((("severity",), f"a severity is one of {_listed(get_args(Severity))}"))
    if faults:
        raise BadGuardrails(faults)
    assert isinstance(name, str)
    return name, options or {}, severity


def _rule(
    name: str, options: Mapping[str, Any], severity: Severity | None, further: Mapping[str, Rule]
) -> Rule:
    own = built_in_rules().get(name)
    if own is not None:
        try:
            return own(options, severity)
        except ValidationError as error:
            raise BadGuardrails(_in_words(name, error)) from None
    if name not in further:
        names = _listed(sorted({*built_in_rules(), *further}))
        raise BadGuardrails([(("name",), f"there is no rule {name!r}, only {names}")])
    if options:
        raise BadGuardrails([(("options",), f"the rule {name!r} takes no options")])
    if severity is None:
        return further[name]
    rule = copy(further[name])
    rule.chosen = severity
    return rule


def _in_words(name: str, error: ValidationError) -> list[Fault]:
    faults: list[Fault] = []
    for fault in error.errors():
        place = ".".join(str(step) for step in ("options", *fault["loc"]))
        faults.append((("options", *fault["loc"]), f"{place} of {name}: {fault['msg']}"))
    return faults


def _listed(names: Any) -> str:
    return ", ".join(names)
