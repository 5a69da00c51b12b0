"""Models: register them, and find the endpoint that a name means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from app.core.access import Principal
from app.core.addresses import AddressRule
from app.core.errors import Conflict, FieldError, Invalid, NotFound, Unavailable, UnknownModel
from app.core.limits.options import ModelLimits
from app.core.usage.prices import PriceTable, price_of
from app.ports.ambient import Clock
from app.ports.catalog import Models as ModelStore
from app.ports.catalog import ModelSpec, Once, StoredModel
from app.ports.provider import ModelEndpoint, Provider
from app.services.capacity import Capacity, Condition
from app.services.memory import Memory
from app.services.named_secrets import NamedSecrets

REMEMBERED_MS = 2_000
"""How long a change made through another process may go unnoticed here."""


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model that can be called."""

    endpoint: ModelEndpoint
    lifecycle: Mapping[str, Any] | None
    """Lifecycle options of the model's level."""


@dataclass(slots=True)
class _Known:
    """A model that was read, and what it came to with the secrets that it names."""

    stored: StoredModel
    secrets: Mapping[str, str]
    resolved: ResolvedModel


EndpointSource = ModelEndpoint | Callable[[], ModelEndpoint | None]
"""A callable tells the endpoint anew each time, None while it is not ready."""


class OperatorModels:
    """Models that the operator offers to every project; read-only over HTTP."""

    def __init__(self) -> None:
        self._models: dict[str, tuple[EndpointSource, ModelSpec]] = {}

    def add(
        self,
        name: str,
        endpoint: EndpointSource,
        *,
        lifecycle: Mapping[str, Any] | None = None,
        spec: ModelSpec | None = None,
    ) -> None:
        """Offer a model. `spec` is what clients see of it, told by the endpoint when it is a plain one."""
        if spec is None:
            if not isinstance(endpoint, ModelEndpoint):
                raise TypeError("a model whose endpoint is computed needs a spec")
            spec = ModelSpec(
                name,
                endpoint.provider,
                endpoint.model,
                endpoint.base_url,
                options=endpoint.options,
                lifecycle=lifecycle,
                limits=None if endpoint.limits is None else endpoint.limits.model_dump(exclude_none=True),
                price=None if endpoint.price is None else endpoint.price.wire(),
            )
        self._models[name] = (endpoint, spec)

    def specs(self) -> Mapping[str, ModelSpec]:
        """What clients see, by name."""
        return {name: spec for name, (_, spec) in self._models.items()}

    def resolve(self, name: str) -> ResolvedModel | None:
        """The model, or None when there is none of the name. Raises Unavailable while it is not ready."""
        found = self._models.get(name)
        if found is None:
            return None
        source, spec = found
        endpoint = source if isinstance(source, ModelEndpoint) else source()
        if endpoint is None:
            raise Unavailable(f"The model {name!r} is still starting.", retry_after_s=1)
        return ResolvedModel(endpoint, spec.lifecycle)


class Models:
    """The models that a project can use: its own, and the operator's where it has none of that name."""

    def __init__(
        self,
        store: ModelStore,
        clock: Clock,
        *,
        providers: Mapping[str, Provider],
        operator: OperatorModels,
        addresses: AddressRule,
        secrets: NamedSecrets,
        capacity: Capacity,
        prices: PriceTable | None = None,
    ) -> None:
        """`secrets` knows the secrets that models may name; `prices` says what models cost that do not say so
        themselves.
        """
        self._store = store
        self._providers = providers
        self._operator = operator
        self._addresses = addresses
        self._secrets = secrets
        self._capacity = capacity
        self._prices = prices or PriceTable()
        # None: the project has no model of that name, but the operator may.
        self._known: Memory[tuple[UUID, str], _Known | None] = Memory(clock, REMEMBERED_MS, most=10_000)

    # On the hot path

    async def resolve(self, project_id: UUID, name: str) -> ResolvedModel:
        """The model of this name.

        Raises UnknownModel, Unavailable, and for what it names UnknownCredential, CredentialUnreadable.
        """

        async def search() -> _Known | None:
            stored = await self._store.find(project_id, name)
            return None if stored is None else await self._made(project_id, stored)

        known = await self._known.find((project_id, name), search)
        if known is not None:
            if known.secrets:  # these may have changed while the model has not
                now = await self._secrets.of(project_id, known.stored.spec)
                if now != known.secrets:
                    known.resolved, known.secrets = self._resolved(known.stored, now), now
            return known.resolved
        found = self._operators(name)
        if found is None:
            raise UnknownModel(f"No model {name!r} is registered in this project: POST /v1/models.")
        return found

    async def _made(self, project_id: UUID, stored: StoredModel) -> _Known:
        secrets = await self._secrets.of(project_id, stored.spec)
        return _Known(stored, secrets, self._resolved(stored, secrets))

    def _resolved(self, stored: StoredModel, secrets: Mapping[str, str]) -> ResolvedModel:
        spec = stored.spec
        price = price_of(spec.price) or self._prices.find(spec.provider, spec.model, spec.base_url)
        endpoint = self._secrets.endpoint(spec, secrets)
        return ResolvedModel(
            replace(endpoint, id=stored.id, limits=_limits_of(spec), price=price),
            spec.lifecycle,
        )

    def _operators(self, name: str) -> ResolvedModel | None:
        found = self._operator.resolve(name)
        if found is None or found.endpoint.price is not None:
            return found
        endpoint = found.endpoint
        price = self._prices.find(endpoint.provider, endpoint.model, endpoint.base_url)
        return found if price is None else replace(found, endpoint=replace(endpoint, price=price))

    async def exists(self, project_id: UUID, name: str) -> bool:
        """Whether the project has a model of this name."""
        return name in self._operator.specs() or await self._store.find(project_id, name) is not None

    # As a resource

    def condition(self, model: StoredModel) -> Condition | None:
        """How far the limits of a model are used in this process; None for one without."""
        limits = _limits_of(model.spec)
        return None if limits is None else self._capacity.condition(model.id or model.spec.name, limits)

    async def list(self, who: Principal) -> Sequence[StoredModel]:
        """Every model that the project can use, by name."""
        mine = {model.spec.name: model for model in await self._store.all(who.project_id)}
        theirs = {name: StoredModel(spec) for name, spec in self._operator.specs().items()}
        return [model for _, model in sorted({**theirs, **mine}.items())]

    async def get(self, who: Principal, name: str) -> StoredModel:
        """One of them. Raises NotFound."""
        stored = await self._store.find(who.project_id, name)
        if stored is not None:
            return stored
        spec = self._operator.specs().get(name)
        if spec is None:
            raise NotFound("There is no model of this name in this project.")
        return StoredModel(spec)

    async def create(self, who: Principal, spec: ModelSpec, once: Once | None = None) -> StoredModel:
        """Register a model. Raises Invalid, Conflict, NoSealingKey."""
        await self._check(who.project_id, spec)
        made = await self._store.create(who.project_id, spec, by=who.key_id, once=once)
        self._known.forget_all()
        return made

    async def put(self, who: Principal, spec: ModelSpec) -> tuple[StoredModel, bool]:
        """Register or replace a model; whether it is new. Raises Invalid, NoSealingKey."""
        await self._check(who.project_id, spec)
        made = await self._store.put(who.project_id, spec, by=who.key_id)
        self._known.forget_all()
        return made

    async def delete(self, who: Principal, name: str) -> None:
        """Remove a model of the project. Raises NotFound, Conflict for one of the operator's."""
        try:
            await self._store.delete(who.project_id, name, by=who.key_id)
        except NotFound:
            if name in self._operator.specs():
                raise Conflict("This model is the operator's; it is changed in branchline.toml.") from None
            raise
        self._known.forget_all()

    async def _check(self, project_id: UUID, spec: ModelSpec) -> None:
        provider = self._providers.get(spec.provider)
        if provider is None:
            known = ", ".join(sorted(self._providers))
            raise _refusal("/provider", f"no such provider; there are: {known}", "unknown_provider")
        if spec.base_url is not None and (fault := self._addresses.fault(spec.base_url)):
            raise _refusal("/base_url", fault, "address_not_allowed")
        provider.check(ModelEndpoint(spec.name, spec.provider, spec.model, spec.base_url, None, spec.options))
        if faults := await self._secrets.faults(project_id, spec):
            words = "; ".join(f"{fault.pointer}: {fault.message}" for fault in faults)
            raise Invalid(f"The model cannot be registered: {words}.", errors=faults)


def _limits_of(spec: ModelSpec) -> ModelLimits | None:
    return None if spec.limits is None else ModelLimits.model_validate(spec.limits)


def _refusal(at: str, words: str, code: str) -> Invalid:
    return Invalid(f"The model cannot be registered: {words}.", errors=[FieldError(at, words, code)])
