"""Composition root: the only module that knows everyone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from app import __version__
from app.adapters.ambient import SystemClock, Uuid7Ids
from app.adapters.cel import Cel
from app.adapters.checked_network import CheckedNetwork, Resolve, from_system
from app.adapters.context.python import PythonContext, load_context_providers
from app.adapters.db.approvals import PostgresApprovals
from app.adapters.db.branches import PostgresBranches
from app.adapters.db.client_calls import PostgresClientCalls
from app.adapters.db.credentials import PostgresCredentials
from app.adapters.db.engine import make_engine, put_away
from app.adapters.db.keys import PostgresKeys
from app.adapters.db.listings import PostgresListings
from app.adapters.db.migrate import migrate
from app.adapters.db.models import PostgresModels
from app.adapters.db.projects import PostgresProjects
from app.adapters.db.readiness import DatabaseChecks
from app.adapters.db.replies import PostgresReplies
from app.adapters.db.session import Database
from app.adapters.db.tools import PostgresTools
from app.adapters.db.usage import PostgresUsage
from app.adapters.db.webhooks import PostgresWebhooks
from app.adapters.guardrails.python import PythonGuardrails
from app.adapters.http_client import model_client
from app.adapters.http_gate import HttpGates
from app.adapters.outbound import Outbound
from app.adapters.run_figures import RunFigures
from app.adapters.secret_file import secret_in
from app.adapters.signing import Signer
from app.adapters.tools.http import HttpTools
from app.api.application import OPERATIONS, build_app
from app.api.deps import Edge, Services
from app.api.running import Running
from app.callback_wiring import Telling, telling
from app.core.addresses import AddressRule
from app.core.operate.lifecycle import LifecycleBody
from app.hook_wiring import hooking
from app.house_wiring import keep_house
from app.limit_wiring import limiting
from app.mcp_wiring import Speaking, speaking
from app.model_wiring import all_providers, commands_of, models_of
from app.plugin_wiring import load_all
from app.ports.ambient import Clock, IdSource
from app.run_wiring import Machinery, machinery, working
from app.sealing_wiring import keep_sealed, vault_of
from app.services.approvals import Approvals
from app.services.background import background
from app.services.books import Books
from app.services.branches import Branches
from app.services.capacity import Capacity
from app.services.client_calls import ClientCalls
from app.services.credentials import Credentials
from app.services.decisions import Choices, Decisions
from app.services.governor import Governor
from app.services.keys import Gatekeeper, Keys
from app.services.limits import Limits
from app.services.models import Models, OperatorModels
from app.services.named_secrets import NamedSecrets
from app.services.oversight import Overseer
from app.services.projects import Projects
from app.services.recorder import Recorder
from app.services.simulation import Simulator
from app.services.tools import Tools
from app.services.webhooks import Webhooks
from app.settings import BadSettings, Settings, check_exposure, in_development
from app.transfer_wiring import transferring

HOME = "default"
"""Name of the project that requests without a key work in."""
GATE_TIMEOUT_S = 30.0
"""Longest that a gate at another address may take, whatever its policy says."""


@dataclass(frozen=True, slots=True)
class Application:
    """The service, ready to answer requests."""

    app: FastAPI
    recorder: Recorder
    development: bool
    """Whether requests need no key."""
    closing: asyncio.Event
    """To be set when the service is about to stop: open streams then end, to be resumed elsewhere."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What everything else stands on."""

    url: str
    engine: AsyncEngine
    database: Database
    clock: Clock
    ids: IdSource


@asynccontextmanager
async def ground(database_url: str) -> AsyncIterator[Ground]:
    """A migrated database, for the block. Raises BadSettings when it cannot be used."""
    clock = SystemClock()
    try:
        engine, patient = make_engine(database_url), make_engine(database_url, patience_s=None)
    except (ValueError, SQLAlchemyError) as error:
        raise BadSettings(str(error)) from None
    try:
        try:
            await migrate(patient, now_ms=clock.wall_ms())
        except (OSError, SQLAlchemyError) as error:
            raise BadSettings(f"The database cannot be used: {reason_of(error)}") from error
        finally:
            await patient.dispose()
        yield Ground(database_url, engine, Database(engine), clock, Uuid7Ids())
    finally:
        await put_away(engine)


def reason_of(error: Exception) -> str:
    """What a database or its driver says is wrong, in one line and without the statement."""
    cause = getattr(error, "orig", None) or error
    return str(cause).strip().partition("\n")[0] or type(cause).__name__


def keys_of(on: Ground, settings: Settings) -> Keys:
    """The API keys; without a secret in the settings it is the one kept in the data directory."""
    secret = settings.secret_key.get_secret_value() if settings.secret_key else secret_in(settings.data_dir)
    return Keys(PostgresKeys(on.database, on.ids), on.clock, pepper=secret)


@asynccontextmanager
async def application(
    settings: Settings,
    database_url: str,
    operators: OperatorModels | None = None,
    *,
    resolve: Resolve = from_system,
) -> AsyncIterator[Application]:
    """The service for the length of the block: migrated, connected, executing runs.

    `operators` are models beside those of the settings; `resolve` finds the addresses of clients' hosts.
    Raises BadSettings for settings that cannot be served with.
    """
    executes = settings.role != "api"
    async with AsyncExitStack() as stack:
        plugins = load_all(settings)
        python = plugins.tools
        stack.callback(python.close)
        guardrails = PythonGuardrails(plugins.guardrails)
        stack.callback(guardrails.close)
        context = PythonContext(load_context_providers(settings.context_provider_modules))
        stack.callback(context.close)
        expressions = Cel()
        on = await stack.enter_async_context(ground(database_url))
        home = await PostgresProjects(on.database, on.ids).ensure(HOME)
        has_keys = await PostgresKeys(on.database, on.ids).any()
        check_exposure(settings, has_keys=has_keys)
        development = in_development(settings, has_keys=has_keys)
        addresses = AddressRule(private=development, allowed=settings.allowed_hosts)
        network = CheckedNetwork(addresses.admits, resolve=resolve)
        known = all_providers(await stack.enter_async_context(model_client(network=network)))
        commands = await stack.enter_async_context(commands_of(settings))
        capacity = Capacity(on.clock)
        exposed = {name: os.environ.get(name) for name in settings.exposed_env}
        vault = vault_of(settings, make=development)
        credentials = Credentials(PostgresCredentials(on.database, on.ids, vault), on.clock)
        secrets = NamedSecrets(exposed, credentials)
        signer = Signer(on.clock, on.ids, exposed, credentials)
        choices = Choices(expressions, guardrails.rules, addresses, exposed)
        outbound = Outbound(network, timeout_s=GATE_TIMEOUT_S)
        stack.push_async_callback(outbound.aclose)
        governor = Governor(expressions, HttpGates(outbound, signer))
        bus = await stack.enter_async_context(hooking(settings, network, signer))
        keys = keys_of(on, settings)
        limits = await stack.enter_async_context(
            limiting(on.database, database_url, on.clock, on.ids, keys.forget)
        )
        models = models_of(
            settings,
            PostgresModels(on.database, on.ids, vault),
            on.clock,
            operators or OperatorModels(),
            known,
            addresses,
            secrets,
            capacity,
        )
        http = HttpTools(network, exposed, credentials, signer)
        stack.push_async_callback(http.aclose)
        mcp = await stack.enter_async_context(
            speaking(settings, on.database, on.clock, on.ids, addresses, network, secrets, vault)
        )
        tools = Tools(
            PostgresTools(on.database, on.ids, vault),
            on.clock,
            python=python.specs,
            addresses=addresses,
            secrets=secrets,
            most_ms=round(settings.tool_timeout_s * 1000),
            mcp=mcp.servers,
        )
        told = await stack.enter_async_context(
            telling(
                settings,
                plugins.handlers,
                database_url,
                on.clock,
                on.ids,
                network,
                vault,
                executes=executes,
            )
        )
        made = machinery(
            database_url,
            executes=executes,
            lease_ms=settings.lease_ms,
            history_bytes=settings.history_bytes,
            clock=on.clock,
            ids=on.ids,
            models=models,
            known_providers=capacity.limiting({**known, commands.name: commands}),
            runners=(python, http, mcp.runner),
            catalog=tools,
            tool_timeout_s=settings.tool_timeout_s,
            lifecycle=_lifecycle(settings, choices),
            decide=Decisions(expressions, guardrails, on.clock).decide,
            rules=guardrails.rules,
            overseer=Overseer(governor, bus, keys),
            approval_s=settings.approval_s,
            client_s=settings.client_call_s,
            context=context,
            counts_usage=lambda: limits.counts_usage,
            listeners=told.listeners,
        )
        webhooks = Webhooks(PostgresWebhooks(on.database, on.ids, vault), addresses)
        services = _services(
            on,
            settings,
            made,
            keys,
            models,
            tools,
            mcp,
            webhooks,
            credentials,
            limits,
            told,
            home=home.id,
            development=development,
        )
        services.choices, services.guardrails = choices, guardrails.descriptions
        app = build_app(services, parts=OPERATIONS if settings.role == "worker" else None)
        running = app.state.running = Running(
            made.runs,
            made.store,
            listings := PostgresListings(on.database),
            Simulator(governor, listings),
            Books(PostgresUsage(on.database), on.clock),
            settings.heartbeat_s,
            settings.wait_default_s,
            settings.wait_max_s,
        )
        app.state.transfer = await stack.enter_async_context(
            transferring(settings, database_url, on.engine, on.clock, on.ids, made.store, services.projects)
        )
        await stack.enter_async_context(background(keep_sealed(on.database, vault)))
        await stack.enter_async_context(
            working(
                made,
                lambda: keep_house(on.engine, on.clock, settings.retention_days),
                executes=executes,
                closing=running.closing,
                grace_s=settings.grace_s,
            )
        )
        yield Application(app, made.recorder, development, running.closing)


def _lifecycle(settings: Settings, choices: Choices) -> Mapping[str, Any] | None:
    """The settings' level, held to the same as a request's. Raises BadSettings."""
    if settings.lifecycle is None:
        return None
    level = settings.lifecycle.level()
    try:
        LifecycleBody.model_validate(level, context=choices)
    except ValueError as error:
        raise BadSettings(f"the lifecycle of the settings cannot be applied: {error}") from None
    return level


def _services(
    on: Ground,
    settings: Settings,
    made: Machinery,
    keys: Keys,
    models: Models,
    tools: Tools,
    mcp: Speaking,
    webhooks: Webhooks,
    credentials: Credentials,
    limits: Limits,
    told: Telling,
    *,
    home: UUID,
    development: bool,
) -> Services:
    bootstrap = settings.bootstrap_key.get_secret_value() if settings.bootstrap_key else None
    checks = DatabaseChecks(on.engine, on.clock)

    async def recording() -> str | None:
        return "the database is away; runs are paused" if made.recorder.paused else None

    registry = CollectorRegistry()
    figures = RunFigures(registry)
    made.show(figures)
    told.show(figures)
    mcp.show(figures)
    return Services(
        ids=on.ids,
        gatekeeper=Gatekeeper(keys, home=home, development=development, bootstrap_key=bootstrap),
        keys=keys,
        projects=Projects(PostgresProjects(on.database, on.ids)),
        branches=Branches(PostgresBranches(on.database, on.ids), models, tools),
        models=models,
        tools=tools,
        mcp_servers=mcp.servers,
        webhooks=webhooks,
        approvals=Approvals(PostgresApprovals(on.database, on.ids), tools, on.clock, made.runs.look_for_work),
        client_calls=ClientCalls(PostgresClientCalls(on.database), on.clock, on.ids, made.runs.look_for_work),
        credentials=credentials,
        limits=limits,
        replies=PostgresReplies(on.database),
        edge=Edge(development, settings.cors_origins, settings.body_bytes, settings.json_depth, __version__),
        readiness={"database": checks.migrated, "partitions": checks.partitions, "recorder": recording},
        registry=registry,
    )


def openapi_document() -> dict[str, Any]:
    """The OpenAPI document, which needs no services behind it."""
    unused: Any = None
    services = Services(Uuid7Ids(), *(unused,) * 13)
    services.edge = Edge(version=__version__)
    return build_app(services).openapi()
