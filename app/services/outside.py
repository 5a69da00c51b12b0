"""What runs that ask models need from the outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from app.core.errors import FieldError, Invalid, UnknownModel
from app.core.guardrails.base import Rule
from app.core.guardrails.presets import BadGuardrails
from app.core.json_text import pointer
from app.core.operate.lifecycle import Contradiction, Lifecycle, merge_lifecycle
from app.ports.ambient import Clock, IdSource
from app.ports.context import ContextProviders, NoContext
from app.ports.provider import ModelEndpoint, Provider
from app.ports.tool import ToolCatalog
from app.services.act import Acting
from app.services.oversight import Overseer
from app.services.stream import Decide, nobody


class ResolvedModel(Protocol):
    """A registered model, as the catalog gives it."""

    @property
    def endpoint(self) -> ModelEndpoint:
        """How it is called."""

    @property
    def lifecycle(self) -> Mapping[str, Any] | None:
        """Its own lifecycle options."""


class ModelCatalog(Protocol):
    """The models of a project."""

    async def resolve(self, project_id: UUID, name: str) -> ResolvedModel:
        """A model by its name. Raises UnknownModel, Unavailable."""


@dataclass(frozen=True, slots=True)
class Outside:
    """See the module's words."""

    models: ModelCatalog
    providers: Mapping[str, Provider]
    tools: ToolCatalog
    acting: Acting
    overseer: Overseer
    clock: Clock
    ids: IdSource
    draw: Callable[[], float]
    """Random numbers from 0 up to 1."""
    lifecycle: Mapping[str, Any] | None = None
    """Lifecycle options of the settings."""
    decide: Decide = nobody
    """Answers what machines ask."""
    rules: Mapping[str, Rule] = field(default_factory=dict)
    """Guardrails beside the built-in ones, by name."""
    context: ContextProviders = field(default_factory=NoContext)
    """Add to instructions, and are told of the tool calls that came of them."""

    def lifecycle_of(self, *levels: Mapping[str, Any] | None) -> Lifecycle:
        """What the levels, the one that counts most first, come to over the settings. Raises Invalid."""
        try:
            return merge_lifecycle(*levels, self.lifecycle, rules=self.rules)
        except BadGuardrails as bad:
            at = [FieldError(pointer("lifecycle", "guardrails", *path), told) for path, told in bad.faults]
            raise Invalid("A guardrail cannot be applied.", errors=at) from None
        except Contradiction as bad:
            where = FieldError(pointer("lifecycle", *bad.path), f"contradictory: {bad}", "contradictory")
            raise Invalid("The levels' options contradict each other.", errors=[where]) from None

    async def model_named(self, project_id: UUID, name: str, at: str) -> ResolvedModel:
        """A model that the request names at a pointer. Raises UnknownModel with that pointer, Unavailable."""
        try:
            return await self.models.resolve(project_id, name)
        except UnknownModel as unknown:
            where = FieldError(at, f"no model {name!r} is registered", "unknown_model")
            raise UnknownModel(unknown.detail, errors=[where]) from None
