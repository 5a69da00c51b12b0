"""Presets and lists of guardrails: the rules they stand for, and every way to choose badly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from app.core.guardrails.base import CalledRule
from app.core.guardrails.presets import PRESETS, BadGuardrails, built_in_rules, rules_of

SECRET = {"name": "custom_pattern", "options": {"patterns": ["SECRET"]}}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_the_rules_it_names(preset: str) -> None:
    assert tuple(rule.name for rule in rules_of(preset)) == PRESETS[preset]


def test_strict_has_all_that_recommended_has() -> None:
    assert set(PRESETS["minimal"]) < set(PRESETS["recommended"]) < set(PRESETS["strict"])


def test_every_rule_but_the_callers_patterns_is_in_a_preset() -> None:
    named = {name for names in PRESETS.values() for name in names}
    assert named == set(built_in_rules()) - {"custom_pattern"}


def test_a_list_may_name_rules_and_say_more_about_them() -> None:
    chosen = rules_of(["stall", {"name": "repetition", "severity": "fatal"}, SECRET, SECRET])
    assert [(rule.name, rule.chosen) for rule in chosen] == [
        ("stall", None),
        ("repetition", "fatal"),
        ("custom_pattern", None),
        ("custom_pattern", None),
    ]


def test_a_further_rule_is_taken_as_it_is() -> None:
    mine = CalledRule("mine")
    assert rules_of(["mine"], {"mine": mine}) == (mine,)
    assert rules_of([{"name": "mine", "options": {}, "severity": None}], {"mine": mine}) == (mine,)


def test_a_severity_makes_a_further_rule_anew() -> None:
    mine = CalledRule("mine", streaming=True)
    (rule,) = rules_of([{"name": "mine", "severity": "fatal"}], {"mine": mine})
    assert isinstance(rule, CalledRule)
    assert (rule.title, rule.in_stream, rule.chosen, mine.chosen) == ("mine", True, "fatal", None)


@pytest.mark.parametrize(
    ("chosen", "paths", "words"),
    [
        ("best", [()], "no preset 'best', only minimal, recommended, strict"),
        (["nope"], [(0,)], "no rule 'nope', only custom_pattern"),
        ([SECRET, {"name": "nope"}], [(1, "name")], "no rule 'nope'"),
        ([SECRET, 5], [(1,)], "a name, or an object"),
        ([{"options": {}}], [(0, "name")], "needs a name"),
        (["stall", "stall"], [(1,)], "chosen twice"),
        ([{"name": "stall", "options": []}], [(0, "options")], "object"),
        ([{"name": "stall", "severity": "grave"}], [(0, "severity")], "warning, error, fatal"),
        ([{"name": "stall", "level": 1}], [(0, "level")], "no such field"),
        (["custom_pattern"], [(0,)], "options.patterns of custom_pattern"),
        ([{"name": "mine", "options": {"a": 1}}], [(0, "options")], "takes no options"),
        (
            ["stall", {"name": "custom_pattern", "options": {"patterns": ["a", "(b"]}}, "nope"],
            [(1, "options", "patterns", 1), (2,)],
            "missing )",
        ),
    ],
)
def test_what_cannot_be_had_is_told_with_its_place(
    chosen: str | Sequence[Any], paths: list[tuple[str | int, ...]], words: str
) -> None:
    with pytest.raises(BadGuardrails) as caught:
        rules_of(chosen, {"mine": CalledRule("mine")})
    assert [path for path, _ in caught.value.faults] == paths
    assert words in str(caught.value)


def test_patterns_are_weighed_over_all_rules_together() -> None:
    heavy = {"name": "custom_pattern", "options": {"patterns": ["a[ab]{60}c"]}}
    assert len(rules_of([heavy, "json"])) == 2
    with pytest.raises(BadGuardrails) as refused:
        rules_of([heavy, "json", heavy])
    assert refused.value.faults == [((2, "options"), "it makes the custom_pattern rules too heavy together")]
