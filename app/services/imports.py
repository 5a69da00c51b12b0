"""Take in histories that were exported, section by section: a section is stored whole, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Final
from uuid import UUID

from pydantic import ValidationError

from app.core.access import Principal, Scope
from app.core.errors import AppError, FieldError, Invalid
from app.core.json_text import NotJson, pointer, read
from app.core.record import Entry
from app.core.transfer.checking import Broken, SectionCheck
from app.core.transfer.lines import (
    KINDS,
    BranchLine,
    CallLine,
    EndLine,
    ExportEndLine,
    HeaderLine,
    Line,
    MessageLine,
    OmittedLine,
    RunLine,
)
from app.ports.ambient import Clock
from app.ports.transfer import IdTaken, ImportWriter, SectionWriter

MAX_DEPTH: Final = 1_000
"""Levels of JSON in a line; what was stored was held to its own limits when it came."""
BATCH: Final = 500
"""Lines that are written together."""
BATCH_BYTES: Final = 4 * 1024 * 1024
BREATH_BYTES: Final = 64 * 1024
"""After so many bytes others have their turn."""
CheckBranch = Callable[[BranchLine], None]
"""Raises Invalid for settings that no client could give a branch."""


class ImportRefused(Invalid):
    """A line of the export cannot be taken; sections before it are stored, its own is not."""

    code = "import_refused"


@dataclass(slots=True)
class Imported:
    """What an import came to."""

    branches: int = 0
    runs: int = 0
    messages: int = 0
    function_calls: int = 0
    events: int = 0
    skipped: list[UUID] = field(default_factory=list)
    """Branches, and runs without one, that the project had already."""


@dataclass(slots=True)
class Imports:
    """Imports into the project of whoever asks."""

    writer: ImportWriter
    clock: Clock

    async def take(self, who: Principal, lines: Iterator[bytes], check_branch: CheckBranch) -> Imported:
        """Store the sections of an export, in order, those left out that are there already.

        Raises Forbidden, and ImportRefused with the number of the line at fault and what was stored before.
        """
        who.need(Scope.ADMIN)
        source = _Source(lines)
        done = Imported()
        try:
            await self._take(who, source, done, check_branch)
        except (Broken, Invalid, IdTaken) as fault:
            raise _refusal(fault, source.number, done) from fault
        return done

    async def _take(self, who: Principal, source: _Source, done: Imported, check_branch: CheckBranch) -> None:
        if not isinstance(source.next(), HeaderLine):
            raise Broken("an export begins with its header", "object")
        sections = 0
        while not isinstance(line := source.next(), ExportEndLine):
            if isinstance(line, OmittedLine):
                continue
            if not isinstance(line, BranchLine | RunLine):
                raise Broken("a section begins with a branch, or with a run that has none", "object")
            if isinstance(line, BranchLine):
                check_branch(line)
            async with self.writer.section(who.project_id, by=who.key_id) as writer:
                found = await self._section(line, source, writer)
            _add(done, found)
            sections += 1
        if line.sections != sections:
            raise Broken(f"there are {sections} sections, not {line.sections}: some are missing", "sections")

    async def _section(self, first: BranchLine | RunLine, source: _Source, writer: SectionWriter) -> Imported:
        check = SectionCheck(first, now_ms=self.clock.wall_ms())
        check.take(first)
        new = await writer.begin(first)
        found = Imported()
        _count(found, first)
        since = 0
        rows = _Rows(writer if new else None, first.id if isinstance(first, RunLine) else None)
        while not isinstance(line := source.next(), EndLine):
            entry = check.take(line)
            _count(found, line, entry)
            await rows.add(line, entry, source.size)
            since += source.size
            if since > BREATH_BYTES:
                since = 0
                await asyncio.sleep(0)  # reading takes time that others wait for
        check.end(line)
        await rows.flush()
        return found if new else Imported(skipped=[first.id])


class _Source:
    """Lines, read one by one."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self.number = 0
        """Of the line that was read last, counted from 1."""
        self.size = 0
        """Bytes of it."""

    def next(self) -> Line:
        """The next line. Raises Broken."""
        self.number += 1
        raw = next(self._lines, None)
        if raw is None:
            raise Broken("the export is cut off: its last line is missing")
        self.size = len(raw)
        try:
            value = read(raw, max_depth=MAX_DEPTH)
        except NotJson as error:
            raise Broken(str(error)) from None
        named = value.get("object") if isinstance(value, dict) else None
        kind = KINDS.get(named) if isinstance(named, str) else None
        if kind is None:
            raise Broken(f"`object` is one of {', '.join(KINDS)}", "object")
        try:
            return kind.model_validate(value)
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
            raise Broken(fault["msg"], "/".join(map(str, fault["loc"]))) from None


class _Rows:
    """Gathers consecutive lines of one kind, to be written together."""

    def __init__(self, writer: SectionWriter | None, run_id: UUID | None) -> None:
        """Without a writer nothing is written."""
        self._writer = writer
        self._run_id = run_id
        self._lines: list[Line] = []
        self._entries: list[Entry] = []
        self._bytes = 0

    async def add(self, line: Line, entry: Entry | None, size: int) -> None:
        """One line more, the entry that it is, if it is one, and how many bytes it has."""
        gathered = self._entries if entry is not None else self._lines
        if not gathered or len(gathered) >= BATCH or self._bytes + size > BATCH_BYTES:
            await self.flush()
        if isinstance(line, RunLine) or (self._lines and type(line) is not type(self._lines[-1])):
            await self.flush()
        if isinstance(line, RunLine):
            self._run_id = line.id
        self._bytes += size
        if entry is not None:
            self._entries.append(entry)
        else:
            self._lines.append(line)

    async def flush(self) -> None:
        """Write what there is."""
        lines, self._lines = self._lines, []
        entries, self._entries = self._entries, []
        self._bytes = 0
        if self._writer is None:
            return
        if entries:
            assert self._run_id is not None
            await self._writer.entries(self._run_id, entries)
        elif lines:
            await self._writer.rows(lines, run_id=self._run_id)


_COUNTED: Final[Mapping[type[Line], str]] = {
    BranchLine: "branches",
    RunLine: "runs",
    MessageLine: "messages",
    CallLine: "function_calls",
}


def _count(found: Imported, line: Line, entry: Entry | None = None) -> None:
    if entry is not None:
        found.events += entry.last_seq - entry.seq + 1
    if name := _COUNTED.get(type(line)):
        setattr(found, name, getattr(found, name) + 1)


def _add(done: Imported, found: Imported) -> None:
    for name, value in asdict(found).items():
        setattr(done, name, getattr(done, name) + value)


def _refusal(fault: Broken | AppError, number: int, done: Imported) -> AppError:
    """Says which line it is, and that what came before is in."""
    words, where = (fault.words, fault.member) if isinstance(fault, Broken) else (fault.detail, None)
    detail = (
        f"Line {number} of the export cannot be taken: {words.rstrip('.')}. What was stored before its "
        "section stays; mend the line and send the export again: what is there already is skipped."
    )
    at = pointer(number) if where is None else f"{pointer(number)}/{where}"
    errors = [FieldError(at, words), *(fault.errors if isinstance(fault, AppError) else ())]
    kind = IdTaken if isinstance(fault, IdTaken) else ImportRefused
    return kind(detail, errors=errors, extra={"line": number, "imported": asdict(done)})
