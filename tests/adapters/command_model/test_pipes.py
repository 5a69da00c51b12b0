"""What comes out of a command's pipes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import FileIO

import pytest

from app.adapters.command_model.pipes import HELD_BYTES, Kept, Output

pytestmark = pytest.mark.anyio

DRAIN_S = 0.02


@asynccontextmanager
async def piped() -> AsyncIterator[tuple[Output, int]]:
    """A pipe, and where to write into it."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    output = Output(DRAIN_S)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: output, FileIO(reading))
    try:
        yield output, writing
    finally:
        transport.close()
        os.close(writing)


async def fill(writing: int) -> int:
    """Write until nothing more is taken; how much that is."""
    written = 0
    for _ in range(1_000):
        try:
            written += os.write(writing, b"x" * 4_096)
        except BlockingIOError:
            await asyncio.sleep(0)
    return written


async def all_of(output: Output) -> int:
    got = 0
    while piece := await output.read():
        got += len(piece)
    return got


async def test_what_nobody_takes_is_left_in_the_pipe() -> None:
    async with piped() as (_, writing):
        assert HELD_BYTES < await fill(writing) < 4 * HELD_BYTES


async def test_a_slow_reader_loses_nothing_of_a_command_that_has_ended() -> None:
    """Somebody else holds the pipe, so that its end is never seen."""
    async with piped() as (output, writing):
        written = await fill(writing)
        output.writer_ended()
        await asyncio.sleep(5 * DRAIN_S)
        assert await all_of(output) == written


async def test_a_command_that_goes_on_may_be_silent() -> None:
    async with piped() as (output, writing):
        reading = asyncio.create_task(output.read())
        await asyncio.sleep(5 * DRAIN_S)
        os.write(writing, b"at last")
        assert await reading == b"at last"


async def test_who_waits_hears_of_the_end() -> None:
    async with piped() as (output, writing):
        reading = asyncio.create_task(all_of(output))
        await asyncio.sleep(0)
        os.write(writing, b"last words")
        output.writer_ended()
        assert await reading == len(b"last words")


async def test_complaints_are_kept_from_their_end() -> None:
    kept = Kept(4)
    kept.data_received(b"ab")
    assert (kept.text, kept.cut) == ("ab", False)
    kept.data_received(b"cdefg")
    assert (kept.text, kept.cut) == ("defg", True)
