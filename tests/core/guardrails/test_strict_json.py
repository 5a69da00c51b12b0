"""The rule strict_json: nothing but one object or array."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from app.core.guardrails.rules.strict_json import RULE
from tests.core.guardrails.cuts import findings

FENCED = '```json\n{"größe": 1}\n```'


@pytest.mark.parametrize(
    "text", ["{}", "[]", ' \n["a","b"]\n', '{"a":{"b":[1e400]}}', '{"é":"😀"}', "[[1],[2]]"]
)
def test_objects_and_arrays_pass(text: str) -> None:
    assert findings(RULE(), [text]) == []
    assert findings(RULE({"allow_fence": True}), [text]) == []


@pytest.mark.parametrize(
    ("text", "message", "position"),
    [
        ("", "empty", None),
        (" \n", "empty", None),
        ("plain words", "not valid", 0),
        ('  {"a":1', "not valid", 8),
        ('{"é😀":1} and', "not valid", 9),
        ("[1,]", "not valid", 3),
        ("[NaN]", "NaN is no JSON", None),
        ("[" * 100_000, "nested too deeply", None),
        ('"text"', "neither", 0),
        (" 5", "neither", 1),
        ("null", "neither", 0),
        (FENCED, "not valid", 0),
    ],
)
def test_anything_else_is_one_error(text: str, message: str, position: int | None) -> None:
    [found] = findings(RULE(), [text])
    assert message in found.message
    assert (found.rule, found.severity, found.position) == ("strict_json", "error", position)


def test_a_fence_passes_where_it_is_allowed() -> None:
    rule = RULE({"allow_fence": True})
    assert findings(rule, [FENCED]) == []
    assert "not valid" in findings(rule, [f"{FENCED}\nand more"])[0].message
    assert "empty" in findings(rule, ["```json\n\n```"])[0].message
    [found] = findings(rule, ["```json\n[1,]\n```"])
    assert found.position == 11


def test_other_options_are_refused() -> None:
    with pytest.raises(ValidationError):
        RULE({"fence": True})
