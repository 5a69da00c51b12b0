"""Expressions in CEL: what they give, what is refused, and what the worst of them costs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.adapters.cel import MAX_RESULT, Cel
from app.ports.expressions import ExpressionFailed

pytestmark = pytest.mark.anyio

STATE = {
    **{"token_count": 12, "content_length": 40, "fallback_index": 0, "model_retries": 1},
    **{"network_retries": 0, "checkpoint_length": 0, "elapsed_ms": 1500},
}
VARIABLES: dict[str, Any] = {
    "error": {
        "code": "RATE_LIMITED",
        "category": "transient",
        "message": "slow",
        "status": 429,
        "type": None,
    },
    "category": "transient",
    "attempt": 1,
    "state": STATE,
    "retry_after_ms": None,
}
MANY = "[" + "0, " * 62 + "0]"


@pytest.fixture
def expressions() -> Cel:
    return Cel(limit_s=5)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("attempt < 2 && error.status == 429", True),
        ("error.code in ['RATE_LIMITED', 'NETWORK_ERROR']", True),
        ("error.type == null", True),
        ("retry_after_ms == null ? 250 : retry_after_ms", 250),
        ("has(error.nothing)", False),
        ("error.type != null && error.type.contains('x')", False),
        ("!error.message.matches('(?i)quota|billing')", True),
        ("error.exists(key, key == 'status')", True),
        ("state.elapsed_ms / 1000", 1),
        ("double(state.elapsed_ms) / 1000.0", 1.5),
        ("state.elapsed_ms > 1000.5", True),
        ("int(1.9)", 1),
        ("18446744073709551615u", 2**64 - 1),
        ("-9223372036854775808", -(2**63)),
        ("2 * (attempt + 1)", 4),
        ("[1, 'a', null, {'b': [true]}]", [1, "a", None, {"b": [True]}]),
        ("error", VARIABLES["error"]),
        ("type(attempt) == int", True),
        ("'🐟' + \"é\"", "🐟é"),
        ("size('🐟')", 4),
        ("category // a comment", "transient"),
    ],
)
async def test_it_gives_json(expressions: Cel, text: str, value: object) -> None:
    assert expressions.fault(text, VARIABLES) is None
    given = await expressions.evaluate(text, VARIABLES)
    assert (type(given), given) == (type(value), value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it cannot be read at 1:1"),
        ("attempt +", "it cannot be read at 1:10"),
        ("attempt + 1 1", "it cannot be read at 1:13"),
        ("import", "reserved"),
        ("'\\ud800'", "invalid string"),
        ("99999999999999999999", "invalid int"),
        ("attempts < 2", "no variable 'attempts'; there are attempt, category, error"),
        ("[1].all(x, y > x)", "no variable 'y'"),
        ("[1].all(1, true)", "simple name"),
        ("has(error)", "has()"),
        ("optional.of(1)", "no variable 'optional'"),
        ("cel.bind(x, 1, x)", "no variable"),
        ("max(attempt, 2)", "no function 'max'"),
        ("error.code.lowerAscii()", "no function 'lowerAscii'"),
        ("[1].all(attempt, i, i > 0)", "no variable 'i'"),
        ("attempt" + " + 1" * 30, "levels deep"),
    ],
)
async def test_what_cannot_be_evaluated_is_not_stored(expressions: Cel, text: str, words: str) -> None:
    fault = expressions.fault(text, VARIABLES) or ""
    assert words in fault
    assert len(fault) < 300
    with pytest.raises(ExpressionFailed):
        await expressions.evaluate(text, VARIABLES)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("error.type > 500", "No such overload"),
        ("attempt + 1.0", "No such overload"),
        ("attempt ? 1 : 2", "No such overload"),
        ("retry_after_ms * 2", "null"),
        ("error.nothing == 1", "there is no 'nothing'"),
        ("[1][2]", "out of bounds"),
        ("1 / 0", "division by zero"),
        ("9223372036854775807 + attempt", "overflow"),
        ("state.elapsed_ms * 9223372036854775807", "overflow"),
        ("int('nine')", "invalid digit"),
        ("size(attempt)", "size"),
        ("'a'.matches('(')", "not a valid regex"),
        ("1.0 / 0.0", "inf, which is no number"),
        ("0.0 / 0.0", "nan, which is no number"),
        ("'\\x00'", "NUL"),
        ("{1: 2}", "keys that are no strings"),
        ("[b'a']", "type bytes"),
        ("duration('1s')", "type timedelta"),
        ("timestamp('2026-01-01T00:00:00Z')", "type datetime"),
        ("timestamp('9999-12-31T23:59:59Z') + duration('9999h')", "overflow"),
        (f"{MANY}.map(i, '{'x' * 80}')", f"more than {MAX_RESULT} bytes"),
    ],
)
async def test_what_gives_no_value_says_why(expressions: Cel, text: str, words: str) -> None:
    with pytest.raises(ExpressionFailed) as failure:
        await expressions.evaluate(text, VARIABLES)
    assert words in str(failure.value)
    assert len(str(failure.value)) <= 220


async def test_texts_that_are_none_are_an_error(expressions: Cel) -> None:
    with pytest.raises(ExpressionFailed, match="convert"):
        await expressions.evaluate("category", {"category": "\ud800"})


@pytest.mark.parametrize(
    "text",
    [
        "category.matches('(a+)+$')",
        "category.matches('(.*)(.*)(.*)(.*)(.*)(.*)b')",
        r"category.matches(r'(\pL{9}\w*)*b')",
        f"category.matches('{'(a*)*' * 100}b')",
        " + ".join(["category"] * 20) + " == ''",
        " && ".join(["category.contains('aaaaaaaaaaaaaaaaaaaaaaab')"] * 40),
        f"{MANY}.map(i, {'+'.join(['category'] * 10)})",
        f"[{'0, ' * 55}0].map(i, {'[category, category]+' * 4}[])",
        f"[{'0, ' * 32}0].map(i, [{'0,' * 30}0])",
        f"{MANY}.all(i, {' && '.join(['i < 1'] * 10)})",
        f"[{', '.join(['[' + '0, ' * 7 + '0]'] * 7)}]",
        " && ".join(["category != '🐟'"] * 100),
    ],
)
async def test_the_worst_that_may_be_stored_is_soon_over(text: str) -> None:
    """Not at once here, on a machine that does other things, but in a time without powers in it."""
    expressions = Cel(limit_s=1)
    assert expressions.fault(text, ["category"]) is None
    try:
        told = json.dumps(await expressions.evaluate(text, {"category": "a" * 1_000}))
    except ExpressionFailed as failure:
        told = str(failure)
    assert "longer than" not in told
    assert len(told) <= MAX_RESULT


async def test_a_value_that_took_too_long_is_none() -> None:
    with pytest.raises(ExpressionFailed, match="longer than 0 ms"):
        await Cel(limit_s=0).evaluate("attempt", {"attempt": 7})


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("function == 'add'", True),
        ("function=='function'", False),
        ("arguments.function == 'inner'", True),
        ("'function' in arguments && function.startsWith('a')", True),
        ("[function].exists(x, x == function)", True),
    ],
)
async def test_a_name_that_the_language_reserves_can_be_a_variable(expression: str, value: bool) -> None:
    variables = {"function": "add", "arguments": {"function": "inner"}}
    assert Cel().fault(expression, variables) is None
    assert await Cel().evaluate(expression, variables) is value


def test_a_reserved_name_that_is_no_variable_is_told_by_its_own_name() -> None:
    told = Cel().fault("function == 'add'", ["arguments"])
    assert told is not None
    assert "'function'" in told
