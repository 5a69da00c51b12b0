"""Models and what speaks to them, put together."""

from __future__ import annotations

import os
from collections.abc import Mapping

from app.adapters import providers
from app.adapters.command_model.command import command_of
from app.adapters.command_model.provider import CommandProvider
from app.adapters.http_client import ModelClient
from app.core.addresses import AddressRule
from app.core.discovery import discover
from app.core.usage.prices import PriceTable
from app.ports.ambient import Clock
from app.ports.catalog import Models as ModelStore
from app.ports.provider import Provider
from app.services.capacity import Capacity
from app.services.models import Models, OperatorModels
from app.services.named_secrets import NamedSecrets
from app.settings import BadSettings, Settings


def all_providers(client: ModelClient) -> dict[str, Provider]:
    """Every wire format by name."""
    made = [make(client) for make in discover(providers, "PROVIDER").values()]
    return {provider.name: provider for provider in made}


def commands_of(settings: Settings) -> CommandProvider:
    """What runs the operator's commands: no provider that a registered model could name.

    Raises BadSettings.
    """
    found = {}
    for name, model in settings.models.items():
        if model.command is not None:
            try:
                found[name] = command_of(model.command, os.environ)
            except ValueError as error:
                raise BadSettings(f"models.{name}.command.{error}") from None
    return CommandProvider(found)


def models_of(
    settings: Settings,
    store: ModelStore,
    clock: Clock,
    operators: OperatorModels,
    known: Mapping[str, Provider],
    addresses: AddressRule,
    secrets: NamedSecrets,
    capacity: Capacity,
) -> Models:
    """The models of operators and of projects."""
    for name, model in settings.models.items():
        level = model.lifecycle.level() if model.lifecycle else None
        operators.add(name, model.endpoint(name, os.environ), lifecycle=level)
    return Models(
        store,
        clock,
        providers=known,
        operator=operators,
        addresses=addresses,
        secrets=secrets,
        capacity=capacity,
        prices=PriceTable(settings.prices),
    )
