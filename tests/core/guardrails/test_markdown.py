"""The rule markdown: open fences are errors, uneven tables warnings, and code is left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.guardrails.rules.markdown import MAX_TABLES, RULE
from tests.core.guardrails.cuts import findings

TABLE = "| a | b |\n|---|---|\n"
WHOLE = [
    "",
    "Plain prose with `code` and | a pipe.",
    "```\ncode\n```",
    "```python\nprint('```')\n```\nand on",
    "~~~\n```\n~~~",
    "````markdown\n```\ncode\n```\n````",
    "```\r\ncode\r\n```\r\n",
    "Größe 😀:\n\n  ```\n  x\n  ```",
    "- item\n\n      ```\n      deep in a list\n      ```",
    "1. ```sh\n   ls\n   ```",
    "> ```\n> quoted\n> ```",
    "    ``` an indented line that is code as it stands",
    "Use ```inline``` like this, or ``` alone within a line.",
    "```inline``` at the start of a line",
    TABLE + "| 1 | 2 |\n| 3 | 4 |\n\nafter | it | all",
    "a | b\n--|--\n1 | 2\n",
    "| größe | 😀 |\n|:---|---:|\n| 値 | é |",
    TABLE + "| `x|y` | ``a`|`b`` |",
    TABLE + r"| x \| y | \\| ",
    TABLE + "|  |  |\n|||",
    "> | a | b |\n> |---|---|\n> | 1 | 2 |",
    "- | a | b |\n  |---|---|\n  | 1 | 2 |",
    TABLE + "| 1 | 2 |\nThe table is over.",
    "| one |\n|-----|\n| x |",
    "```\n| a | b |\n|---|---|\n| 1 |\n```",
    "| no | table\n\n| at | all | here",
    "Title | still a title\n-----\n",
]
OPEN = [
    ("```", 0),
    ("```python\nprint(1)", 0),
    ("Größe 😀\n~~~\nx\n```", 8),
    ("```\na\n```\n\n```\nb", 11),
    ("````\n```\n", 0),
    ("```\nx\n``` not the end", 0),
    ("```\nx\n        ```\n", 0),
    ("- ```\n  x", 2),
]
UNEVEN = [
    (TABLE + "| 1 |\n", 20, "2 columns has a row of 1"),
    (TABLE + "| 1 | 2 |\n| 1 | 2 | 3 |\n", 30, "2 columns has a row of 3"),
    ("😀\n\na | b | c\n--|--\n", 3, "2 columns has a row of 3"),
    (TABLE + r"| x \| y |", 20, "2 columns has a row of 1"),
    (TABLE + "| `x|y` |", 20, "2 columns has a row of 1"),
    ("```\n|\n```\n" + TABLE + "|1|2|3|", 30, "2 columns has a row of 3"),
]


@pytest.mark.parametrize("text", WHOLE)
def test_whole_markdown_passes(text: str) -> None:
    assert findings(RULE(), [text]) == []


@pytest.mark.parametrize(("text", "position"), OPEN)
def test_an_open_fence_is_an_error(text: str, position: int) -> None:
    [found] = findings(RULE(), [text])
    assert (found.rule, found.severity, found.position) == ("markdown", "error", position)
    assert "fence" in found.message


@pytest.mark.parametrize(("text", "position", "message"), UNEVEN)
def test_an_uneven_table_is_a_warning(text: str, position: int, message: str) -> None:
    [found] = findings(RULE(), [text])
    assert (found.severity, found.position) == ("warning", position)
    assert message in found.message


def test_a_table_is_told_of_once_and_each_table_by_itself() -> None:
    table = TABLE + "|1|\n|1|\n"
    assert [found.position for found in findings(RULE(), [table + "\n" + table])] == [20, 49]
    assert len(findings(RULE(), [f"{table}\n" * (MAX_TABLES + 5)])) == MAX_TABLES


def test_fence_and_table_are_told_of_together() -> None:
    found = findings(RULE(), [TABLE + "|1|\n\n```\nx"])
    assert [(one.severity, one.position) for one in found] == [("error", 25), ("warning", 20)]


@given(st.lists(st.lists(st.text("ab\\|`é😀 ", max_size=4), min_size=2, max_size=2), max_size=4))
def test_escaped_cells_never_make_a_table_uneven(rows: list[list[str]]) -> None:
    def cell(text: str) -> str:
        return text.replace("\\", "\\\\").replace("|", r"\|").replace("`", "")

    body = "".join(f"| {cell(one)} | {cell(other)} |\n" for one, other in rows)
    assert findings(RULE(), [TABLE + body]) == []


@given(st.text("`~|-: \n>ab\\", max_size=60))
def test_any_text_can_be_judged_and_positions_lie_in_it(text: str) -> None:
    for found in findings(RULE(), [text]):
        assert found.position is not None
        assert 0 <= found.position <= len(text)
