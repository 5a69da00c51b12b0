"""What says the same over and over, and what merely has a pattern."""

from __future__ import annotations

import pytest

from tests.core.drift.watching import CUTS, found, prose

SENTENCE = "We walk along the river and talk about the rain that never came. "
VERSE = "Low is the water,\nlong is the way,\nthe boats are asleep\nat the end of the day.\n\n"
REFRAIN = "Sing, my dear, and carry me home,\ncarry me home to the sea.\n\n"

OVER_AND_OVER = {
    "a long sentence": SENTENCE * 3,
    "a long sentence after other text": prose(3_000) + SENTENCE * 3,
    "a short sentence": "I could not say for sure. " * 4 + "I could",
    "two words": "never again " * 20,
    "one word": "very " * 45,
    "a sentence without spaces": "我们沿着河走，谈论从未下过的雨。" * 15,
    "a paragraph": (prose(400) + "\n\n") * 4,
    "a line": "The sea is wide and the night is long\n" * 13,
    "a short line": "I am sorry.\n" * 90,
    "speech": '"I do not know what to do," he said to the wall. ' * 4,
}
A_PATTERN = {
    "a sentence twice": SENTENCE * 2 + prose(300),
    "a word some times": "No, no, no, no, no, no, no! It was far, far, far away. " + prose(200),
    "laughter": "Ha ha ha ha ha ha ha ha ha ha ha ha! " + prose(100),
    "a refrain": "".join(VERSE.replace("boats", who) + REFRAIN for who in ("ships", "gulls", "nets")),
    "a refrain that ends a song": VERSE + REFRAIN * 3,
    "rows of a table": "| name | state |\n|---|---|\n" + "| pump | open |\n" * 90,
    "a rule": "-" * 900 + "\n" + "=" * 900 + "\n" + "- " * 400 + "\n",
    "dots": "Contents " + "." * 600 + " 12\n" + ". " * 300,
    "closing braces": "if (a) {\n" * 30 + "    }\n" * 90 + "}\n" * 90,
    "lines of code": "x = step(x)\n" * 90,
    "lines of code without marks": "    pass\n" * 90 + "end\n" * 200,
    "an indented block": "    the same words in a block of text\n" * 40,
    "a list": "- nothing to report today\n" * 40,
    "a numbered list": "".join(f"{i}. Nothing to report today\n" for i in range(1, 60)),
    "compact JSON": '{"id":1,"on":true},' * 90,
    "spaced JSON": '{"id": 1, "on": true}, ' * 90,
    "numbers": "0, 0, 0, 0, " * 90,
    "rows of numbers": "0 1 0 1\n" * 150,
    "CSV": "Berlin,open,none,not yet known\n" * 60,
    "settings": "state: open and ready\nowner: nobody\n" * 30,
    "words, one a line": "true\n" * 300 + "neutral\n" * 200,
    "answers, one a line": "not applicable\n" * 30 + "The review is positive.\n" * 9,
    "spaces": "The end." + " " * 1_500,
    "line breaks": "The end." + "\n" * 1_500,
    "padding": "A" * 600 + "AAAA\n" * 100,
    "a genome": "GATTACA" * 100,
    "a speech": "".join(
        f"I have a hope that one day {who} will {what}. "
        for who in ("my son", "my daughter", "our town", "the old")
        for what in ("sit at this table", "vote in peace", "drink from that well")
    ),
    "a log": "".join(f"64 bytes from host: seq {i} ttl 57\n" for i in range(80)),
}


@pytest.mark.parametrize("every", CUTS)
@pytest.mark.parametrize("text", OVER_AND_OVER.values(), ids=OVER_AND_OVER)
def test_the_same_over_and_over(text: str, every: int) -> None:
    assert found(text, every) == {"repetition"}


@pytest.mark.parametrize("every", CUTS)
@pytest.mark.parametrize("text", A_PATTERN.values(), ids=A_PATTERN)
def test_a_pattern(text: str, every: int) -> None:
    assert found(text, every) == set()
