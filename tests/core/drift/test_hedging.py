"""First lines that only agree."""

from __future__ import annotations

import pytest

from tests.core.drift.watching import CUTS, found

ONLY_AGREES = [
    "Sure\n\nOslo is the capital.",
    "Sure!\nOslo is the capital.",
    "Certainly.\n\nOslo.",
    "CERTAINLY!!\nOslo.",
    "Of course!\r\n\r\nOslo.",
    "Absolutely...\nOslo.",
    "\n  Sure thing!  \nOslo.",
    "Definitely!\n",
    "No problem!\n\nOslo.",
    "With pleasure.\nOslo.",
]
SAYS_SOMETHING = [
    "Sure",
    "Certainly.",
    "Sure enough, the train was late.\nNobody minded.",
    "Sure, Oslo.\n",
    "Certainly the older of the two.\n",
    "Of course not.\n",
    "That is certainly\ntrue.",
    "It will\ncertainly\nrain.",
    "# Sure\n",
    "- Absolutely\n- Not at all\n",
    "Assured\nInsurance",
    "Surely\nnot",
    "",
    "\n\n\n",
    "Oslo.\nSure!\n",
    "Certainly" + " " * 120 + "\n",
]


@pytest.mark.parametrize("every", CUTS)
@pytest.mark.parametrize("text", ONLY_AGREES)
def test_a_first_line_that_only_agrees(text: str, every: int) -> None:
    assert found(text, every) == {"hedging"}


@pytest.mark.parametrize("every", CUTS)
@pytest.mark.parametrize("text", SAYS_SOMETHING)
def test_a_first_line_that_says_something_or_has_not_ended(text: str, every: int) -> None:
    assert found(text, every) == set()
