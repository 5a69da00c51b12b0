"""Beginnings that are wrapping, and those that are content."""

from __future__ import annotations

import pytest

from tests.core.drift.watching import CUTS, found, prose

WRAPPING = [
    "<|im_start|>assistant\nOslo.",
    "<|assistant|> Oslo.",
    " <|start_header_id|>assistant<|end_header_id|>\n\nOslo.",
    "[INST] What is the capital? [/INST] Oslo.",
    "[/INST] Oslo.",
    "<<SYS>>\nBe brief.",
    "### Response:\nOslo.",
    "### Assistant: Oslo.",
    "assistant\n\nOslo.",
    'Here is the JSON you requested:\n{"a": 1}',
    "Here's the summary you asked for:\n\nIt rained.",
    "Here’s a short poem that you asked me for.\n\nRain.",
    "Here are the three names you wanted:\n",
    "Sure! Here is the table you requested:\n",
    "Certainly. Here's your list of cities, the one you've requested:\n",
    "As requested, here is the translation: Oslo.",
    "As you requested, below are the names. Oslo.",
]
CONTENT = [
    "Here is how a heat pump works: it moves heat.",
    "Here is the thing about winter: it ends.",
    "Here's the JSON:\n{}",
    "Here are three reasons.\n\n1. It is cheap.",
    "Here is the house that Jack built.",
    "Here is what you need: flour, salt and water.",
    "Here is the letter you wrote last year. I liked it.",
    "Sure! Oslo is the capital.",
    "As requested by the court, the files were sealed.",
    "Assets are what a company owns.",
    "Assistant professors teach two courses a term.",
    "assistant manager wanted\n",
    "Response times rose in March.",
    "### Answer: Oslo",
    "The token <|im_start|> begins a turn.",
    "`<|im_start|>` begins a turn.",
    "[install] is a section of the file.",
    '{"assistant": "Here is the JSON you requested:"}',
    "I'll look that up for you.",
    "Let me check the file for you.",
    "She nodded. Here is the coat you asked for. It was wet.",
]


@pytest.mark.parametrize("every", CUTS)
@pytest.mark.parametrize("text", WRAPPING)
def test_an_answer_that_begins_with_wrapping(text: str, every: int) -> None:
    assert found(text, every) == {"format_collapse"}


@pytest.mark.parametrize("every", CUTS)
@pytest.mark.parametrize("text", CONTENT)
def test_an_answer_that_begins_with_content(text: str, every: int) -> None:
    assert found(text, every) == set()


@pytest.mark.parametrize("text", WRAPPING)
def test_only_the_beginning_counts(text: str) -> None:
    assert found(prose(100) + "\n" + text) == set()
