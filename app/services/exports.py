"""Tell the history of a branch or a project as lines of JSON, a page at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal
from uuid import UUID

from app.core.access import Principal, Scope
from app.core.errors import BranchBusy, EventsGone, NotFound
from app.core.json_text import dumps
from app.core.transfer.lines import FORMAT, entry_line
from app.ports.ambient import Clock
from app.ports.storage import RunStore
from app.ports.transfer import ExportReader, Mark, Told
from app.services.projects import Projects

ROWS: Final = 100
EVENTS: Final = 500
"""Rows and events of one page at most."""
Lines = AsyncIterator[Sequence[bytes]]


@dataclass(slots=True)
class Exports:
    """Exports for admins of the project, and operators. What they give begins when it is asked for."""

    reader: ExportReader
    store: RunStore
    projects: Projects
    clock: Clock
    version: str
    """Of the service, for the header."""

    async def branch(self, who: Principal, branch_id: UUID) -> AsyncIterator[bytes]:
        """The branch as it is now. Raises Forbidden, NotFound, BranchBusy before it gives anything."""
        who.need(Scope.ADMIN)
        mark = await self.reader.mark(who.project_id, branch_id, first=True)
        await self.reader.note(who.project_id, f"branch:{branch_id}", by=who.key_id)
        return self._file("branch", branch_id, self._one(mark))

    async def project(self, who: Principal, project_id: UUID) -> AsyncIterator[bytes]:
        """All branches and runs of the project, busy branches left out. Raises Forbidden, NotFound."""
        await self.projects.get(who, project_id)
        if not who.administers(project_id):
            who.need(Scope.ADMIN, Scope.OPERATOR)
        await self.reader.note(project_id, f"project:{project_id}", by=who.key_id)
        return self._file("project", project_id, self._all(project_id))

    async def _file(
        self, of: Literal["branch", "project"], id: UUID, sections: Lines
    ) -> AsyncIterator[bytes]:
        at = datetime.fromtimestamp(self.clock.wall_ms() / 1000, UTC).isoformat()
        told = {"format": FORMAT, "version": self.version, "of": of, "id": str(id), "exported_at": at}
        yield _joined([dumps({"object": "export", **told})])
        ended = 0
        async for lines in sections:
            ended += sum(line.startswith(b'{"object":"end"') for line in lines)
            yield _joined(lines)
        yield _joined([dumps({"object": "export_end", "sections": ended})])

    async def _all(self, project_id: UUID) -> Lines:
        seen = None
        while ids := await self.reader.branches(project_id, after=seen, limit=ROWS):
            for branch_id in ids:
                try:
                    mark = await self.reader.mark(project_id, branch_id)
                except BranchBusy:
                    yield [dumps({"object": "omitted", "id": str(branch_id), "reason": "busy"})]
                except NotFound:
                    pass  # deleted since
                else:
                    async for lines in self._one(mark):
                        yield lines
            seen = ids[-1]

        async def lone(after: UUID | None) -> Sequence[Told]:
            return await self.reader.lone_runs(project_id, after=after, limit=ROWS)

        async for runs in _pages(lone):
            for run in runs:
                count = 0
                async for lines in self._run(run):
                    count += len(lines)
                    yield lines
                yield [_end(count)]

    async def _one(self, mark: Mark) -> Lines:
        yield [mark.line]
        count = 1
        position = -2
        while said := await self.reader.messages(mark, after=position, limit=ROWS):
            yield [message.line for message in said]
            count += len(said)
            position = int(said[-1].place)

        async def of_branch(after: UUID | None) -> Sequence[Told]:
            return await self.reader.runs(mark, after=after, limit=ROWS)

        async for runs in _pages(of_branch):
            for run in runs:
                async for lines in self._run(run):
                    count += len(lines)
                    yield lines
        yield [_end(count)]

    async def _run(self, run: Told) -> Lines:
        id = run.place
        assert isinstance(id, UUID)
        yield [run.line]

        async def of_run(after: UUID | None) -> Sequence[Told]:
            return await self.reader.calls(id, after=after, limit=ROWS)

        async for calls in _pages(of_run):
            yield [call.line for call in calls]
        if others := await self.reader.belongings(id):
            yield others
        seq = 0
        while seq < run.last_seq:
            entries = await self.store.page(id, after=seq, limit=EVENTS)
            if (entries[0].seq - 1 if entries else run.last_seq) != seq:
                if seq == 0:
                    return  # it is kept no longer
                raise EventsGone("The log was dropped while it was being read; export it again.")
            yield [entry_line(entry) for entry in entries]
            seq = entries[-1].last_seq


async def _pages(read: Callable[[UUID | None], Awaitable[Sequence[Told]]]) -> AsyncIterator[Sequence[Told]]:
    """Page after page."""
    seen = None
    while page := await read(seen):
        yield page
        last = page[-1].place
        assert isinstance(last, UUID)
        seen = last


def _end(count: int) -> bytes:
    return dumps({"object": "end", "lines": count})


def _joined(lines: Sequence[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)
