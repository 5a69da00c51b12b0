"""The messages of a branch, for whoever holds the lock on its row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from pydantic_core import from_json
from sqlalchemy.ext.asyncio import AsyncConnection

from app.adapters.db.paging import sliced
from app.adapters.db.tables import function_calls, messages
from app.core.errors import Conflict, FieldError, Invalid
from app.core.json_text import dumps
from app.core.messages import MessageKind, SystemContent
from app.ports.ambient import IdSource
from app.ports.catalog import Branch, ForkPoint, SaidMessage, Slice
from app.ports.storage import StoredMessage

BEFORE_ALL = -1
"""Position of a system message that comes when position 0 is taken."""

_SPOKEN = (MessageKind.INSTRUCTION, MessageKind.ASSISTANT_RESPONSE)

# Content is text on both ways: parsed and written again, it might not keep its digits.
_AS_WRITTEN = sa.cast(sa.bindparam("text", type_=sa.Text), sa.JSON)

_answer = messages.alias("answer")

_STORED = sa.select(
    messages.c.id,
    messages.c.branch_id,
    messages.c.position,
    messages.c.kind,
    messages.c.sender,
    messages.c.recipient,
    sa.cast(messages.c.content, sa.Text).label("content"),
    messages.c.run_id,
    messages.c.action_request_id,
    _answer.c.id.label("action_response_id"),
    messages.c.created_at,
    messages.c.superseded,
).select_from(messages.outerjoin(_answer, _answer.c.action_request_id == messages.c.id))

_COUNTS = ~messages.c.superseded


async def read(
    connection: AsyncConnection, branch_id: UUID, part: Slice, *, superseded: bool
) -> list[StoredMessage]:
    """A stretch of the conversation, one message more than asked for if there is one."""
    query = _STORED.where(messages.c.branch_id == branch_id)
    if not superseded:
        query = query.where(_COUNTS)
    query = sliced(query, messages.c.position, part)
    return [StoredMessage(**row._mapping) for row in await connection.execute(query)]


async def set_system(
    connection: AsyncConnection, new_id: UUID, branch: Branch, text: str, *, position: int
) -> None:
    """Give the branch, which has none, its system message."""
    said = SaidMessage(MessageKind.SYSTEM, _system(text), "system", str(branch.id))
    await _insert(connection, branch, [(new_id, position, said)])


async def change_system(
    connection: AsyncConnection, new_id: UUID, branch: Branch, next_position: int, text: str | None
) -> int:
    """Bring the system message in step with a new text, or remove it; returns the branch's next position."""
    ours = sa.and_(messages.c.branch_id == branch.id, messages.c.kind == MessageKind.SYSTEM)
    if text is None:
        await connection.execute(sa.delete(messages).where(ours))
        return next_position
    content = sa.cast(sa.literal(_system(text), sa.Text), sa.JSON)
    changed = await connection.execute(sa.update(messages).where(ours).values(content=content))
    if changed.rowcount:
        return next_position
    # The first place if nobody has spoken yet; else a place before the first, so that nothing is renumbered.
    position = 0 if next_position == 0 else BEFORE_ALL
    await set_system(connection, new_id, branch, text, position=position)
    return max(next_position, position + 1)


async def append(
    connection: AsyncConnection,
    ids: IdSource,
    branch: Branch,
    next_position: int,
    said: Sequence[SaidMessage],
) -> tuple[list[StoredMessage], Mapping[str, Any]]:
    """Add messages; returns them as stored, in order, and what changes on the branch's row."""
    values: dict[str, Any] = {}
    order: list[UUID | None] = []
    rows: list[tuple[UUID, int, SaidMessage]] = []
    for one in said:
        if one.kind == MessageKind.SYSTEM:
            values["system"] = from_json(one.content)["text"]
            next_position = await change_system(
                connection, ids.new(), branch, next_position, values["system"]
            )
            order.append(None)
        else:
            rows.append((ids.new(), next_position, one))
            order.append(rows[-1][0])
            next_position += 1
    await _insert(connection, branch, rows)
    ours = sa.or_(
        messages.c.id.in_([row[0] for row in rows]),
        sa.and_(messages.c.branch_id == branch.id, messages.c.kind == MessageKind.SYSTEM),
    )
    stored = [StoredMessage(**row._mapping) for row in await connection.execute(_STORED.where(ours))]
    found = {None if m.kind == MessageKind.SYSTEM else m.id: m for m in stored}
    return [found[key] for key in order], {**values, "next_position": next_position}


async def up_to(connection: AsyncConnection, branch_id: UUID, at_message: UUID | None) -> list[StoredMessage]:
    """The conversation up to and including a message, without action requests whose response comes later.

    Raises Invalid when the message is not of this branch.
    """
    query = _STORED.where(messages.c.branch_id == branch_id, _COUNTS).order_by(messages.c.position)
    if at_message is not None:
        cut = sa.select(messages.c.position).where(
            messages.c.branch_id == branch_id, messages.c.id == at_message, _COUNTS
        )
        query = query.where(messages.c.position <= cut.scalar_subquery())
    found = [StoredMessage(**row._mapping) for row in await connection.execute(query)]
    if at_message is not None and not found:
        words = "there is no such message in this branch's conversation"
        raise Invalid(
            f"The branch cannot be forked: {words}.",
            errors=[FieldError("/at_message", words, "unknown_message")],
        )
    return _whole(found)


async def at_moment(connection: AsyncConnection, point: ForkPoint) -> list[StoredMessage]:
    """The conversation as it was after an event of a run, each pair of an action whole or not at all.

    Raises Conflict where nothing tells where the run begins.
    """
    of_branch = messages.c.branch_id == point.branch_id
    of_run = sa.and_(of_branch, messages.c.run_id == point.run_id)
    position = point.position
    if position is None:
        position = await connection.scalar(sa.select(sa.func.min(messages.c.position)).where(of_run))
    if position is None:
        raise Conflict(
            "Nothing tells where in the conversation the run began: it is of an older version, and said "
            "nothing. Fork its branch at a message instead."
        )
    requests = sa.select(function_calls.c.action_request_id).where(
        function_calls.c.run_id == point.run_id, function_calls.c.call_id.in_(point.calls)
    )
    pair = sa.or_(messages.c.id.in_(requests), messages.c.action_request_id.in_(requests))
    spoken = messages.c.kind.in_(_SPOKEN) if point.answered else sa.false()
    system = messages.c.kind == MessageKind.SYSTEM
    found_there = sa.and_(messages.c.position < position, _COUNTS)
    own = sa.and_(of_run, sa.or_(spoken, pair))
    query = _STORED.where(of_branch, sa.or_(system, found_there, own)).order_by(messages.c.position)
    return _whole([StoredMessage(**row._mapping) for row in await connection.execute(query)])


def _whole(found: Sequence[StoredMessage]) -> list[StoredMessage]:
    """Without the half of an action whose other half is not among them."""
    ids = {message.id for message in found}
    others = {"action_request": "action_response_id", "action_response": "action_request_id"}
    return [m for m in found if m.kind not in others or getattr(m, others[m.kind]) in ids]


async def copy(
    connection: AsyncConnection, kept: Sequence[StoredMessage], parent: UUID, branch: Branch, ids: IdSource
) -> None:
    """Copy messages into a fork under new ids, and the links between them with them."""
    twins = {message.id: ids.new() for message in kept}
    names = {str(parent): str(branch.id)}
    rows = []
    for old in kept:
        request = old.action_request_id and twins[old.action_request_id]
        rows.append(
            {
                "id": twins[old.id],
                "project_id": branch.project_id,
                "branch_id": branch.id,
                "position": old.position,
                "kind": old.kind,
                "sender": names.get(old.sender or "", old.sender),
                "recipient": names.get(old.recipient or "", old.recipient),
                "text": _relinked(old.content, request),
                "run_id": old.run_id,
                "action_request_id": request,
                "created_at": old.created_at,
            }
        )
    if rows:
        await connection.execute(sa.insert(messages).values(content=_AS_WRITTEN), rows)


def _relinked(content: str, request: UUID | None) -> str:
    if request is None:
        return content
    return dumps({**from_json(content), "action_request_id": str(request)}).decode()


async def _insert(
    connection: AsyncConnection, branch: Branch, rows: Sequence[tuple[UUID, int, SaidMessage]]
) -> None:
    if not rows:
        return
    values = [
        {
            "id": id_,
            "project_id": branch.project_id,
            "branch_id": branch.id,
            "position": position,
            "kind": said.kind,
            "sender": said.sender,
            "recipient": said.recipient,
            "text": said.content,
        }
        for id_, position, said in rows
    ]
    await connection.execute(
        sa.insert(messages).values(content=_AS_WRITTEN, created_at=sa.func.now()), values
    )


def _system(text: str) -> str:
    return dumps(SystemContent(text).wire()).decode()
