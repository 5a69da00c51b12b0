"""Markdown that would be shown otherwise than it was meant: open code fences and uneven tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from app.core.guardrails.base import Check, Rule, Severity, Tail, Violation
from app.core.guardrails.code_blocks import blanked, code_spans, fences

MAX_TABLES: Final = 20
"""Uneven tables that are told of."""

_DELIMITER: Final = re.compile(
    r"^[ \t>]*+(?=[^\n]*\|)\|?[ \t]*+:?-++:?[ \t]*+(?:\|[ \t]*+:?-++:?[ \t]*+)*+\|?[ \t]*+\r?$", re.MULTILINE
)
"""The row of dashes that makes the lines around it a table."""
_LISTED: Final = re.compile(r"^[ \t>]*+(?:[-*+]|[0-9]{1,9}[.)])[ \t]++")
_ESCAPED: Final = re.compile(r"\\.")


class MarkdownCheck(Check):
    """Looks at one answer when it has ended."""

    def __init__(self, rule: Markdown) -> None:
        self._rule = rule

    def tail(self, tail: Tail) -> Sequence[Violation]:
        """Nothing; a block that is open may yet be closed."""
        return ()

    def end(self, text: str) -> Sequence[Violation]:
        """A code fence without its end (an error), and one warning for each uneven table."""
        code = fences(text)
        found: list[Violation] = []
        if code.unclosed is not None:
            found.append(self._rule.found("a code fence is not closed", code.unclosed))
        if "|" in text:
            found += self._uneven(blanked(text, code.blocks))
        return found

    def _uneven(self, prose: str) -> Iterator[Violation]:
        told = behind = 0
        for delimiter in _DELIMITER.finditer(prose):
            start = prose.rfind("\n", 0, max(delimiter.start() - 1, 0)) + 1
            header = prose[start : max(delimiter.start() - 1, 0)]
            if start < behind or "|" not in header:
                continue
            if delimiter[0][0] in " \t":
                header = _LISTED.sub("", header)
            columns = _columns(delimiter[0])
            rows = [(start, header), *_rows(prose, delimiter.end() + 1)]
            behind = rows[-1][0] + 1
            uneven = next((row for row in rows if _columns(row[1]) != columns), None)
            if uneven is not None and told < MAX_TABLES:
                told += 1
                yield self._warn(uneven, columns)

    def _warn(self, uneven: tuple[int, str], columns: int) -> Violation:
        position, row = uneven
        message = f"a table of {columns} columns has a row of {_columns(row)}"
        return self._rule.found(message, position, severity="warning")


def _rows(prose: str, at: int) -> Iterator[tuple[int, str]]:
    """The lines of a table's body with where they begin, up to the first that has no pipe."""
    while at < len(prose):
        end = prose.find("\n", at)
        row = prose[at : end if end >= 0 else len(prose)]
        if "|" not in row:
            return
        yield at, row
        at += len(row) + 1


def _columns(row: str) -> int:
    """The number of cells; pipes that are escaped or stand in code part nothing."""
    row = row.strip().lstrip("> \t")
    if "`" in row:
        row = blanked(row, code_spans(row))
    if "\\" in row:
        row = _ESCAPED.sub("  ", row)
    row = row.strip()
    return row.count("|") + 1 - row.startswith("|") - (len(row) > 1 and row.endswith("|"))


class Markdown(Rule):
    """The answer's Markdown is whole."""

    name: ClassVar[str] = "markdown"
    streaming: ClassVar[bool] = False
    severity: ClassVar[Severity] = "error"

    def start(self) -> MarkdownCheck:
        """A fresh check, for one attempt."""
        return MarkdownCheck(self)


RULE = Markdown
