"""Whose word counts for which option of operate: the one table, and the rule that reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class Source(StrEnum):
    """Who can say what an option is."""

    REQUEST = "request"
    INSTRUCT = "instruct"
    BRANCH = "branch"
    MODEL = "model"
    PROJECT = "project"
    SETTINGS = "settings"
    DEFAULT = "default"


class How(StrEnum):
    """What becomes of an option that several sources speak of."""

    FIRST = "first"
    """The first that says something decides."""
    AGREE = "agree"
    """The same, and those after it may say nothing else."""
    NARROW = "narrow"
    """The first may take away from what the next one gives, and add nothing."""
    MERGE = "merge"
    """Member by member the first that says something decides."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One row."""

    sources: tuple[Source, ...]
    """Who is asked, in this order."""
    how: How = How.FIRST


_SAID = Rule((Source.REQUEST, Source.INSTRUCT), How.AGREE)
_CHOSEN = Rule((Source.REQUEST, Source.INSTRUCT, Source.DEFAULT))
_OF_BRANCH = Rule((Source.REQUEST, Source.BRANCH))
_OWN = Rule((Source.REQUEST, Source.DEFAULT))

PRECEDENCE: Final[Mapping[str, Rule]] = {
    "instruction": _SAID,
    "guidance": _SAID,
    "context": _SAID,
    "reason": _CHOSEN,
    "actions": _CHOSEN,
    "action_strategy": _CHOSEN,
    "chat_model": _OF_BRANCH,
    "parse_model": _OF_BRANCH,
    "tools": Rule((Source.REQUEST, Source.BRANCH), How.NARROW),
    "lifecycle": Rule(
        (Source.REQUEST, Source.BRANCH, Source.MODEL, Source.PROJECT, Source.SETTINGS), How.MERGE
    ),
    "model_options": _OWN,
    "response_format": _OWN,
    "response_fields": _OWN,
    "handle_validation": _OWN,
    "validate_": _OWN,
    "skip_validation": _OWN,
    "field_models": _OWN,
    "invoke_actions": _OWN,
    "tool_schemas": _OWN,
    "call_params": _OWN,
    "suppress_errors": _OWN,
    "verbose_action": _OWN,
    "dedupe_actions": _OWN,
    "images": _OWN,
    "image_detail": _OWN,
    "sender": _OWN,
    "recipient": _OWN,
    "progression": _OWN,
    "clear_messages": _OWN,
    "include_token_usage_to_model": _OWN,
    "stream_persist": _OWN,
    "middle": _OWN,
    "if_busy": _OWN,
}
"""Every option of a request but `instruct`, which is a source itself. Null says nothing, except inside the
lifecycle, where it switches off.
"""

Levels = Mapping[Source, Mapping[str, Any]]
"""What each source says, by option."""


def first_said(levels: Levels) -> dict[str, Any]:
    """The value of every option that the first source decides; None where nobody says anything.

    Those that are narrowed or merged are left out.
    """
    return {
        name: _first(name, rule, levels)
        for name, rule in PRECEDENCE.items()
        if rule.how in (How.FIRST, How.AGREE)
    }


def contradicted(levels: Levels) -> list[str]:
    """The options whose sources have to agree, and do not."""
    return [
        name
        for name, rule in PRECEDENCE.items()
        if rule.how is How.AGREE and _differ([levels.get(source, {}).get(name) for source in rule.sources])
    ]


def _first(name: str, rule: Rule, levels: Levels) -> Any:
    for source in rule.sources:
        value = levels.get(source, {}).get(name)
        if value is not None:
            return value
    return None


def _differ(values: list[Any]) -> bool:
    said = [value for value in values if value is not None]
    return any(value != said[0] for value in said)
