"""What in a project refers to a credential by its name."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.credentials import REFERENCE
from app.core.json_text import dumps

_PATH: Final = "strict $.** ? (@ == $reference || @.credential == $name)"
"""A text that is a reference, or an object whose member `credential` is the name, at any depth."""


def _refers(column: str) -> str:
    return f"jsonb_path_exists({column}::jsonb, CAST(:path AS jsonpath), CAST(:named AS jsonb))"


_POLICIES: Final = f"({_refers('gate')} OR {_refers('hooks')})"

_FIND: Final = sa.text(
    f"""
    SELECT what FROM (
        SELECT 1 AS nth, 'model ' || name AS what FROM models
        WHERE project_id = :project AND (credential = :name OR {_refers("options")})
        UNION ALL
        SELECT 2, 'tool ' || name FROM tools WHERE project_id = :project AND {_refers("settings")}
        UNION ALL
        SELECT 3, 'MCP server ' || name FROM mcp_servers WHERE project_id = :project AND {_refers("settings")}
        UNION ALL
        SELECT 4, 'the project' FROM projects WHERE id = :project AND {_POLICIES}
        UNION ALL
        SELECT 5, 'branch ' || id FROM branches WHERE project_id = :project AND {_POLICIES}
    ) AS found ORDER BY nth, what LIMIT :most
    """
)


async def referring_to(connection: AsyncConnection, project_id: UUID, name: str, *, most: int) -> list[str]:
    """At most `most` of those that do, as words."""
    named = dumps({"name": name, "reference": REFERENCE + name}).decode()
    values = {"project": project_id, "name": name, "path": _PATH, "named": named, "most": most}
    return list((await connection.scalars(_FIND, values)).all())
