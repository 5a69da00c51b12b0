"""What runs need to know of their branches, many in one go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import asyncpg
from pydantic_core import from_json

from app.adapters.db.columns import transposed
from app.adapters.db.histories import Histories, Place, Said, Wanted
from app.core.errors import NotFound
from app.core.governance.governance import POLICIES, StoredGovernance, StoredPolicies
from app.core.operate.history import History, RawMessage
from app.ports.storage import BranchState

_PROJECT: Final = """p.lifecycle AS project_lifecycle, p.name AS project_name, p.gate AS project_gate,
       p.permissions AS project_permissions, p.hooks AS project_hooks, p.self_approval"""

# One statement, so that branch and conversation are of one moment.
_BRANCHES: Final = f"""
SELECT b.id, b.project_id, b.system, b.chat_model, b.parse_model, b.tools, b.lifecycle, b.version,
       b.next_position, b.name, b.metadata, b.gate, b.permissions, b.hooks, {_PROJECT},
       m.ids, m.positions, m.writers, m.kinds, m.contents
FROM unnest($1::uuid[], $2::int[]) AS w (branch_id, last)
JOIN branches b ON b.id = w.branch_id JOIN projects p ON p.id = b.project_id
CROSS JOIN LATERAL (
    SELECT array_agg(id) AS ids, array_agg(position) AS positions, array_agg(xmin) AS writers,
           array_agg(kind) AS kinds, array_agg(content::text) AS contents
    FROM (SELECT id, position, xmin, kind, content FROM messages
          WHERE branch_id = b.id AND position >= w.last AND kind <> 'system' AND NOT superseded
          ORDER BY position) AS said
) AS m"""

_NO_BRANCH: Final = f"SELECT {_PROJECT} FROM projects p WHERE p.id = $1"

_PLAIN: Final = (
    *("id", "project_id", "system", "chat_model", "parse_model", "tools", "lifecycle"),
    *("project_lifecycle", "version", "next_position"),
)
_JSON: Final = (
    *("tools", "lifecycle", "project_lifecycle", "metadata", *POLICIES),
    *(f"project_{name}" for name in POLICIES),
)


class Key(NamedTuple):
    """A branch that is asked about."""

    project_id: UUID
    branch_id: UUID
    conversation: bool
    """Whether its conversation is of interest too."""


async def states_of(
    connection: asyncpg.Connection[Any], histories: Histories, keys: Sequence[Key]
) -> list[BranchState | BaseException]:
    """What is asked for, NotFound in the place of a branch that the project does not have."""
    read = {key.branch_id for key in keys if key.conversation}
    beside = {key.branch_id for key in keys} - read
    found, said = await read_branches(connection, histories, list(read), beside=list(beside))
    out: list[BranchState | BaseException] = []
    for project_id, branch_id, conversation in keys:
        row = found.get(branch_id)
        if row is None or row["project_id"] != project_id:
            out.append(NotFound("There is no such branch in this project."))
            continue
        values = _read(row)
        plain = {name: values[name] for name in _PLAIN}
        history = said[branch_id] if conversation else None
        out.append(BranchState(**plain, conversation=history, governance=_governance(values)))
    return out


async def read_branches(
    connection: asyncpg.Connection[Any],
    histories: Histories,
    ids: Sequence[UUID],
    *,
    beside: Sequence[UUID] = (),
) -> tuple[Mapping[UUID, Any], Mapping[UUID, History]]:
    """The rows of those branches that there are, and their conversations; those `beside` without theirs."""
    found: dict[UUID, Any] = {}

    async def read(wanted: Sequence[Wanted]) -> Mapping[UUID, Said]:
        asked = [*wanted, *(Wanted(branch_id, None) for branch_id in beside)]
        rows = await connection.fetch(_BRANCHES, *transposed(asked))
        found.update((row["id"], row) for row in rows)
        return {row["id"]: _said(row) for row in rows}

    said = await histories.read(read, ids)
    return found, said


def _said(row: Any) -> Said:
    if row["ids"] is None:
        return []
    contents = (content.encode() for content in row["contents"])
    places = map(Place, row["positions"], row["writers"])
    return list(zip(places, map(RawMessage, row["ids"], row["kinds"], contents), strict=True))


async def state_without_branch(connection: asyncpg.Connection[Any], project_id: UUID) -> BranchState:
    """What only the project says."""
    row = await connection.fetchrow(_NO_BRANCH, project_id)
    values = {} if row is None else _read(row)
    return BranchState(
        id=None,
        project_id=project_id,
        system=None,
        chat_model=None,
        parse_model=None,
        tools=False,
        lifecycle=None,
        project_lifecycle=values.get("project_lifecycle"),
        version=0,
        next_position=0,
        conversation=History(),
        governance=_governance(values),
    )


def _read(row: Any) -> dict[str, Any]:
    values = dict(row)
    for name in _JSON:
        if values.get(name) is not None:
            values[name] = from_json(values[name])
    return values


def _governance(values: Mapping[str, Any]) -> StoredGovernance:
    return StoredGovernance(
        project_name=values.get("project_name", ""),
        project=StoredPolicies(*(values.get(f"project_{name}") for name in POLICIES)),
        branch_name=values.get("name"),
        branch_metadata=values.get("metadata", {}),
        branch=StoredPolicies(*(values.get(name) for name in POLICIES)),
        self_approval=values.get("self_approval", False),
    )
