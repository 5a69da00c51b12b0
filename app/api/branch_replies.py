"""The answer that is a branch."""

from __future__ import annotations

from starlette.responses import Response

from app.api.deps import etag
from app.api.replies import reply
from app.api.schemas.branches import branch_view
from app.ports.catalog import Branch


def branch_reply(branch: Branch, status: int = 200) -> Response:
    """A branch with its ETag, and with its address if it is new."""
    headers = {"ETag": etag(branch.version)}
    if status == 201:
        headers["Location"] = f"/v1/branches/{branch.id}"
    return reply(branch_view(branch), status, headers)
