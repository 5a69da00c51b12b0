"""How the messages of one answer become one text."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.core.chunks import Chunk, EndMark, KeepAlive, MessageBreak, ReasoningDelta, TextDelta, ToolUse
from app.ports.provider import Opening
from app.services.middle import RunAndCollect
from tests.support.answers import opening

pytestmark = pytest.mark.anyio

BREAK = MessageBreak()


class Saying:
    """A provider that says the same whatever it is asked."""

    def __init__(self, *batches: Sequence[Chunk]) -> None:
        self._batches = batches
        self.left = False

    @asynccontextmanager
    async def open(self, opening: Opening) -> AsyncIterator[AsyncIterator[Sequence[Chunk]]]:
        async def answer() -> AsyncIterator[Sequence[Chunk]]:
            for batch in self._batches:
                yield batch

        try:
            yield answer()
        finally:
            self.left = True


async def collected(*batches: Sequence[Chunk]) -> list[list[Chunk]]:
    provider: Any = Saying(*batches)
    async with RunAndCollect().open(provider, opening("x")) as answer:
        got = [list(batch) async for batch in answer]
    assert provider.left
    return got


TEXTS: list[tuple[list[Chunk], str]] = [
    ([], ""),
    ([BREAK, BREAK], ""),
    ([TextDelta("a"), TextDelta("b")], "ab"),
    ([BREAK, TextDelta("a"), BREAK], "a"),
    ([TextDelta("a"), BREAK, BREAK, TextDelta(""), TextDelta("b"), TextDelta("c")], "a\n\nbc"),
    ([BREAK, TextDelta("a"), BREAK, ReasoningDelta("r"), ToolUse("t", "n", None), TextDelta("b")], "a\n\nb"),
    ([TextDelta("a"), BREAK, TextDelta("b"), BREAK, TextDelta("c")], "a\n\nb\n\nc"),
]


@pytest.mark.parametrize(("chunks", "text"), TEXTS)
@pytest.mark.parametrize("together", [True, False], ids=["in one batch", "one by one"])
async def test_a_blank_line_stands_between_texts(chunks: list[Chunk], text: str, together: bool) -> None:
    batches = [chunks] if together else [[chunk] for chunk in chunks]
    said = [chunk for batch in await collected(*batches) for chunk in batch]
    assert "".join(chunk.text for chunk in said if isinstance(chunk, TextDelta)) == text
    assert BREAK not in said


async def test_everything_else_stays_where_it_is() -> None:
    chunks: list[Chunk] = [TextDelta("a"), BREAK, ReasoningDelta("r"), ToolUse("t", "n", 1), EndMark()]
    assert await collected(chunks) == [
        [TextDelta("a"), KeepAlive(), ReasoningDelta("r"), ToolUse("t", "n", 1), EndMark()]
    ]
