"""Write Markdown."""

from __future__ import annotations

from collections.abc import Iterable


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table."""
    lines = [list(head), *(list(row) for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def named_tests(tests: Iterable[str]) -> str:
    """A cell that names tests, one below the other."""
    return "<br>".join(f"`{test}`" for test in tests)
