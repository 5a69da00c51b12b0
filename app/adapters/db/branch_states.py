"""What runs need to know of their branches, many in one go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import asyncpg
from pydantic_core import from_json

from app.adapters.db.histories import Histories
from app.core.errors import NotFound
from app.core.governance.governance import POLICIES, StoredGovernance, StoredPolicies
from app.core.operate.history import History
from app.ports.storage import BranchState

_PROJECT: Final = """p.lifecycle AS project_lifecycle, p.name AS project_name, p.gate AS project_gate,
       p.permissions AS project_permissions, p.hooks AS project_hooks, p.self_approval"""

_BRANCHES: Final = f"""
SELECT b.id, b.project_id, b.system, b.chat_model, b.parse_model, b.tools, b.lifecycle, b.version,
       b.next_position, b.name, b.metadata, b.gate, b.permissions, b.hooks, {_PROJECT}
FROM branches b JOIN projects p ON p.id = b.project_id WHERE b.id = ANY($1::uuid[])"""

_NO_BRANCH: Final = f"SELECT {_PROJECT} FROM projects p WHERE p.id = $1"

_PLAIN: Final = (
    *("id", "project_id", "system", "chat_model", "parse_model", "tools", "lifecycle"),
    *("project_lifecycle", "version", "next_position"),
)
_JSON: Final = (
    *("tools", "lifecycle", "project_lifecycle", "metadata", *POLICIES),
    *(f"project_{name}" for name in POLICIES),
)


async def states_of(
    connection: asyncpg.Connection[Any], histories: Histories, keys: Sequence[tuple[UUID, UUID]]
) -> list[BranchState | BaseException]:
    """The states of (project, branch), NotFound in the place of one that the project does not have."""
    ids = list({branch for _, branch in keys})
    # The branches first: what is said in between makes the state stale. In the other order a state would look
    # fresh that lacks it.
    rows = await connection.fetch(_BRANCHES, ids)
    said = await histories.read(connection, [row["id"] for row in rows])
    found = {row["id"]: row for row in rows}
    out: list[BranchState | BaseException] = []
    for project_id, branch_id in keys:
        row = found.get(branch_id)
        if row is None or row["project_id"] != project_id:
            out.append(NotFound("There is no such branch in this project."))
            continue
        values = _read(row)
        plain = {name: values[name] for name in _PLAIN}
        out.append(BranchState(**plain, history=said[branch_id], governance=_governance(values)))
    return out


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
        history=History(),
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
