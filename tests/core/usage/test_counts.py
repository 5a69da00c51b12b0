"""What is counted of an attempt: the server's word, or an estimate that says so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.chunks import UsageReport
from app.core.lifecycle.effects import AttemptEnded
from app.core.prompt import Prompt, PromptMessage, PromptToolCall, ToolSchema
from app.core.usage.counts import MAX_COUNT, Usage, length_of, tokens_in, usage_of

PROMPT_LENGTH = 41
COMPLETED = AttemptEnded("completed", None, UsageReport(30, 7), whole=True, heard=0)


def used(end: AttemptEnded) -> Usage:
    """What is counted of it, with a prompt of 41 code points: 11 tokens by the rule."""
    return usage_of(end, lambda: PROMPT_LENGTH)


def broken(report: UsageReport | None, heard: int, *, refused: bool = False) -> AttemptEnded:
    """An attempt that failed after so much was heard of it."""
    return AttemptEnded("failed", "NETWORK_ERROR", report, whole=False, heard=heard, refused=refused)


def test_a_whole_report_is_taken_as_it_is() -> None:
    assert used(COMPLETED) == Usage(30, 7, reported=True)


@pytest.mark.parametrize(
    ("end", "usage"),
    [
        (broken(None, 9), Usage(11, 3, estimated=True)),
        (broken(None, 0), Usage(11, 0, estimated=True)),
        (broken(None, 0, refused=True), Usage(0, 0)),
        (broken(UsageReport(30, 1), 40), Usage(30, 10, reported=True, estimated=True)),
        (broken(UsageReport(30, 99), 40), Usage(30, 99, reported=True, estimated=True)),
        (broken(UsageReport(30, 0), 0, refused=True), Usage(30, 0, reported=True, estimated=True)),
    ],
    ids=[
        "nothing reported",
        "nothing heard either",
        "refused",
        "the beginning was reported",
        "more was reported than heard",
        "refused, and reported",
    ],
)
def test_what_was_not_reported_is_estimated(end: AttemptEnded, usage: Usage) -> None:
    assert used(end) == usage


@pytest.mark.parametrize(
    ("report", "heard", "usage"),
    [
        (UsageReport(0, 7), 0, Usage(11, 7, reported=True, estimated=True)),
        (UsageReport(30, 0), 8, Usage(30, 2, reported=True, estimated=True)),
        (UsageReport(30, 0), 0, Usage(30, 0, reported=True)),
    ],
    ids=["no input", "no output", "nothing was said"],
)
def test_a_count_of_nothing_that_cannot_be_is_none(report: UsageReport, heard: int, usage: Usage) -> None:
    assert used(AttemptEnded("completed", None, report, whole=True, heard=heard)) == usage


def test_parts_are_kept_and_are_no_more_than_their_whole() -> None:
    report = UsageReport(30, 7, cached_input_tokens=20, cache_write_tokens=15, reasoning_tokens=8)
    end = AttemptEnded("completed", None, report, whole=True, heard=0)
    assert used(end) == Usage(30, 7, 20, 10, 7, reported=True)


def test_a_count_beyond_belief_is_cut() -> None:
    end = AttemptEnded("completed", None, UsageReport(10**30, 10**30, 10**30), whole=True, heard=0)
    assert used(end) == Usage(MAX_COUNT, MAX_COUNT, MAX_COUNT, reported=True)


counts = st.integers(0, 10**12)
maybe = st.none() | counts


@given(
    st.none() | st.builds(UsageReport, counts, counts, maybe, maybe, maybe),
    st.booleans(),
    st.booleans(),
    counts,
    counts,
)
def test_counts_are_never_negative_nor_parts_more_than_their_whole(
    report: UsageReport | None, whole: bool, refused: bool, heard: int, asked: int
) -> None:
    usage = usage_of(AttemptEnded("failed", "X", report, whole, heard, refused), lambda: asked)
    cached, written = usage.cached_input_tokens or 0, usage.cache_write_tokens or 0
    assert 0 <= cached + written <= usage.input_tokens <= MAX_COUNT
    assert 0 <= (usage.reasoning_tokens or 0) <= usage.output_tokens <= MAX_COUNT
    assert usage.reported == (report is not None)
    if report is not None and whole and usage.estimated:
        assert 0 in (report.input_tokens, report.output_tokens)


def test_calls_of_one_attempt_add_up() -> None:
    told = Usage(30, 7, 20, None, 3, reported=True)
    assert told.plus(Usage(0, 0)) == Usage(0, 0).plus(told) == told
    assert told.plus(Usage(11, 2, 5, 4, estimated=True)) == Usage(
        41, 9, 25, 4, 3, reported=True, estimated=True
    )
    most = Usage(MAX_COUNT, MAX_COUNT, MAX_COUNT - 1, 1, MAX_COUNT, reported=True)
    assert most.plus(most) == Usage(MAX_COUNT, MAX_COUNT, MAX_COUNT, 0, MAX_COUNT, reported=True)


@pytest.mark.parametrize(("characters", "tokens"), [(0, 0), (1, 1), (4, 1), (5, 2), (4 * 10**12, MAX_COUNT)])
def test_four_characters_are_about_a_token(characters: int, tokens: int) -> None:
    assert tokens_in(characters) == tokens


def test_a_prompt_is_as_long_as_all_that_it_says() -> None:
    call = PromptToolCall("id", "add", {"a": "ä"})
    messages = [PromptMessage("user", "naïve 🦦"), PromptMessage("assistant", "", [call])]
    assert length_of(Prompt(messages)) == 7 + len('add{"a":"ä"}')
    tool = ToolSchema("add", "Adds.", {"type": "object"})
    assert length_of(Prompt([], [tool], {"type": "null"})) == len('addAdds.{"type":"object"}{"type":"null"}')
