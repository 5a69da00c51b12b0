"""Another address that is asked or told about a call."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Protocol, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from app.core.signing import Signing

DEFAULT_TIMEOUT_MS: Final = 5_000


class Outside(Protocol):
    """What only the running service knows of a policy; the context in which a body is validated."""

    def fault(self, name: Literal["gate"], expression: str) -> str | None:
        """What is wrong with an expression."""

    def address_fault(self, url: str) -> str | None:
        """What is wrong with an address that is to be reached."""

    def variable_fault(self, name: str) -> str | None:
        """What is wrong with naming a variable of the server."""


class PolicyBody(BaseModel):
    """Nothing unknown, nothing converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    def stored(self) -> dict[str, Any]:
        """What was said, and only that."""
        return self.model_dump(exclude_unset=True)


class Remote(PolicyBody):
    """An address, and how long an answer may take."""

    url: Annotated[str, Field(min_length=1, max_length=2_000)] = Field(
        description="http or https; private addresses only if the operator lists them."
    )
    timeout_ms: Annotated[int, Field(ge=1, le=30_000)] = DEFAULT_TIMEOUT_MS
    signing: Signing | None = Field(None, description="Signs what is posted; absent is unsigned.")

    @field_validator("url")
    @classmethod
    def _reachable(cls, value: str, info: ValidationInfo) -> str:
        if info.context is not None and (fault := cast(Outside, info.context).address_fault(value)):
            raise ValueError(fault)
        return value

    @field_validator("signing")
    @classmethod
    def _exposed(cls, value: Signing | None, info: ValidationInfo) -> Signing | None:
        if info.context is None or value is None or value.env is None:
            return value
        if fault := cast(Outside, info.context).variable_fault(value.env):
            raise ValueError(fault)
        return value
