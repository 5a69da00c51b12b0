"""Ask models whose backend is a command: start it, tell it the conversation, read what it says, end it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Final, Self

import structlog

from app.adapters.answer_size import AnswerSize
from app.adapters.command_model.command import Command
from app.adapters.command_model.output import OutputReader
from app.adapters.command_model.process import Process
from app.adapters.command_model.prompt import Given, given_to
from app.adapters.command_model.watchdog import Watchdog
from app.adapters.options import Options, checked
from app.core.chunks import Chunk
from app.core.errors import Invalid
from app.core.faults import Fault, FaultKind, ProviderError
from app.core.json_text import NotJson
from app.ports.provider import Capabilities, ModelEndpoint, Opening

AFTERWORK_S: Final = 2.0
"""How long a command that has said its end may take to end."""
LAST_WORDS_CHARS: Final = 500
"""How much of the last line of standard error stands in a fault's message."""

log = structlog.get_logger("commands")


class NoOptions(Options):
    """A command's options are the operator's, and stand in the settings."""


class CommandProvider:
    """Runs the operator's commands, each under the name of its model.

    What is run is never taken from an endpoint: it stands in the settings alone. Use it as a context manager;
    what still runs at the end of the block is ended.
    """

    name = "command"
    adapter_id = "command"

    def __init__(self, commands: Mapping[str, Command]) -> None:
        self._commands = commands
        self._watchdog = Watchdog()
        self._ending: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*self._ending, return_exceptions=True)
        self._watchdog.close()

    def check(self, endpoint: ModelEndpoint) -> None:
        """Raise `Invalid` with pointers for any option."""
        checked(endpoint.options, NoOptions)

    def capabilities(self, endpoint: ModelEndpoint) -> Capabilities:
        """A schema is asked for in the prompt; tools too, unless the command asks for calls by itself."""
        command = self._commands.get(endpoint.name)
        tools = command is not None and command.settings.native_tools
        return Capabilities(tools=tools, response_schema=False, collects=True)

    @asynccontextmanager
    async def open(self, opening: Opening) -> AsyncIterator[AsyncIterator[Sequence[Chunk]]]:
        """Run the command, and give what it says; see `ports.provider.Provider.open`.

        Entering waits for its first line. Leaving has its process group ended in the background: by SIGTERM,
        and by SIGKILL where that does not help.
        """
        command = self._commands.get(opening.endpoint.name)
        if command is None:
            raise ProviderError(_not_started("the operator has configured no command of this name"))
        try:
            given = given_to(command, opening)
        except (Invalid, NotJson) as error:
            fault = Fault(FaultKind.INTERNAL, f"the request cannot be made: {error}", type="bad_request")
            raise ProviderError(fault) from None
        process, reader = Process(command), OutputReader(command)
        size = AnswerSize(command.settings.max_answer_bytes)
        try:
            _start(process, given, opening.endpoint.name)
            self._watchdog.watch(process.group)
            await process.connect(given)
            first = await _first(process, reader, size)
            async with aclosing(_answer(process, reader, size, first)) as answer:
                yield answer
        finally:
            if process.group:
                ending = asyncio.create_task(self._end(process, AFTERWORK_S if reader.complete else 0.0))
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)

    async def _end(self, process: Process, by_itself_s: float) -> None:
        try:
            await process.end(by_itself_s=by_itself_s)
        finally:
            self._watchdog.forget(process.group)


def _start(process: Process, given: Given, name: str) -> None:
    try:
        process.start(given)
    except (OSError, ValueError, RuntimeError) as error:  # the last one for want of a thread
        log.warning("command not started", model=name, error=str(error))
        why = error.strerror if isinstance(error, OSError) else None
        raise ProviderError(_not_started(why or "its arguments cannot be passed on")) from None


async def _first(process: Process, reader: OutputReader, size: AnswerSize) -> list[Chunk]:
    """Read until the command has said something; raise where that is an error."""
    chunks: list[Chunk] = []
    while not reader.is_answer and not reader.over:
        chunks = await _next(process, reader, size)
    if reader.fault is not None and not reader.is_answer:
        raise ProviderError(reader.fault)
    return chunks


async def _answer(
    process: Process, reader: OutputReader, size: AnswerSize, first: list[Chunk]
) -> AsyncGenerator[Sequence[Chunk], None]:
    if first:
        yield first
    while not reader.over:
        if chunks := await _next(process, reader, size):
            yield chunks
    if reader.fault is not None:
        raise ProviderError(reader.fault)


async def _next(process: Process, reader: OutputReader, size: AnswerSize) -> list[Chunk]:
    if piece := await process.read():
        return reader.feed(size.counted(piece))
    chunks = reader.finish()
    if not reader.complete and reader.fault is None:
        reader.fault = _early_end(await process.exit(), process.complaints(), reader.complaint)
    return chunks


def _early_end(status: int | None, errors: str, complaint: Fault | None) -> Fault | None:
    """What it means that the output is over without an end; None for an answer that was cut there."""
    detail = {"stderr": errors} if errors else {}
    if complaint is not None:
        return replace(complaint, detail={**complaint.detail, **detail})
    if not status:
        return None
    if status < 0:
        number = str(-status)
        with contextlib.suppress(ValueError):
            number = signal.Signals(-status).name
        message = f"the command was ended by {number}"
        return Fault(FaultKind.NETWORK, message, type="killed", provider_code=number, detail=detail)
    last = errors.rpartition("\n")[2][:LAST_WORDS_CHARS]
    message = f"the command failed with exit status {status}" + (f": {last}" if last else "")
    return Fault(FaultKind.IN_STREAM, message, type="exit_status", provider_code=status, detail=detail)


def _not_started(why: str) -> Fault:
    return Fault(FaultKind.INTERNAL, f"the command cannot be started: {why}", type="not_started")
