"""Falls into another tone, and changes that have a reason."""

from __future__ import annotations

import pytest

from tests.core.drift.watching import CUTS, found, prose

FORMAL = (
    "Furthermore, the committee notes that the budget is sound. Moreover, the schedule holds and the "
    "risks are known; consequently, no action is required. The treasurer therefore proposes that the "
    "figures be accepted. "
)
CASUAL = (
    "Anyway dude, yeah, it's kinda boring lol and we're gonna skip it, haha, nobody cares what they wrote "
    "there. They gotta do it someday but nah, not today. It's kinda too warm and we wanna go swimming, so "
    "yeah, bye. "
)
REASONS = {
    "nothing but formal": FORMAL * 2 + prose(300),
    "nothing but casual": CASUAL + prose(300) + CASUAL,
    "plain text between": FORMAL + prose(600) + CASUAL,
    "one casual word": FORMAL + "Yeah, that is all. " + prose(300),
    "one formal word": CASUAL + "Thus it ends. " + prose(300),
    "a label": FORMAL + "\n\nIn other words, casually:\n" + CASUAL,
    "a heading": FORMAL + "\n## For friends\n" + CASUAL,
    "a list": "\n- " + FORMAL + "\n- " + CASUAL,
    "speech": FORMAL + 'The clerk grinned. "' + CASUAL + '"',
    "names and parts of words": FORMAL
    + "Anna and Johanna from Vienna saw Otta and a lollipop. " * 2
    + prose(200),
}


@pytest.mark.parametrize("every", CUTS[:2])
@pytest.mark.parametrize("lead", range(0, 170, 10))
@pytest.mark.parametrize(("first", "second"), [(FORMAL, CASUAL), (CASUAL, FORMAL)], ids=["falls", "rises"])
def test_another_tone_in_the_midst_of_a_passage(first: str, second: str, lead: int, every: int) -> None:
    assert found(prose(600) + "x" * lead + " " + first + second * 2, every) == {"tone_shift"}


@pytest.mark.parametrize("every", CUTS[:2])
@pytest.mark.parametrize("lead", range(0, 170, 10))
@pytest.mark.parametrize("text", REASONS.values(), ids=REASONS)
def test_a_change_that_has_a_reason_or_is_none(text: str, lead: int, every: int) -> None:
    assert found("x" * lead + " " + text, every) == set()
