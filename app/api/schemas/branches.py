"""Branches as clients send and see them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from app.api.bodies import Body
from app.api.paging import PageQuery
from app.api.replies import exact, instant
from app.api.schemas.common import Instant, PageView, View
from app.api.schemas.policies import PolicySettings, policies_view
from app.core import json_text
from app.core.operate.lifecycle import LifecycleBody
from app.ports.catalog import Branch, BranchFilter, NewBranch

Name = Annotated[str, Field(min_length=1, max_length=200)]
ModelName = Annotated[str, Field(min_length=1, max_length=200)]
ToolChoice = (
    bool | Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=1_000)]
)

_EXAMPLE: dict[str, Any] = {
    "name": "support",
    "system": "You answer briefly.",
    "chat_model": "local",
    "tools": True,
    "metadata": {"customer": "42"},
}


class BranchSettings(PolicySettings):
    """The settings of a branch."""

    name: Name | None = None
    system: str | None = Field(
        None, description="What the model is told before everything else; kept as the system message."
    )
    chat_model: ModelName | None = Field(None, description="A registered model, for runs that name none.")
    parse_model: ModelName | None = Field(
        None, description="A registered model that mends answers that cannot be used."
    )
    tools: ToolChoice | None = Field(
        None, description="True for all tools of the project, false for none, or names; true by default."
    )
    lifecycle: LifecycleBody | None = Field(None, description="For runs on this branch; replaced as a whole.")
    metadata: dict[str, Any] | None = Field(None, description="Yours; branches are found by it.")


class CreateBranch(BranchSettings):
    """A branch to be made."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    def new(self) -> NewBranch:
        """What is to be stored."""
        return NewBranch(
            name=self.name,
            system=self.system,
            chat_model=self.chat_model,
            parse_model=self.parse_model,
            tools=True if self.tools is None else self.tools,
            lifecycle=None if self.lifecycle is None else self.lifecycle.level(),
            metadata=self.metadata or {},
            **self.policies(),
        )


class ChangeBranch(BranchSettings):
    """What is to change: absent members stay, null clears, `metadata` is merged (RFC 7396)."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"chat_model": None, "metadata": {"customer": None, "tier": "gold"}}]}
    )

    legal_hold: bool = Field(
        False,
        description="Nothing of the branch is deleted while it is true, whatever its age. Needs the scope "
        "admin.",
    )

    def changes(self) -> dict[str, Any]:
        """Column by column, only what was sent."""
        out = {name: getattr(self, name) for name in self.model_fields_set} | self.policies()
        if self.lifecycle is not None:
            out["lifecycle"] = self.lifecycle.level()
        if "tools" in out and self.tools is None:
            out["tools"] = True
        return out


class ForkBranch(Body):
    """Where a branch is to be forked."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "another try"}]})

    at_message: Annotated[UUID, Field(strict=False)] | None = Field(
        None,
        description="The last message to be copied; all by default. An action request is copied only "
        "with its response.",
    )
    name: Name | None = Field(None, description="The name of the fork; the parent's by default.")


class BranchView(View):
    """A conversation and its settings."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    **_EXAMPLE,
                    "id": "019a0000-0000-7000-8000-000000000001",
                    "object": "branch",
                    "parse_model": None,
                    "lifecycle": None,
                    "gate": None,
                    "permissions": {"deny": {"*": ["*/etc/*"]}},
                    "hooks": None,
                    "version": 1,
                    "parent_id": None,
                    "forked_at": None,
                    "forked_run_id": None,
                    "forked_seq": None,
                    "legal_hold": False,
                    "created_at": "2026-11-30T12:00:00.000Z",
                    "updated_at": "2026-11-30T12:00:00.000Z",
                }
            ]
        }
    )

    id: UUID
    object: Literal["branch"]
    name: str | None
    system: str | None
    chat_model: str | None
    parse_model: str | None
    tools: bool | list[str]
    lifecycle: dict[str, Any] | None
    gate: dict[str, Any] | None = Field(description="As it was set, beside the project's.")
    permissions: dict[str, Any] | None = Field(description="As they were set, beside the project's.")
    hooks: list[dict[str, Any]] | None = Field(description="As they were set, beside the project's.")
    metadata: dict[str, Any]
    version: int = Field(description="Grows with every change by a client; also the ETag.")
    parent_id: UUID | None = Field(description="The branch that this one is a fork of.")
    forked_at: UUID | None = Field(description="The parent's last message that was copied.")
    forked_run_id: UUID | None = Field(description="The run whose moment it began with, if it was one.")
    forked_seq: int | None = Field(description="The event of that run after which it was.")
    legal_hold: bool = Field(description="Whether nothing of it may be deleted.")
    created_at: datetime
    updated_at: datetime


class BranchPage(PageView[BranchView]):
    """One page of branches."""


def branch_view(branch: Branch) -> dict[str, Any]:
    """A branch as `BranchView` says."""
    return {
        "id": branch.id,
        "object": "branch",
        "name": branch.name,
        "system": branch.system,
        "chat_model": branch.chat_model,
        "parse_model": branch.parse_model,
        "tools": branch.tools,
        "lifecycle": exact(branch.lifecycle),
        **policies_view(branch),
        "metadata": exact(branch.metadata),
        "version": branch.version,
        "parent_id": branch.parent_id,
        "forked_at": branch.forked_at,
        "forked_run_id": branch.forked_run_id,
        "forked_seq": branch.forked_seq,
        "legal_hold": branch.legal_hold,
        "created_at": instant(branch.created_at),
        "updated_at": instant(branch.updated_at),
    }


class BranchQuery(PageQuery):
    """Which branches; `metadata.KEY=text` finds those whose metadata has this text or number at KEY."""

    model_config = ConfigDict(extra="allow")

    name: str | None = Field(None, description="Exactly this name.")
    metadata: str | None = Field(None, description="A JSON object whose members the metadata must hold.")
    created_after: Instant | None = Field(None, description="RFC 3339, with an offset.")
    created_before: Instant | None = Field(None, description="RFC 3339, with an offset.")

    @model_validator(mode="after")
    def _know_all(self) -> BranchQuery:
        for name, value in (self.model_extra or {}).items():
            if not name.startswith("metadata.") or not isinstance(value, str | list):
                raise PydanticCustomError(
                    "unknown_parameter", "there is no parameter {name}", {"name": name[:100]}
                )
        self.filter()
        return self

    def filter(self) -> BranchFilter:
        """For the repository. Raises ValueError for metadata that is no JSON object."""
        return BranchFilter(
            name=self.name,
            metadata=None if self.metadata is None else _object(self.metadata),
            metadata_texts=dict(self._texts()),
            created_after=self.created_after,
            created_before=self.created_before,
        )

    def _texts(self) -> Mapping[str, str]:
        found = {}
        for name, value in (self.model_extra or {}).items():
            found[name.removeprefix("metadata.")] = value if isinstance(value, str) else value[-1]
        return found


def _object(text: str) -> dict[str, Any]:
    try:
        value = json_text.read(text)
    except json_text.NotJson as error:
        raise ValueError(f"metadata: {error}") from None
    if not isinstance(value, dict):
        raise ValueError("metadata has to be a JSON object")
    return value
