"""The rule json: silent on JSON and prose at any cut, one finding on JSON that is broken."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.guardrails.rules.json import HEAD, RULE
from tests.core.guardrails.cuts import at_cuts, feed, findings

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
LAYOUTS = st.fixed_dictionaries(
    {
        "ensure_ascii": st.booleans(),
        "indent": st.sampled_from([None, 0, 2, 80, "\t"]),
        "separators": st.sampled_from([None, (",", ":"), (" , ", " : ")]),
    }
)
CUTS = st.lists(st.integers(0, 10_000), max_size=8)
JSON_LIKE = st.text(st.sampled_from('{}[]",:\\ \n1-a`()é😀'), max_size=40)

VALID = [
    '["a","b","c"]',
    '[{"a":1},{"b":2}]',
    "[[1,2],[3,4]]",
    "{}",
    "[]",
    "[ ]",
    " \n\t{ } \n",
    "[1,2,3]",
    "[-0.5e+10]",
    "[true,false,null]",
    '{"a":{"b":[{"c":"]}"}]}}',
    '{"escaped":"a \\" quote, a \\\\","b":"\\u00e9 {["}',
    '{"schlüssel":"größe","鍵":"値 😀"}',
    '{"\\ud83d":"half of a pair"}',
    '{"twice":1,"twice":2}',
    '["' + "long " * 40 + '"]',
    '{"' + "long key " * 20 + '":1}',
    "[" + "9" * 5000 + "]",
    "[" * 70 + "]" * 70,
    '\N{NO-BREAK SPACE}{"a":1}',
    '```json\n{"a": 1}\n```',
    '```json\n{"a": "```"}\n```\n',
    "``` JSON\r\n[1,\r\n2]\r\n```",
    '```json\n{"a": 1}',
]
PROSE = [
    "",
    "   ",
    "Hello {world} [1]",
    'The object {"a": 1}} is broken',
    "[Note] this is prose",
    "[Note]",
    "{name} is a placeholder",
    "{{ name }} is a template",
    '{"name"} is a set',
    "{Thinking: it may rain} Take an umbrella.",
    "[text](https://example.org/a) is a link",
    '["A Title"](https://example.org/a) is a paper',
    "[1] is a footnote",
    "[1]: https://example.org",
    "[1, 2] show that it works",
    "[1][2]",
    "[1] and [2]",
    "[0, 1) is half open",
    "[1, page 3]",
    "[2024-05-01] released",
    "[ ] buy milk",
    "[] is an empty list",
    "{} is an empty object",
    "[[wiki link]]",
    "[true] is a list of one",
    "[Anmerkung: größer]",
    "{x | x > 0}",
    "```python\n{'a': 1}}\n```",
    '```json\n{"a": 1\n```\nand an explanation',
    'Here it is:\n```json\n{"a": \n```',
]
BROKEN = [
    ('{"a":1}}', "no opening", 7),
    ("[1,2]]", "no opening", 5),
    ("[]]", "no opening", 2),
    ("{}}", "no opening", 2),
    ('["a"] \n }', "no opening", 8),
    ('{"a":1} That is all', "text follows", 8),
    ('{"a":1}\n{"b":2}', "text follows", 8),
    ('["größe 😀"] x', "text follows", 12),
    ('{"a":1', "ends inside", 6),
    ('  {"a":"é', "ends inside", 9),
    ('{"a":"x\\"}', "ends inside", 10),
    ('{"nam', "ends inside", 5),
    ("{", "ends inside", 1),
    ("[", "ends inside", 1),
    ("[1, 2", "ends inside", 5),
    ('[{"a":1},', "ends inside", 9),
    ('{"a":1,}', "not valid", 7),
    ("[1,,2]", "not valid", 3),
    ('{"a":[1}}', "not valid", 7),
    ('{"a":"line\nbreak"}', "not valid", 10),
    ('["a" "b"]', "not valid", 5),
    ("{'a': 1}", "not valid", 1),
    ("{a: 1}", "not valid", 1),
    ("['a']", "not valid", 1),
    ("[{größe: 1}]", "not valid", 2),
    ('{"a":undefined}', "not valid", 5),
    ('{"a":NaN}', "not valid", None),
    ('```json\n{"a":1,}\n```', "not valid", 15),
    ('```json\n{"a":[', "not valid", 14),
    ('{"' + "k" * 200 + '":1}}', "no opening", 206),
    ('{"' + "k" * HEAD + '"} is too long to tell', "text follows", HEAD + 5),
]


def single(text: str) -> list[str]:
    return list(text)


@pytest.mark.parametrize("text", VALID + PROSE)
def test_json_and_prose_pass(text: str) -> None:
    assert findings(RULE(), [text]) == []
    assert findings(RULE(), single(text)) == []


@pytest.mark.parametrize(("text", "message", "position"), BROKEN)
def test_broken_json_is_one_error(text: str, message: str, position: int | None) -> None:
    for parts in ([text], single(text), [text[:3], text[3:]]):
        [found] = findings(RULE(), parts)
        assert message in found.message
        assert (found.rule, found.severity, found.position) == ("json", "error", position)


@pytest.mark.parametrize(
    "text", ['{"a":1}} and', "[[1,2]]]", '{"a":"}"} and', '{"' + "k" * HEAD + '":[]} and']
)
def test_what_is_certain_is_told_before_the_end(text: str) -> None:
    check = RULE().start()
    assert len(feed(check, single(text))) == 1
    assert list(check.end(text)) == []


@pytest.mark.parametrize("text", ['{"a":1', '{"a":1,}', '{"a":[1}}'])
def test_what_may_still_change_waits_for_the_end(text: str) -> None:
    assert feed(RULE().start(), single(text)) == []


@given(JSON_VALUES, LAYOUTS, CUTS)
def test_whatever_json_writes_passes_at_any_cut(value: Any, layout: dict[str, Any], cuts: list[int]) -> None:
    text = json.dumps(value, **layout)
    assert findings(RULE(), at_cuts(text, cuts)) == []


@given(JSON_VALUES.filter(lambda value: isinstance(value, dict | list)), st.data())
def test_json_that_breaks_off_is_found_unless_it_may_be_prose(value: Any, data: st.DataObject) -> None:
    text = json.dumps({"value": value})
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    assert [found.message for found in findings(RULE(), [cut])] == ["the answer ends inside the JSON value"]


@given(JSON_LIKE, CUTS)
def test_findings_do_not_depend_on_the_cuts(text: str, cuts: list[int]) -> None:
    assert findings(RULE(), at_cuts(text, cuts)) == findings(RULE(), [text])


@given(JSON_LIKE, JSON_LIKE)
def test_two_checks_of_one_rule_do_not_meet(one: str, other: str) -> None:
    rule = RULE()
    first, second = rule.start(), rule.start()
    found: dict[str, list[Any]] = {"one": [], "other": []}
    found["one"] += feed(first, [one]) if one else []
    found["other"] += feed(second, [other]) if other else []
    found["one"] += first.end(one)
    found["other"] += second.end(other)
    assert found == {"one": findings(rule, [one]), "other": findings(rule, [other])}


def test_the_request_may_choose_how_grave_it_is() -> None:
    [found] = findings(RULE(severity="warning"), ["{"])
    assert found.severity == "warning"
