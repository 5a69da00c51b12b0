"""Answers that go in circles, and those that repeat themselves for good reason."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.guardrails.rules.repetition import RepetitionRule
from tests.core.guardrails.texts import cut, found, tails

SAYING = "The lighthouse keeper counts the ships at dusk."
OTHER = "A gull sits on the rail and waits."
THIRD = "Nobody has asked it to leave so far."

LOOPS = {
    "a sentence in a row": f"{SAYING} {SAYING} {SAYING} {OTHER}",
    "at the very end": f"{SAYING} {SAYING} {SAYING}",
    "with others between": f"{SAYING} {OTHER} {SAYING} {THIRD} {SAYING} {OTHER}",
    "in other letters and lines": f"{SAYING} {SAYING.upper()}  {SAYING}\n",
    "each on its line": f"{SAYING}\n{SAYING}\n\n{SAYING}\n",
    "quoted": f'He said: "{SAYING}" "{SAYING}" "{SAYING}" "{SAYING}" and left.',
    "clauses without an end": "and then we go back to the harbour, " * 7,
    "two words": "very much " * 25,
    "a long part": "The crew packs rope, lamps and oil while the harbour master reads the weather aloud, "
    * 3,
    "short lines": "round and round we go\n" * 12,
    "other scripts": "灯台守は夕暮れに沖を通る船を一隻ずつ数えて帳面に書きとめる。" * 3,
    "after code": f"```\nx = 1\n```\n{SAYING} {SAYING} {SAYING} {OTHER}",
}

FINE = {
    "said twice": f"{SAYING} {OTHER} {SAYING} {THIRD}",
    "far apart": " ".join([SAYING, OTHER, THIRD, *(f"Ship number {n} passes by." for n in range(6))] * 3),
    "short sentences": "Yes, indeed. " * 3 + OTHER,
    "code": "```python\n" + "total = total + prices.pop()  # take the next one.\n" * 9 + "```\n",
    "prose in code": "~~~\n" + f"{SAYING}\n" * 9 + "~~~\n",
    "open code": "```\n" + "say hello to all of them\n" * 30,
    "cut off code": "```\n" + f"{SAYING} " * 2 + SAYING,
    "bare code": "    return compute(value);\n" * 12,
    "json": '[{"state": "ready", "count": 0}, ' + '{"state": "ready", "count": 0}, ' * 9,
    "a table": "| name | state |\n|---|---|\n" + "| lamp | it is still burning. |\n" * 9,
    "a list": "- not available at the moment.\n" * 9,
    "a numbered list": "".join(f"{n}. not available at the moment.\n" for n in range(1, 9)),
    "the same number": "1. not available at the moment.\n" * 9,
    "a line": "-" * 300,
    "dots": ". " * 200,
    "numbers": "0.25, " * 60,
    "one letter": "a" * 400,
    "a refrain": "\n\n".join(
        f"The {what} went over the hill,\nand nobody called it back,\n"
        "Sing low, sing low, the river is long.\nSing low, sing low, the river is long."
        for what in ("moon", "cart", "geese", "wind", "night")
    ),
    "a litany": "\n".join(f"From {what},\nkeep us safe, old lantern." for what in ("fog", "ice", "sand")),
    "plain": f"{SAYING} {OTHER} {THIRD}",
}  # fmt: skip


@pytest.mark.parametrize("text", LOOPS.values(), ids=LOOPS)
def test_a_loop_is_told_once(text: str) -> None:
    (violation,) = found(RepetitionRule(), text)
    assert violation.severity == "error"
    assert violation.position is not None
    assert 0 <= violation.position < len(text)


@pytest.mark.parametrize("text", FINE.values(), ids=FINE)
def test_what_repeats_itself_for_a_reason_is_left_alone(text: str) -> None:
    assert not found(RepetitionRule(), text)
    assert not found(RepetitionRule(), list(text))


@settings(max_examples=150)
@given(st.sampled_from([*LOOPS.values(), *FINE.values()]), st.lists(st.integers(0, 2_000), max_size=12))
def test_findings_do_not_depend_on_the_cuts(text: str, at: list[int]) -> None:
    assert found(RepetitionRule(), cut(text, at)) == found(RepetitionRule(), text)


@given(
    st.lists(
        st.sampled_from(
            [SAYING, OTHER, "Go. ", "\n", "\n```\n", " ", "| a |", "- x", "so on and so on ", "!"]
        ),
        max_size=30,
    ),
    st.lists(st.integers(0, 2_000), max_size=8),
)
def test_nor_do_those_of_texts_put_together(parts: list[str], at: list[int]) -> None:
    text = "".join(parts)
    assert found(RepetitionRule(), cut(text, at)) == found(RepetitionRule(), text)


def test_a_loop_is_told_while_the_answer_goes_on() -> None:
    check = RepetitionRule().start()
    told = [len(check.tail(tail)) for tail in tails([f"{SAYING} "] * 5)]
    assert sum(told[:4]) == 1
    assert not check.end(f"{SAYING} " * 5)


def test_checks_of_one_rule_know_nothing_of_each_other() -> None:
    rule = RepetitionRule()
    first, second = rule.start(), rule.start()
    for tail in tails([f"{SAYING} {SAYING} "]):
        assert not first.tail(tail)
        assert not second.tail(tail)
    assert not first.end(f"{SAYING} {SAYING} ")


def test_an_endless_line_leaves_no_more_behind_than_a_short_one() -> None:
    check = RepetitionRule().start()
    for tail in tails([f"word{n} and " for n in range(5_000)]):
        assert not check.tail(tail)
    assert len(pickle.dumps(check)) < 3_000
