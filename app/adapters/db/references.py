"""What in a project refers to a credential by its name, and what keeps it there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.adapters.db.tables import credentials
from app.core.credentials import REFERENCE
from app.core.errors import UnknownCredential
from app.core.header_values import credentials_in
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


async def hold_credentials(
    connection: AsyncConnection, project_id: UUID, settings: Mapping[str, Any], *also: str | None
) -> None:
    """Keep what settings name from being removed before the transaction ends, and so until they are stored.

    That is, what their headers and their signing name, and what is given `also`. Raises UnknownCredential for
    one that was removed since it was looked for.
    """
    names = {name for name in (*also, *_named_in(settings)) if name is not None}
    if not names:
        return
    ours = sa.and_(credentials.c.project_id == project_id, credentials.c.name.in_(names))
    held = sa.select(credentials.c.name).where(ours).order_by(credentials.c.name)
    found = set(await connection.scalars(held.with_for_update(read=True, key_share=True)))
    if gone := sorted(names - found):
        raise UnknownCredential(f"The credential {gone[0]!r} was removed at this moment; store it again.")


def _named_in(settings: Mapping[str, Any]) -> set[str | None]:
    headers, signing = settings.get("headers"), settings.get("signing")
    texts = headers.items() if isinstance(headers, Mapping) else ()
    named = credentials_in({name: value for name, value in texts if isinstance(value, str)})
    return {*named.values(), signing.get("credential") if isinstance(signing, Mapping) else None}
