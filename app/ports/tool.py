"""Describe and call a tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID


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
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the kind needs to call it."""
    prepares: bool = False
    """Whether its runner may change the arguments before the call."""


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

    async def prepare(self, spec: ToolSpec, invocation: Invocation) -> Invocation:
        """The invocation with the arguments that the tool is to be called with, valid again.

        Asked only where the spec says so. Raises like `call`.
        """

    async def call(self, spec: ToolSpec, invocation: Invocation) -> Any:
        """Run the tool and return its result as a JSON value. Raises `ToolFailure`, or whatever it raises."""


class ToolCatalog(Protocol):
    """The tools of a project."""

    async def tools(self, project_id: UUID) -> Mapping[str, ToolSpec]:
        """Every tool of the project by name, the built-in Python ones included, in a stable order."""
