"""Money: exact, and unknown rather than wrong."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.core.json_text import dumps
from app.core.usage.counts import MAX_COUNT, Usage
from app.core.usage.prices import ListedPrice, Price, PriceTable, price_of, text_of
from app.core.usage.totals import Totals


def price(**said: Any) -> Price:
    """A price as somebody wrote it."""
    return Price.model_validate({"input": "1", "output": "2", **said})


def test_every_kind_of_token_has_its_price() -> None:
    every = price(input=10, output=100, cached_input=1, cache_write="12.5", reasoning=50)
    usage = Usage(1_000_000, 1_000_000, 400_000, 100_000, 250_000)
    # 500,000 plain, 400,000 cached, 100,000 written; 750,000 said, 250,000 thought.
    assert text_of(every.cost_of(usage)) == text_of(
        Decimal("5") + Decimal("0.4") + Decimal("1.25") + 75 + Decimal("12.5")
    )


def test_a_part_without_a_price_costs_as_its_whole() -> None:
    usage = Usage(100, 10, 40, 20, 5)
    assert price().cost_of(usage) == price().cost_of(Usage(100, 10))


def test_a_price_of_nothing_is_one() -> None:
    free = price(input=0, output=0)
    assert text_of(free.cost_of(Usage(1, 1))) == "0"
    assert price(cached_input=0).cost_of(Usage(10, 0, 10)) == 0


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (0.1, "0.1"),
        ("0.10", "0.1"),
        (-0.0, "0"),
        (3, "3"),
        (1e2, "100"),
        (0.000000001, "0.000000001"),
        (1_000_000, "1000000"),
    ],
)
def test_a_price_is_the_decimal_that_was_written(written: Any, text: str) -> None:
    assert price(input=written).wire()["input"] == text
    assert price_of(orjson.loads(orjson.dumps(price(input=written).wire()))) == price(input=written)


@pytest.mark.parametrize(
    "wrong",
    [
        -1,
        "-0.1",
        True,
        None,
        "a lot",
        float("inf"),
        "NaN",
        1_000_001,
        "0.0000000001",
        [1],
        "1e2",
        " 1",
        "1_0",
        "-0",
    ],
)
def test_what_is_no_price_is_refused(wrong: Any) -> None:
    with pytest.raises(ValidationError):
        price(input=wrong)


def test_a_price_says_nothing_that_is_not_known() -> None:
    with pytest.raises(ValidationError):
        price(currency="EUR")


amounts = st.decimals(0, 1_000_000, places=9).map(abs).map("{:f}".format)
counts = st.integers(0, MAX_COUNT)
usages = st.builds(Usage, counts, counts, reported=st.booleans(), estimated=st.booleans())


@given(amounts, amounts, usages)
def test_costs_are_exact(read: str, made: str, usage: Usage) -> None:
    exactly = Fraction(read) * usage.input_tokens + Fraction(made) * usage.output_tokens
    cost = price(input=read, output=made).cost_of(usage)
    assert Fraction(cost) == exactly / 1_000_000
    assert Fraction(text_of(cost)) == exactly / 1_000_000
    assert "E" not in text_of(cost)


@given(st.lists(st.tuples(usages, st.none() | amounts)))
def test_totals_are_the_sum_over_attempts(attempts: list[tuple[Usage, str | None]]) -> None:
    totals = Totals()
    for usage, each in attempts:
        totals.add(usage, None if each is None else Decimal(each))
    known = [Fraction(each) for _, each in attempts if each is not None]
    cost = totals.cost()
    assert (cost is None) == (not known)
    if cost is not None:
        assert Fraction(cost["amount"]) == sum(known)
        assert cost["unpriced_attempts"] == len(attempts) - len(known)
    said = totals.counts()
    assert (said is None) == (not attempts)
    if said is not None:
        assert said["input_tokens"] == sum(usage.input_tokens for usage, _ in attempts)
        assert said["output_tokens"] == sum(usage.output_tokens for usage, _ in attempts)
        assert said["reported"] == any(usage.reported for usage, _ in attempts)
        assert said["estimated"] == any(usage.estimated for usage, _ in attempts)
    kept = totals.kept()
    assert Totals.of(None if kept is None else orjson.loads(dumps(kept))) == totals


def test_what_was_kept_before_there_were_prices_is_read() -> None:
    totals = Totals.of({"input_tokens": 7, "output_tokens": 3, "reported": True})
    assert totals.cost() is None
    assert totals.counts() == {
        "input_tokens": 7,
        "output_tokens": 3,
        "reported": True,
        "estimated": False,
        "cached_input_tokens": 0,
        "cache_write_tokens": 0,
        "reasoning_tokens": 0,
    }


def listed(model: str, read: int, host: str | None = None) -> ListedPrice:
    """An entry of a table."""
    return ListedPrice.model_validate(
        {
            "provider": "openai",
            "model": model,
            "input": read,
            "output": 1,
            "host": host,
            "as_of": "2026-11-30",
        }
    )


@pytest.mark.parametrize(
    ("model", "base_url", "read"),
    [
        ("a", None, 1),
        ("a", "https://models.example/v1", 2),
        ("a", "https://MODELS.example:8443/v1", 2),
        ("a", "https://elsewhere.example", 1),
        ("b", None, None),
        ("b", "https://models.example", 3),
        ("b", "https://[models.example", None),
        ("c", None, None),
    ],
)
def test_a_table_knows_prices_by_model_and_host(model: str, base_url: str | None, read: int | None) -> None:
    table = PriceTable(
        [listed("a", 1), listed("a", 9), listed("a", 2, "models.example"), listed("b", 3, "Models.example")]
    )
    found = table.find("openai", model, base_url)
    assert (None if found is None else found.input) == read
    assert table.find("gemini", model, base_url) is None
