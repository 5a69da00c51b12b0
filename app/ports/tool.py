"""Describe and call a tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from app.ports.catalog import Once


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as it is registered: what models see and what governs it."""

    name: str
    kind: str
    """python, http, mcp or client."""
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema 2020-12 of the arguments, an object."""
    strict: bool = False
    """Whether the arguments must be exactly the schema's properties."""
    idempotent: bool = False
    """Whether a call may be repeated when its outcome is unknown."""
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What the kind needs to call it; there may be secrets in it."""
    prepares: bool = False
    """Whether its runner may change the arguments before the call."""
    origin: Mapping[str, str] | None = None
    """The `server` that it is of, and what that calls the `tool`."""
    version: str | None = None
    """A digest of what it is, where it may become something else though nobody registers it anew."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """One attempt at one call, with arguments already validated."""

    call_id: UUID
    function: str
    arguments: Mapping[str, Any]
    run_id: UUID
    branch_id: UUID
    project_id: UUID


class ToolFailure(Exception):
    """The tool could not give a result; becomes the call's error, never an exception of the run."""

    def __init__(self, type: str, message: str, *, retryable: bool | None = None) -> None:
        super().__init__(message)
        self.type = type
        self.message = message
        self.retryable = retryable


class ToolRunner(Protocol):
    """One kind of tool."""

    kind: str

    async def call(self, spec: ToolSpec, invocation: Invocation) -> Any:
        """Run the tool and return its result as a JSON value. Raises `ToolFailure`, or whatever it raises."""


@runtime_checkable
class PreparingRunner(ToolRunner, Protocol):
    """One kind of tool that may change the arguments before a call, where the spec says so."""

    async def prepare(self, spec: ToolSpec, invocation: Invocation) -> Invocation:
        """The invocation with the arguments that the tool is to be called with, valid again.

        Raises like `call`.
        """


class ToolCatalog(Protocol):
    """The tools of a project."""

    async def tools(self, project_id: UUID) -> Mapping[str, ToolSpec]:
        """Every tool of the project by name, the built-in Python ones included, in a stable order."""


@dataclass(frozen=True, slots=True)
class StoredTool:
    """A row of `tools`, or one of the server's own."""

    spec: ToolSpec
    id: UUID | None = None
    """None for Python tools, and so are the times."""
    created_at: datetime | None = None
    updated_at: datetime | None = None


class ToolStore(Protocol):
    """Tools that projects registered. `by` is the key that asks, for the audit log."""

    async def all(self, project_id: UUID) -> Sequence[StoredTool]:
        """Every tool of the project, by name."""

    async def find(self, project_id: UUID, name: str) -> StoredTool | None:
        """One of them."""

    async def create(
        self, project_id: UUID, spec: ToolSpec, *, by: UUID | None, once: Once | None = None
    ) -> StoredTool:
        """Store a tool. Raises Conflict for a name in use and for one tool too many, AnsweredBefore,
        KeyReused.
        """

    async def put(self, project_id: UUID, spec: ToolSpec, *, by: UUID | None) -> tuple[StoredTool, bool]:
        """Store or replace a tool; whether it is new. Raises Conflict for one tool too many."""

    async def delete(self, project_id: UUID, name: str, *, by: UUID | None) -> None:
        """Remove a tool. Raises NotFound."""
