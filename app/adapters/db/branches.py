"""`ports.catalog.Branches` in Postgres.

Whoever changes a branch or its messages locks the branch row first, as accepting and ending a run do: so a
change never slips between a run's preparation and its acceptance unseen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.adapters.db import conversation, purging, replies
from app.adapters.db.audit import Audit
from app.adapters.db.holds import keep_sweep_away, refuse_held
from app.adapters.db.paging import page_of, sliced
from app.adapters.db.session import Database
from app.adapters.db.tables import branches, events, runs, token_blocks
from app.core.errors import BranchBusy, NotFound, PreconditionFailed
from app.core.governance.governance import POLICIES
from app.core.messages import MessageKind
from app.core.metadata import merged_metadata
from app.ports.ambient import IdSource
from app.ports.catalog import Branch, BranchFilter, ForkPoint, NewBranch, Once, Page, SaidMessage, Slice
from app.ports.storage import StoredMessage

_LIVE = ("queued", "running", "waiting")


class PostgresBranches:
    """See the port."""

    def __init__(self, database: Database, ids: IdSource) -> None:
        self._database = database
        self._ids = ids
        self._audit = Audit[Branch](ids, "branch", name_of=lambda branch: branch.id, state_of=_state)
        self._forks = Audit[Branch](ids, "branch", name_of=lambda branch: branch.id, state_of=_lineage)

    async def create(
        self, project_id: UUID, new: NewBranch, once: Once | None = None, *, by: UUID | None = None
    ) -> Branch:
        """See the port."""
        async with self._database.writing() as connection:
            await replies.claim(connection, project_id, once)
            made = await self._insert(
                connection,
                project_id,
                {
                    "name": new.name,
                    "system": new.system,
                    "chat_model": new.chat_model,
                    "parse_model": new.parse_model,
                    "tools": new.tools,
                    "lifecycle": _or_null(new.lifecycle),
                    **{name: _or_null(getattr(new, name)) for name in POLICIES},
                    "metadata": dict(new.metadata),
                    "next_position": 0 if new.system is None else 1,
                },
            )
            if new.system is not None:
                await conversation.set_system(connection, self._ids.new(), made, new.system, position=0)
            await self._note(connection, None, made, by)
            await replies.keep(connection, project_id, once, made)
        return made

    async def _insert(
        self, connection: AsyncConnection, project_id: UUID, values: Mapping[str, Any]
    ) -> Branch:
        statement = sa.insert(branches).values(id=self._ids.new(), project_id=project_id, **values)
        return _branch((await connection.execute(statement.returning(branches))).one())

    async def page(self, project_id: UUID, which: BranchFilter, part: Slice) -> Page[Branch]:
        """See the port."""
        query = sa.select(branches).where(branches.c.project_id == project_id, *_conditions(which))
        async with self._database.reading() as connection:
            rows = (await connection.execute(sliced(query, branches.c.id, part))).all()
        return page_of([_branch(row) for row in rows], part)

    async def get(self, project_id: UUID, branch_id: UUID) -> Branch:
        """See the port."""
        async with self._database.reading() as connection:
            return _branch(await _row(connection, project_id, branch_id))

    async def change(
        self,
        project_id: UUID,
        branch_id: UUID,
        changes: Mapping[str, Any],
        *,
        if_match: int | None,
        by: UUID | None = None,
    ) -> Branch:
        """See the port."""
        async with self._database.writing() as connection:
            if "legal_hold" in changes:
                await keep_sweep_away(connection)
            row = await _locked(connection, project_id, branch_id, if_match)
            if not changes:
                return _branch(row)
            values = dict(changes)
            for name in ("lifecycle", *POLICIES):
                if name in values:
                    values[name] = _or_null(values[name])
            if "metadata" in values:
                values["metadata"] = merged_metadata(row.metadata, values["metadata"])
            if "system" in values:
                await _refuse_to_replace(connection, row)
                values["next_position"] = await conversation.change_system(
                    connection, self._ids.new(), _branch(row), row.next_position, values["system"]
                )
            made = _branch(await _update(connection, branch_id, values))
            await self._note(connection, _branch(row), made, by)
        return made

    async def delete(self, project_id: UUID, branch_id: UUID, *, if_match: int | None) -> None:
        """See the port."""
        async with self._database.writing() as connection:
            row = await _locked(connection, project_id, branch_id, if_match)
            await refuse_held(connection, row)
            await _refuse_busy(connection, branch_id)
            await purging.forget_answers(connection, row)
            # Nothing points at the log, so nothing cascades to it.
            ours = sa.select(runs.c.id).where(runs.c.branch_id == branch_id)
            for log in (events, token_blocks):
                await connection.execute(sa.delete(log).where(log.c.run_id.in_(ours)))
            await connection.execute(sa.delete(branches).where(branches.c.id == branch_id))

    async def purge(
        self, project_id: UUID, branch_id: UUID, *, by: UUID | None, once: Once | None = None
    ) -> Branch:
        """See the port."""
        async with self._database.writing() as connection:
            await replies.claim(connection, project_id, once)
            row = await _locked(connection, project_id, branch_id, None)
            await refuse_held(connection, row)
            await _refuse_busy(connection, branch_id)
            await purging.empty(connection, row)
            made = _branch(await _update(connection, branch_id, {}))
            await self._audit.note(connection, "purge", project_id, _branch(row), made, by=by)
            await replies.keep(connection, project_id, once, made)
        return made

    async def forget_purged(self) -> int:
        """See the port."""
        async with self._database.writing() as connection:
            return await purging.forget_purged(connection)

    async def fork(
        self,
        project_id: UUID,
        branch_id: UUID,
        *,
        at_message: UUID | None,
        name: str | None,
        once: Once | None = None,
        by: UUID | None = None,
    ) -> Branch:
        """See the port."""
        async with self._database.writing() as connection:
            await replies.claim(connection, project_id, once)
            parent = await _row(connection, project_id, branch_id, lock="share")
            kept = await conversation.up_to(connection, branch_id, at_message)
            made = await self._forked(connection, parent, kept, name, by)
            await replies.keep(connection, project_id, once, made)
        return made

    async def fork_run(
        self,
        project_id: UUID,
        point: ForkPoint,
        *,
        name: str | None,
        once: Once | None = None,
        by: UUID | None = None,
    ) -> Branch:
        """See the port."""
        async with self._database.writing() as connection:
            await replies.claim(connection, project_id, once)
            parent = await _row(connection, project_id, point.branch_id, lock="share")
            kept = await conversation.at_moment(connection, point)
            of_run = {"forked_run_id": point.run_id, "forked_seq": point.seq}
            made = await self._forked(connection, parent, kept, name, by, **of_run)
            await self._forks.note(connection, "fork", project_id, None, made, by=by)
            await replies.keep(connection, project_id, once, made)
        return made

    async def _forked(
        self,
        connection: AsyncConnection,
        parent: Any,
        kept: Sequence[StoredMessage],
        name: str | None,
        by: UUID | None,
        **lineage: Any,
    ) -> Branch:
        """A branch like the parent, with these of its messages."""
        made = await self._insert(
            connection,
            parent.project_id,
            {
                "name": parent.name if name is None else name,
                "system": parent.system,
                "chat_model": parent.chat_model,
                "parse_model": parent.parse_model,
                "tools": parent.tools,
                "lifecycle": _or_null(parent.lifecycle),
                **{column: _or_null(getattr(parent, column)) for column in POLICIES},
                "metadata": parent.metadata,
                "next_position": max((m.position for m in kept), default=-1) + 1,
                "parent_id": parent.id,
                "forked_at": kept[-1].id if kept else None,
                **lineage,
            },
        )
        await conversation.copy(connection, kept, parent.id, made, self._ids)
        await self._note(connection, None, made, by)
        return made

    async def _note(
        self, connection: AsyncConnection, before: Branch | None, after: Branch, by: UUID | None
    ) -> None:
        """Into the audit log, if it is about governance."""
        was = dict.fromkeys(POLICIES) if before is None else _state(before)
        if _state(after) != was:
            await self._audit.note(connection, "govern", after.project_id, before, after, by=by)

    async def append(
        self, project_id: UUID, branch_id: UUID, said: Sequence[SaidMessage], once: Once | None = None
    ) -> Sequence[StoredMessage]:
        """See the port."""
        async with self._database.writing() as connection:
            await replies.claim(connection, project_id, once)
            row = await _locked(connection, project_id, branch_id, None)
            await _refuse_busy(connection, branch_id)
            if any(one.kind == MessageKind.SYSTEM for one in said):
                await _refuse_to_replace(connection, row)
            made, values = await conversation.append(
                connection, self._ids, _branch(row), row.next_position, said
            )
            await _update(connection, branch_id, values)
            await replies.keep(connection, project_id, once, made)
        return made

    async def messages(
        self, project_id: UUID, branch_id: UUID, part: Slice, *, superseded: bool = False
    ) -> Page[StoredMessage]:
        """See the port."""
        async with self._database.reading() as connection:
            await _row(connection, project_id, branch_id)
            found = await conversation.read(connection, branch_id, part, superseded=superseded)
            return page_of(found, part)


def _branch(row: Any) -> Branch:
    values = row._mapping
    return Branch(**{name: values[name] for name in Branch.__slots__})


def _state(branch: Branch) -> dict[str, Any]:
    """What the audit log tells of it."""
    held = {"legal_hold": True} if branch.legal_hold else {}
    return {name: getattr(branch, name) for name in POLICIES} | held


def _lineage(branch: Branch) -> dict[str, Any]:
    """What the audit log tells of a fork of a run."""
    return {"forked_run_id": str(branch.forked_run_id), "forked_seq": branch.forked_seq}


def _or_null(value: Any) -> Any:
    """SQL's NULL instead of JSON's."""
    return sa.null() if value is None else value


async def _row(
    connection: AsyncConnection,
    project_id: UUID,
    branch_id: UUID,
    *,
    lock: Literal["share", "no key update"] | None = None,
) -> Any:
    query = sa.select(branches).where(branches.c.id == branch_id, branches.c.project_id == project_id)
    if lock is not None:
        query = query.with_for_update(read=lock == "share", key_share=lock == "no key update")
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise NotFound("There is no such branch in this project.")
    return row


async def _locked(
    connection: AsyncConnection, project_id: UUID, branch_id: UUID, if_match: int | None
) -> Any:
    row = await _row(connection, project_id, branch_id, lock="no key update")
    if if_match is not None and row.version != if_match:
        raise PreconditionFailed(
            f"The branch is at version {row.version}, and If-Match names another; read it again."
        )
    return row


async def _update(connection: AsyncConnection, branch_id: UUID, values: Mapping[str, Any]) -> Any:
    changed = (
        sa.update(branches)
        .where(branches.c.id == branch_id)
        .values(**values, version=branches.c.version + 1, updated_at=sa.func.now())
        .returning(branches)
    )
    return (await connection.execute(changed)).one()


async def _refuse_busy(connection: AsyncConnection, branch_id: UUID) -> None:
    live = sa.select(sa.literal(1)).where(runs.c.branch_id == branch_id, runs.c.status.in_(_LIVE)).limit(1)
    if (await connection.execute(live)).first():
        raise BranchBusy("A run is active or queued on this branch; wait for its end, or cancel it.")


async def _refuse_to_replace(connection: AsyncConnection, row: Any) -> None:
    """A system text is the one message that another takes the place of."""
    if row.system is not None:
        await refuse_held(connection, row)


def _conditions(which: BranchFilter) -> list[sa.ColumnElement[bool]]:
    columns = branches.c
    found: list[sa.ColumnElement[bool]] = []
    if which.name is not None:
        found.append(columns.name == which.name)
    if which.created_after is not None:
        found.append(columns.created_at > which.created_after)
    if which.created_before is not None:
        found.append(columns.created_at < which.created_before)
    if which.metadata:
        found.append(columns.metadata.contains(dict(which.metadata)))
    found += [columns.metadata[name].astext == text for name, text in which.metadata_texts.items()]
    return found
