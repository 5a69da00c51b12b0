"""Projects and their keys as clients send and see them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from app.api.bodies import Body
from app.api.replies import exact, instant
from app.api.schemas.common import Instant, PageView, View
from app.api.schemas.policies import PolicySettings, policies_view
from app.core.access import Scope
from app.core.operate.lifecycle import LifecycleBody
from app.core.retention import MOST_DAYS
from app.ports.catalog import ApiKey, Project

Name = Annotated[str, Field(min_length=1, max_length=200)]
ScopeName = Literal["read", "run", "approve", "admin", "operator"]


class CreateProject(Body):
    """A project to be made."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "shop"}]})

    name: Name
    lifecycle: LifecycleBody | None = Field(None, description="What its models and branches inherit.")

    def level(self) -> dict[str, Any] | None:
        """The lifecycle options to be stored."""
        return None if self.lifecycle is None else self.lifecycle.level()


class ChangeProject(PolicySettings):
    """What is to change: absent members stay, null clears."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "store", "permissions": {"deny": {"shell": ["*"]}}}]}
    )

    name: Name = "-"
    lifecycle: LifecycleBody | None = None
    self_approval: bool = Field(
        False, description="Whether a key may decide waiting calls of runs that it has started itself."
    )
    retention_days: Annotated[int, Field(ge=1, le=MOST_DAYS)] | None = Field(
        None, description="How long the log of an ended run is kept; null is as long as the server does."
    )
    legal_hold: bool = Field(
        False, description="Nothing of the project is deleted while it is true, whatever its age."
    )

    def changes(self) -> dict[str, Any]:
        """Column by column, only what was sent."""
        out: dict[str, Any] = {}
        for name in ("name", "self_approval", "retention_days", "legal_hold"):
            if name in self.model_fields_set:
                out[name] = getattr(self, name)
        if "lifecycle" in self.model_fields_set:
            out["lifecycle"] = None if self.lifecycle is None else self.lifecycle.level()
        return out | self.policies()


class ProjectView(View):
    """A tenant; owns branches, models and keys."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "019a0000-0000-7000-8000-000000000004",
                    "object": "project",
                    "name": "shop",
                    "lifecycle": None,
                    "gate": {"rules": [{"when": "function == 'shell'", "effect": "escalate"}]},
                    "permissions": None,
                    "hooks": None,
                    "self_approval": False,
                    "retention_days": 90,
                    "legal_hold": False,
                    "created_at": "2026-11-30T12:00:00.000Z",
                    "updated_at": "2026-11-30T12:00:00.000Z",
                }
            ]
        }
    )

    id: UUID
    object: Literal["project"]
    name: str
    lifecycle: dict[str, Any] | None
    gate: dict[str, Any] | None
    permissions: dict[str, Any] | None
    hooks: list[dict[str, Any]] | None
    self_approval: bool = Field(description="Whether a key may decide calls of its own runs.")
    retention_days: int | None = Field(
        description="How long logs of ended runs are kept; null is as long as the server does."
    )
    legal_hold: bool = Field(description="Whether nothing of it may be deleted.")
    created_at: datetime
    updated_at: datetime


class ProjectPage(PageView[ProjectView]):
    """One page of projects."""


def project_view(project: Project) -> dict[str, Any]:
    """A project as `ProjectView` says."""
    return {
        "id": project.id,
        "object": "project",
        "name": project.name,
        "lifecycle": exact(project.lifecycle),
        **policies_view(project),
        "self_approval": project.self_approval,
        "retention_days": project.retention_days,
        "legal_hold": project.legal_hold,
        "created_at": instant(project.created_at),
        "updated_at": instant(project.updated_at),
    }


class CreateKey(Body):
    """A key to be made."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "web shop", "scopes": ["read", "run"]}]}
    )

    name: Name
    scopes: Annotated[list[ScopeName], Field(min_length=1)] = Field(
        ["read", "run"],
        description="read: see; run: change branches and run; approve: decide waiting calls; admin: models, "
        "tools and keys of the project; operator: every project. None implies another.",
    )
    expires_at: Instant | None = Field(None, description="RFC 3339, with an offset; never by default.")

    def scope_set(self) -> frozenset[Scope]:
        """The scopes, each once."""
        return frozenset(Scope(name) for name in self.scopes)


class KeyView(View):
    """An API key, without its text."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "019a0000-0000-7000-8000-000000000005",
                    "object": "key",
                    "project_id": "019a0000-0000-7000-8000-000000000004",
                    "name": "web shop",
                    "prefix": "bl_Ab3xY9",
                    "scopes": ["read", "run"],
                    "created_at": "2026-11-30T12:00:00.000Z",
                    "expires_at": None,
                    "revoked_at": None,
                }
            ]
        }
    )

    id: UUID
    object: Literal["key"]
    project_id: UUID
    name: str
    prefix: str = Field(description="The first characters of the key.")
    scopes: list[ScopeName]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class NewKeyView(KeyView):
    """A key that was just made."""

    key: str | None = Field(
        None, description="The key itself, shown this once; absent when a request is repeated."
    )


class KeyPage(PageView[KeyView]):
    """One page of keys."""


def key_view(key: ApiKey) -> dict[str, Any]:
    """A key as `KeyView` says."""
    return {
        "id": key.id,
        "object": "key",
        "project_id": key.project_id,
        "name": key.name,
        "prefix": key.prefix,
        "scopes": list(key.scopes),
        "created_at": instant(key.created_at),
        "expires_at": instant(key.expires_at),
        "revoked_at": instant(key.revoked_at),
    }
