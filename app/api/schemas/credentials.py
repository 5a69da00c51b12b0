"""Credentials as clients send and see them: a secret goes in, and never comes out."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from app.api.bodies import Body
from app.api.replies import instant
from app.api.schemas.common import View
from app.core.credentials import Kind
from app.ports.credentials import Credential, NewCredential

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"

_TIME = "2026-11-30T12:00:00.000Z"
_SAID: dict[str, Any] = {"kind": "token", "secret": "the-key-that-the-provider-gave-you"}


class PutCredential(Body):
    """A secret, and what it is for."""

    model_config = ConfigDict(json_schema_extra={"examples": [_SAID]})

    kind: Kind = Field(
        "token",
        description="`token`: sent as a model's key or as a header's value. `signing_secret`: signs "
        "requests as Standard Webhooks says.",
    )
    secret: Annotated[str, Field(max_length=8_192)] = Field(
        repr=False,
        description="8 to 4,096 printable ASCII characters; of a `signing_secret` `whsec_` and the base64 of "
        "24 to 64 bytes. It is stored sealed, and never shown.",
        json_schema_extra={"writeOnly": True},
    )

    def new(self, name: str) -> NewCredential:
        """What is to be stored under the name."""
        return NewCredential(name, self.kind, self.secret)


class CreateCredential(PutCredential):
    """A credential to be stored."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "openai", **_SAID}]})

    name: Annotated[str, Field(pattern=NAME)] = Field(
        description="What models, tools and MCP servers refer to it by."
    )


class ReplaceCredential(PutCredential):
    """A credential to be stored, or to take the place of the one with this name."""

    name: str | None = Field(None, description="The same as in the address, if given.")


class CredentialView(View):
    """A stored credential, without its secret."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "object": "credential",
                    "name": "openai",
                    "kind": "token",
                    "key_id": "2026",
                    "readable": True,
                    "created_at": _TIME,
                    "updated_at": _TIME,
                    "rotated_at": _TIME,
                }
            ]
        }
    )

    object: Literal["credential"]
    name: str
    kind: Kind
    key_id: str = Field(description="The operator's sealing key that it is stored under.")
    readable: bool = Field(description="False when the operator has taken that key away: set it anew.")
    created_at: datetime
    updated_at: datetime = Field(description="When its secret was last given.")
    rotated_at: datetime = Field(
        description="When it was last sealed: with a new secret, or by the operator under a new key."
    )


class CredentialList(View):
    """Every credential of the project, by name."""

    data: list[CredentialView]
    has_more: Literal[False]
    next: None


def credential_view(credential: Credential) -> dict[str, Any]:
    """A credential as `CredentialView` says."""
    return {
        "object": "credential",
        "name": credential.name,
        "kind": credential.kind,
        "key_id": credential.key_id,
        "readable": credential.readable,
        "created_at": instant(credential.created_at),
        "updated_at": instant(credential.updated_at),
        "rotated_at": instant(credential.rotated_at),
    }
