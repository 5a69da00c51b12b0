"""Secrets that models and tools of a project refer to by name."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from starlette.responses import Response

from app.api.bodies import check_name, json_body
from app.api.deps import Admin, Reader, Serving
from app.api.documented import answers
from app.api.once import AskedOnce
from app.api.replies import reply
from app.api.schemas.catalog import whole
from app.api.schemas.credentials import (
    NAME,
    CreateCredential,
    CredentialList,
    CredentialView,
    ReplaceCredential,
    credential_view,
)
from app.core.errors import Conflict, NoSealingKey, NotFound

router = APIRouter(prefix="/v1/credentials", tags=["credentials"])


@router.get("", responses=answers(200, CredentialList))
async def list_credentials(who: Reader, services: Serving) -> Response:
    """List the project's credentials by name, without their secrets."""
    return reply(whole([credential_view(each) for each in await services.credentials.list(who)]))


@router.post("", status_code=201, responses=answers(201, CredentialView, Conflict, NoSealingKey))
async def create_credential(
    who: Admin,
    services: Serving,
    asked: AskedOnce,
    body: Annotated[CreateCredential, json_body(CreateCredential)],
) -> Response:
    """Store a credential; its secret is never shown again."""
    once = await asked.once(who, 201, credential_view)
    made = await services.credentials.create(who, body.new(body.name), once)
    return reply(credential_view(made), 201, {"Location": f"/v1/credentials/{made.name}"})


@router.get("/{name}", responses=answers(200, CredentialView, NotFound))
async def get_credential(name: str, who: Reader, services: Serving) -> Response:
    """Read a credential, without its secret."""
    return reply(credential_view(await services.credentials.get(who, name)))


@router.put(
    "/{name}",
    responses=answers(200, CredentialView, Conflict, NoSealingKey, says="Replaced")
    | answers(201, CredentialView, says="Stored"),
)
async def put_credential(
    name: str, who: Admin, services: Serving, body: Annotated[ReplaceCredential, json_body(ReplaceCredential)]
) -> Response:
    """Store a credential, or give the one of this name another secret."""
    check_name("credential", NAME, name, body.name)
    made, new = await services.credentials.put(who, body.new(name))
    return reply(credential_view(made), 201 if new else 200)


@router.delete("/{name}", status_code=204, responses=answers(204, None, NotFound, Conflict))
async def delete_credential(name: str, who: Admin, services: Serving) -> Response:
    """Remove a credential that nothing refers to any more."""
    await services.credentials.delete(who, name)
    return Response(status_code=204)
