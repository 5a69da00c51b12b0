"""Limits as they are said, told in header fields, and told to whom they refuse."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.core.limits.quota import (
    LimitName,
    Owner,
    Quota,
    QuotaLimits,
    Standing,
    rate_fields,
    run_quotas,
)
from app.core.limits.refusal import LimitReached, refusal

KEY, PROJECT = Owner.KEY, Owner.PROJECT
REQUESTS, RUNS, TOKENS, COST = LimitName
POLICIES = {REQUESTS: "requests", RUNS: "runs", TOKENS: "tokens", COST: "cost"}


@pytest.mark.parametrize(
    "body",
    [
        {"requests_per_minute": 0},
        {"requests_per_minute": 1.0},
        {"requests_per_minute": "1"},
        {"concurrent_runs": -1},
        {"concurrent_runs": True},
        {"tokens_per_day": 10**13},
        {"cost_per_day": -1},
        {"cost_per_day": True},
        {"cost_per_day": "much"},
        {"cost_per_day": "NaN"},
        {"cost_per_day": "1e3"},
        {"cost_per_day": " 5"},
        {"cost_per_day": "1_000"},
        {"cost_per_day": "+5"},
        {"cost_per_day": "\u0663"},
        {"cost_per_day": ".5"},
        {"cost_per_day": "0.0000001"},
        {"cost_per_day": 1_000_001},
        {"requests_per_second": 1},
    ],
    ids=repr,
)
def test_what_is_no_limit_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        QuotaLimits.model_validate(body)


@pytest.mark.parametrize(
    ("body", "limits_runs", "counts_usage", "limits_anything"),
    [
        ({}, False, False, False),
        ({"requests_per_minute": 1}, False, False, True),
        ({"concurrent_runs": 0}, True, False, True),
        ({"tokens_per_day": 0}, True, True, True),
        ({"cost_per_day": 0}, True, True, True),
        ({"cost_per_day": None}, False, False, False),
    ],
    ids=repr,
)
def test_what_has_to_be_looked_at_for_it(
    body: dict[str, Any], limits_runs: bool, counts_usage: bool, limits_anything: bool
) -> None:
    limits = QuotaLimits.model_validate(body)
    assert limits.limits_runs is limits_runs
    assert limits.counts_usage is counts_usage
    assert limits.limits_anything is limits_anything
    quota = Quota(UUID(int=1), KEY, limits)
    assert run_quotas([quota]) == ((quota.id,) if limits_runs else ())


def test_money_is_taken_as_it_is_written() -> None:
    assert QuotaLimits.model_validate({"cost_per_day": 0.1}).cost_per_day == Decimal("0.1")
    assert QuotaLimits.model_validate({"cost_per_day": "12.50"}).cost_per_day == Decimal("12.5")


@pytest.mark.parametrize(
    ("standing", "policy", "state"),
    [
        (Standing(KEY, REQUESTS, 60, 12, 4.2), '"key-requests";q=60;w=60', '"key-requests";r=48;t=5'),
        (
            Standing(PROJECT, REQUESTS, 60, 70, 0),
            '"project-requests";q=60;w=60',
            '"project-requests";r=0;t=0',
        ),
        (Standing(KEY, RUNS, 8, 2, None), '"key-runs";q=8;qu="concurrent-runs"', '"key-runs";r=6'),
        (
            Standing(PROJECT, TOKENS, 1_000, 1_500, 3_600.0),
            '"project-tokens";q=1000;w=86400;qu="tokens"',
            '"project-tokens";r=0;t=3600',
        ),
        (
            Standing(KEY, COST, Decimal("12.5"), Decimal("0.0000001"), 60.0),
            '"key-cost";q=12500000;w=86400;qu="micro-usd"',
            '"key-cost";r=12499999;t=60',
        ),
    ],
)
def test_a_limit_as_header_fields(standing: Standing, policy: str, state: str) -> None:
    assert rate_fields([standing]) == (policy, state)


def test_what_was_so_a_while_ago_ends_sooner() -> None:
    standing = Standing(KEY, REQUESTS, 60, 12, 10.0)
    assert rate_fields([standing], 3.5)[1] == '"key-requests";r=48;t=7'
    assert rate_fields([standing], 30)[1] == '"key-requests";r=48;t=0'


def test_several_limits_are_a_list() -> None:
    both = [Standing(KEY, REQUESTS, 2, 1, 1.0), Standing(PROJECT, REQUESTS, 9, 1, 1.0)]
    assert rate_fields(both) == (
        '"key-requests";q=2;w=60, "project-requests";q=9;w=60',
        '"key-requests";r=1;t=1, "project-requests";r=8;t=1',
    )


@pytest.mark.parametrize("name", LimitName)
def test_a_refusal_says_which_limit_and_when_it_ends(name: LimitName) -> None:
    amount: Any = Decimal("2.5") if name is COST else 2
    resets_s = None if name is RUNS else 0.25
    error = refusal(Standing(PROJECT, name, amount, amount, resets_s))
    assert isinstance(error, LimitReached)
    assert error.retry_after_s == 1
    assert error.extra["limit"] == {
        "owner": "project",
        "name": name.value,
        "quota": "2.5" if name is COST else 2,
        "used": "2.5" if name is COST else 2,
        "resets_in_s": None if name is RUNS else 1,
    }
    assert error.extra["violated-policies"] == [f"project-{POLICIES[name]}"]
    assert "The project may" in error.detail


@given(quota=st.integers(0, 100), used=st.integers(0, 200))
def test_what_is_left_and_what_is_reached_agree(quota: int, used: int) -> None:
    standing = Standing(KEY, TOKENS, quota, used, None)
    assert standing.is_reached == (standing.left == 0)
    assert 0 <= standing.left <= quota
