"""What requests to a tool, a gate or a hook are signed with."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,128}$")]


class Signing(BaseModel):
    """Where the secret is, by one of two names; the secret itself is never part of it."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, json_schema_extra={"examples": [{"env": "SHOP_SIGNING"}]}
    )

    env: Name | None = Field(
        None, description="A variable of the server; the operator lists which may be used."
    )
    credential: Name | None = Field(None, description="A stored credential of the project.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.env is None) == (self.credential is None):
            raise ValueError("name one of `env` and `credential`")
        return self
