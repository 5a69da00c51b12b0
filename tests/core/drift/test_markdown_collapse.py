"""Markdown that runs into a wall of text, and long lines that have a reason."""

from __future__ import annotations

import pytest

from tests.core.drift.watching import CUTS, found, prose

BULLETS = "## Plan\n\n" + "".join(f"- **Step {i}** takes {i + 2} days and one visit\n" for i in range(12))
TABLE = "| year | rain | note |\n|---|---|---|\n" + "".join(
    f"| {y} | {y % 7} | dry |\n" for y in range(1990, 2015)
)
NUMBERED = "".join(f"{i}. Ask the office for form {i} and wait\n" for i in range(1, 15))
WALL = prose(1_900).replace(", as", " as")

COLLAPSED = {
    "after bullets": BULLETS + "\n" + WALL,
    "after a table": prose(500) + "\n\n" + TABLE + "\n" + WALL,
    "after numbers": NUMBERED + WALL,
    "after quotations": "> A line that was said.\n> Another line that was said.\n" * 6 + "\n" + WALL,
    "after a finished fence": "".join(f"- entry {i} of the list\n" for i in range(8))
    + "```\na\n```\n"
    + WALL,
}
FINE = {
    "a plain answer": WALL,
    "plain paragraphs": "\n\n".join([prose(300)] * 1 + [prose(250)[40:]] + [WALL]),
    "lines without marks": "".join(f"Line {i} of the poem is short\n" for i in range(20)) + WALL,
    "a list and its summary": BULLETS + "\n" + prose(900),
    "a list and several paragraphs": BULLETS + "\n" + "\n\n".join(prose(1_200)[i:] for i in range(0, 90, 30)),
    "a new section": BULLETS + "\n## Background\n\n" + WALL,
    "a section in bold": BULLETS + "\n**Background**\n\n" + WALL,
    "a label": BULLETS + "\nThe whole story:\n" + WALL,
    "a long entry": BULLETS + "- " + WALL,
    "an essay under headings": "".join(f"## Part {i}\n\n{prose(400)[i:]}\n\n" for i in range(5)) + WALL,
    "JSON in a fence": BULLETS + '\n```json\n{"rows": [' + '{"id": 1, "on": true}, ' * 120,
    "text in a fence": BULLETS + "\n```\n" + WALL,
    "JSON": BULLETS + '\n{"rows": [' + '{"id": 1, "on": true}, ' * 120,
    "compact JSON": BULLETS + '\n{"rows":[' + '{"id":1,"on":true},' * 150,
    "encoded data": BULLETS + "\n" + "iVBORw0KGgoAAAANSUhEUgAA" * 120,
    "marks in the wall": BULLETS + "\n" + WALL.replace("page", "**page**"),
    "code": "".join(f"- part {i}\n" for i in range(9)) + "\n" + "value = call(first, second); " * 80,
}


@pytest.mark.parametrize("every", CUTS)
@pytest.mark.parametrize("text", COLLAPSED.values(), ids=COLLAPSED)
def test_markdown_that_runs_into_a_wall(text: str, every: int) -> None:
    assert found(text, every) == {"markdown_collapse"}


@pytest.mark.parametrize("every", CUTS)
@pytest.mark.parametrize("text", FINE.values(), ids=FINE)
def test_long_lines_that_have_a_reason(text: str, every: int) -> None:
    assert found(text, every) == set()


@pytest.mark.parametrize("every", range(1, 9))
def test_a_mark_is_one_wherever_it_is_cut(every: int) -> None:
    assert found(BULLETS + "12. " + WALL, every) == set()


def test_a_line_break_ends_it() -> None:
    assert found(BULLETS + "\n" + WALL[:1_400] + "\n" + WALL[:1_400]) == set()
