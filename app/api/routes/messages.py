"""The conversation of a branch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from app.api.bodies import json_body
from app.api.deps import Reader, Runner, Serving
from app.api.documented import answers
from app.api.once import AskedOnce
from app.api.paging import PageQuery, Places, paged
from app.api.replies import reply
from app.api.schemas.messages import AppendMessages, MessageList, MessagePage, message_view
from app.core.errors import BranchBusy, InvalidCursor, LegalHold, NotFound, UnsupportedOption
from app.ports.storage import StoredMessage

router = APIRouter(prefix="/v1/branches/{branch_id}/messages", tags=["branches"])


class MessagesQuery(PageQuery):
    """Which messages are listed."""

    superseded: bool = Field(False, description="Lists also what runs said that were rolled back.")


@router.get("", responses=answers(200, MessagePage, NotFound, InvalidCursor))
async def list_messages(
    branch_id: UUID,
    request: Request,
    who: Reader,
    services: Serving,
    query: Annotated[MessagesQuery, Query()],
) -> Response:
    """Read the conversation, oldest first."""
    places = Places(branch_id)
    part = query.part(places.read, newest_first=False)
    page = await services.branches.messages(who, branch_id, part, superseded=query.superseded)
    return paged(request, page, message_view, lambda message: places.at(message.position))


@router.post(
    "",
    status_code=201,
    responses=answers(201, MessageList, NotFound, BranchBusy, LegalHold, UnsupportedOption),
)
async def append_messages(
    branch_id: UUID,
    who: Runner,
    services: Serving,
    asked: AskedOnce,
    body: Annotated[AppendMessages, json_body(AppendMessages)],
) -> Response:
    """Append messages without running anything; a system message replaces the branch's system text."""
    said = await services.branches.append(
        who, branch_id, body.said(branch_id), await asked.once(who, 201, _message_list)
    )
    return reply(_message_list(said), 201)


def _message_list(said: Sequence[StoredMessage]) -> dict[str, Any]:
    return {"data": [message_view(message) for message in said]}
