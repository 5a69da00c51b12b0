"""Which of the three ways on follows from a fault."""

from __future__ import annotations

import pytest

from app.core.lifecycle import faults
from app.core.lifecycle.faults import Trouble
from app.core.lifecycle.options import RetryOptions
from app.core.lifecycle.verdict import Recovery, Spent, Verdict, judge

OPTIONS = RetryOptions(attempts=2, max_retries=4)
NETWORK_ONLY = RetryOptions(retry_on=frozenset({"network_error"}))
NOTHING = RetryOptions(retry_on=frozenset())
RETRY, FALLBACK, HALT = Recovery.RETRY, Recovery.FALLBACK, Recovery.HALT


@pytest.mark.parametrize(
    ("trouble", "spent", "options", "models_left", "expected"),
    [
        (faults.NETWORK, Spent(0, 0), OPTIONS, 0, Verdict(RETRY, 4)),
        (faults.NETWORK, Spent(3, 2), OPTIONS, 0, Verdict(RETRY, 4)),
        (faults.NETWORK, Spent(4, 0), OPTIONS, 1, Verdict(FALLBACK, 4, "retries_exhausted")),
        (faults.NETWORK, Spent(4, 0), OPTIONS, 0, Verdict(HALT, 4, "retries_exhausted")),
        (faults.TRUNCATED, Spent(1, 1), OPTIONS, 0, Verdict(RETRY, 2)),
        (faults.TRUNCATED, Spent(2, 2), OPTIONS, 0, Verdict(HALT, 2, "retries_exhausted")),
        (faults.TRUNCATED, Spent(4, 0), OPTIONS, 0, Verdict(HALT, 2, "retries_exhausted")),
        (faults.ZERO_OUTPUT, Spent(2, 2), OPTIONS, 1, Verdict(FALLBACK, 2, "retries_exhausted")),
        (faults.REJECTED, Spent(0, 0), OPTIONS, 1, Verdict(FALLBACK, 0, "not_retryable")),
        (faults.TLS, Spent(0, 0), OPTIONS, 0, Verdict(HALT, 0, "not_retryable")),
        (faults.REFUSAL, Spent(0, 0), OPTIONS, 1, Verdict(HALT, 0, "not_retryable")),
        (faults.OUTPUT_TRUNCATED, Spent(0, 0), OPTIONS, 3, Verdict(HALT, 0, "not_retryable")),
        (faults.NETWORK, Spent(0, 0), NETWORK_ONLY, 0, Verdict(RETRY, 6)),
        (faults.RATE_LIMIT, Spent(0, 0), NETWORK_ONLY, 0, Verdict(HALT, 6, "not_in_retry_on")),
        (faults.NETWORK, Spent(0, 0), NOTHING, 1, Verdict(FALLBACK, 6, "not_in_retry_on")),
    ],
    ids=[
        "network, first",
        "network counts against max_retries alone",
        "network, used up, a model left",
        "network, used up, no model left",
        "content, one left",
        "content, attempts used up",
        "content, max_retries used up",
        "content, used up, a model left",
        "fatal, a model left",
        "fatal, no model left",
        "refusal, never a fallback",
        "token limit, never a fallback",
        "chosen reason",
        "reason not chosen",
        "no reason chosen",
    ],
)
def test_judge(
    trouble: Trouble, spent: Spent, options: RetryOptions, models_left: int, expected: Verdict
) -> None:
    assert judge(trouble, spent, options, models_left=models_left, calls_left=5) == expected


@pytest.mark.parametrize("trouble", [faults.NETWORK, faults.REJECTED], ids=["retry", "fallback"])
def test_without_a_model_call_left_neither_retry_nor_fallback_is_offered(trouble: Trouble) -> None:
    verdict = judge(trouble, Spent(), OPTIONS, models_left=1, calls_left=0)
    assert (verdict.recovery, verdict.give_up, verdict.cut_short) == (HALT, "model_calls_exhausted", True)


def test_the_budget_is_not_blamed_where_nothing_was_left_anyway() -> None:
    verdict = judge(faults.REJECTED, Spent(), OPTIONS, models_left=0, calls_left=0)
    assert verdict == Verdict(HALT, 0, "not_retryable")
