"""Models: register them, and find the endpoint that a name means."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from app.core.access import Principal
from app.core.addresses import is_listed, is_private_host
from app.core.errors import Conflict, FieldError, Invalid, NotFound, Unavailable, UnknownModel
from app.core.usage.prices import PriceTable, price_of
from app.ports.ambient import Clock
from app.ports.catalog import Models as ModelStore
from app.ports.catalog import ModelSpec, Once, StoredModel
from app.ports.provider import ModelEndpoint, Provider
from app.services.memory import Memory

REMEMBERED_MS = 2_000
"""How long a change made through another process may go unnoticed here."""


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model that can be called."""

    endpoint: ModelEndpoint
    lifecycle: Mapping[str, Any] | None
    """Lifecycle options of the model's level."""


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


@dataclass(frozen=True, slots=True)
class AddressRule:
    """Which hosts may be reached on behalf of a project: those of its models and of its webhook endpoints."""

    private: bool = False
    """All of them, as in development mode."""
    allowed: Collection[str] = ()
    """Private names and networks that are all right nevertheless."""

    def fault(self, url: str) -> str | None:
        """What is wrong with a base URL. A name is judged as it is written, not resolved."""
        if fault := self.fault_of_any(url, instead="; use api_key_env"):
            return fault
        parts = urlsplit(url)
        return "a base URL has no query and no fragment" if parts.query or parts.fragment else None

    def fault_of_any(self, url: str, *, instead: str = "") -> str | None:
        """The same of any URL; `instead` says where credentials belong."""
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            return "this is no URL"
        if parts.scheme not in {"http", "https"} or not host:
            return "only http and https URLs with a host are taken"
        if parts.username is not None or parts.password is not None:
            return f"credentials do not belong into the URL{instead}"
        if not self._admits_host(host):
            return "private addresses are only reached if the operator lists them in BRANCHLINE_ALLOWED_HOSTS"
        return None

    def admits(self, host: str, address: str) -> bool:
        """Whether a host may be reached at an address that its name was resolved to."""
        return self._admits_host(address) or is_listed(host, self.allowed)

    def _admits_host(self, host: str) -> bool:
        return self.private or not is_private_host(host) or is_listed(host, self.allowed)


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
        exposed: Mapping[str, str | None],
        prices: PriceTable | None = None,
    ) -> None:
        """`exposed` holds the variables that models may name as their key, None for those without a value;
        `prices` says what models cost that do not say so themselves.
        """
        self._store = store
        self._providers = providers
        self._operator = operator
        self._addresses = addresses
        self._exposed = exposed
        self._prices = prices or PriceTable()
        # None: the project has no model of that name, but the operator may.
        self._known: Memory[tuple[UUID, str], ResolvedModel | None] = Memory(
            clock, REMEMBERED_MS, most=10_000
        )

    # On the hot path

    async def resolve(self, project_id: UUID, name: str) -> ResolvedModel:
        """The model of this name. Raises UnknownModel, Unavailable."""

        async def search() -> ResolvedModel | None:
            stored = await self._store.find(project_id, name)
            if stored is None:
                return None
            return ResolvedModel(self._endpoint(stored.spec), stored.spec.lifecycle)

        found = await self._known.find((project_id, name), search) or self._operators(name)
        if found is None:
            raise UnknownModel(f"No model {name!r} is registered in this project: POST /v1/models.")
        return found

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

    def _endpoint(self, spec: ModelSpec) -> ModelEndpoint:
        key = None
        if spec.api_key_env is not None:
            key = self._exposed.get(spec.api_key_env)
            if not key:
                raise Unavailable(f"The variable {spec.api_key_env!r} with the model's key is not set here.")
        price = price_of(spec.price) or self._prices.find(spec.provider, spec.model, spec.base_url)
        return ModelEndpoint(spec.name, spec.provider, spec.model, spec.base_url, key, spec.options, price)

    # As a resource

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
        """Register a model. Raises Invalid, Conflict."""
        self._check(spec)
        made = await self._store.create(who.project_id, spec, by=who.key_id, once=once)
        self._known.forget_all()
        return made

    async def put(self, who: Principal, spec: ModelSpec) -> tuple[StoredModel, bool]:
        """Register or replace a model; whether it is new. Raises Invalid."""
        self._check(spec)
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

    def _check(self, spec: ModelSpec) -> None:
        provider = self._providers.get(spec.provider)
        if provider is None:
            known = ", ".join(sorted(self._providers))
            raise _refusal("/provider", f"no such provider; there are: {known}", "unknown_provider")
        if spec.base_url is not None and (fault := self._addresses.fault(spec.base_url)):
            raise _refusal("/base_url", fault, "address_not_allowed")
        if spec.api_key_env is not None and spec.api_key_env not in self._exposed:
            raise _refusal(
                "/api_key_env", "the operator has not listed it in BRANCHLINE_EXPOSED_ENV", "not_exposed"
            )
        provider.check(ModelEndpoint(spec.name, spec.provider, spec.model, spec.base_url, None, spec.options))


def _refusal(at: str, words: str, code: str) -> Invalid:
    return Invalid(f"The model cannot be registered: {words}.", errors=[FieldError(at, words, code)])
