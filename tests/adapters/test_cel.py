"""Callers' expressions: what is taken, what they give, and how they fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from app.adapters.cel import MAX_CHARS, MAX_DEPTH, Cel
from app.ports.expressions import ExpressionFailed

pytestmark = pytest.mark.anyio

VARIABLES: dict[str, Any] = {
    "error": {"code": "RATE_LIMITED", "status": 429, "message": "slow down", "type": None},
    "category": "transient",
    "attempt": 1,
    "state": {"token_count": 3},
    "retry_after_ms": None,
}


@pytest.fixture
def expressions() -> Iterator[Cel]:
    made = Cel()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("attempt < 2", True),
        ("error.status in [429, 503] && attempt == 0", False),
        ('category == "transient" ? 100 * (attempt + 1) : 0', 200),
        ("error.type == null", True),
        ("[1, 2, 3].exists(n, n == attempt)", True),
        ("error.message.contains('slow')", True),
        ("has(state.token_count)", True),
        ("retry_after_ms == null ? 0.5 : 1.0", 0.5),
        ("'a.map(x' == error.message", False),
    ],
)
async def test_an_expression_gives_its_value(expressions: Cel, text: str, value: Any) -> None:
    assert expressions.fault(text, VARIABLES) is None
    found = await expressions.evaluate(text, VARIABLES)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("attempt <", "no CEL"),
        ("", "no CEL"),
        ("attemt < 2", "no variable 'attemt'"),
        ("x" * (MAX_CHARS + 1), "characters"),
        ("(" * (MAX_DEPTH + 1) + "1" + ")" * (MAX_DEPTH + 1), "deep"),
        ("[1].all(a, [2].all(b, a == b))", "only one"),
        ("[1, 2].map(n, n)", "map is not"),
        ("[1, 2] . filter (n, n > 1) == []", "filter is not"),
        ("error.message.matches('a+')", "matches is not"),
        (r"r'\' != '' && [1].all(a, true) && r'\' != ''", "raw strings"),
        ("[1].all(a, true) // '\n && [1].all(b, true)", "comments"),
        ("[1].all(error, [1].all(category, true))", "only one"),
        ("[1].all(error, true)", "'error'"),
    ],
)
async def test_what_is_not_taken_is_told_and_fails(expressions: Cel, text: str, told: str) -> None:
    assert told in (expressions.fault(text, VARIABLES) or "")
    with pytest.raises(ExpressionFailed):
        await expressions.evaluate(text, VARIABLES)


@pytest.mark.parametrize("text", ["error.nope", "1 / 0", "attempt + 'a'", "error < 1", "state.token_count.x"])
async def test_a_failing_expression_says_why(expressions: Cel, text: str) -> None:
    assert expressions.fault(text, VARIABLES) is None
    with pytest.raises(ExpressionFailed) as failed:
        await expressions.evaluate(text, VARIABLES)
    assert len(str(failed.value)) < 300


async def test_a_value_that_does_not_come_in_time_is_a_failure() -> None:
    impatient = Cel(time_limit_s=0)
    with pytest.raises(ExpressionFailed, match="no value within"):
        await impatient.evaluate("attempt < 2", VARIABLES)
    impatient.close()


@pytest.mark.parametrize("text", ["duration('1s')", "{1: 'a'}", "1.0 / 0.0", "[duration('1s')]"])
async def test_what_json_does_not_have_is_no_value(expressions: Cel, text: str) -> None:
    with pytest.raises(ExpressionFailed):
        await expressions.evaluate(text, VARIABLES)
