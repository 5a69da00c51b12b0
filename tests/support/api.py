"""The HTTP edge over a real database, with the clock and the providers in the test's hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

import asyncpg
import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import text

from app.adapters.ambient import SystemClock, Uuid7Ids
from app.adapters.cel import Cel
from app.adapters.checked_network import CheckedNetwork
from app.adapters.db.approvals import PostgresApprovals
from app.adapters.db.branches import PostgresBranches
from app.adapters.db.client_calls import PostgresClientCalls
from app.adapters.db.credentials import PostgresCredentials
from app.adapters.db.engine import driver_arguments, make_engine
from app.adapters.db.keys import PostgresKeys
from app.adapters.db.mcp_servers import PostgresMcpServers
from app.adapters.db.migrate import migrate
from app.adapters.db.models import PostgresModels
from app.adapters.db.projects import PostgresProjects
from app.adapters.db.quotas import PostgresQuotas
from app.adapters.db.replies import PostgresReplies
from app.adapters.db.session import Database
from app.adapters.db.shares import PostgresShares
from app.adapters.db.tools import PostgresTools
from app.adapters.db.webhooks import PostgresWebhooks
from app.adapters.mcp.peers import Peers
from app.adapters.sealing import AesGcmVault
from app.api.application import build_app
from app.api.deps import Edge, Services
from app.core.access import ALL_SCOPES, Principal, Scope
from app.core.addresses import AddressRule
from app.core.errors import FieldError, Invalid
from app.core.http_tool import MOST_MS
from app.core.mcp_server import McpServer
from app.ports.provider import Capabilities, ModelEndpoint, Opening
from app.ports.sealing import Vault
from app.ports.tool import ToolSpec
from app.services.approvals import Approvals
from app.services.branches import Branches
from app.services.capacity import Capacity
from app.services.client_calls import ClientCalls
from app.services.credentials import Credentials
from app.services.decisions import Choices
from app.services.keys import Gatekeeper, Keys
from app.services.limits import Limits, Meter
from app.services.mcp_servers import McpServers
from app.services.models import Models, OperatorModels
from app.services.named_secrets import NamedSecrets
from app.services.projects import Projects
from app.services.tools import Tools
from app.services.webhooks import Webhooks
from tests.support.ambient import FakeClock
from tests.support.postgres import PostgresServer

BASE = "http://localhost:8000"
BOOTSTRAP_KEY = "bootstrap-key-of-the-tests"
SEALING_KEYS = {"first": bytes(range(32))}
ADD = ToolSpec("add", "python", "Add two numbers.", {"type": "object", "properties": {}})


class NamedProvider:
    """A provider that is never opened; it refuses the option `bad`."""

    adapter_id = "named"

    def __init__(self, name: str) -> None:
        self.name = name

    def check(self, endpoint: ModelEndpoint) -> None:
        """See the port."""
        if "bad" in endpoint.options:
            raise Invalid(
                "bad option", errors=[FieldError("/options/bad", "no such option", "unknown_field")]
            )

    def capabilities(self, endpoint: ModelEndpoint) -> Capabilities:
        """See the port."""
        return Capabilities()

    def open(self, opening: Opening) -> AbstractAsyncContextManager[Any]:
        """See the port."""
        raise AssertionError("no test here calls a model")


@dataclass
class Api:
    """A server and what stands behind it."""

    app: FastAPI
    client: httpx.AsyncClient
    """Sends the bootstrap key, which has every scope in the project `home`."""
    services: Services
    database: Database
    clock: FakeClock
    home: UUID
    operator: Principal = field(init=False)

    def __post_init__(self) -> None:
        self.operator = Principal(self.home, None, ALL_SCOPES)

    async def project(self, name: str = "other") -> UUID:
        """A further project."""
        return (await self.services.projects.create(self.operator, name, None)).id

    async def key(self, *scopes: Scope, project: UUID | None = None) -> dict[str, str]:
        """Headers with a new key; every scope but operator unless some are named."""
        wanted = scopes or tuple(ALL_SCOPES - {Scope.OPERATOR})
        _, secret = await self.services.keys.create(
            self.operator, project or self.home, name="a key", scopes=wanted, expires_at=None
        )
        return {"Authorization": f"Bearer {secret}"}

    async def rows(self, statement: str, **values: Any) -> list[dict[str, Any]]:
        """What the database says."""
        async with self.database.writing() as connection:
            found = await connection.execute(text(statement), values)
            return [dict(row) for row in found.mappings()] if found.returns_rows else []

    async def branch(self, **settings: Any) -> dict[str, Any]:
        """A new branch of the home project."""
        answer = await self.client.post("/v1/branches", json=settings)
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made


@asynccontextmanager
async def serving(
    database_url: str,
    *,
    edge: Edge | None = None,
    addresses: AddressRule | None = None,
    exposed: Mapping[str, str | None] | None = None,
    readiness: Mapping[str, Any] | None = None,
    tool_ms: int = MOST_MS,
    vault: Vault | None = None,
    mcp: Sequence[McpServer] = (),
    installed: bool = True,
) -> AsyncIterator[Api]:
    """A server over the database, for the length of the block; in production mode unless `edge` says so."""
    edge = edge or Edge()
    clock, ids = FakeClock(), Uuid7Ids()
    engine = make_engine(database_url)
    database = Database(engine)
    projects = PostgresProjects(database, ids)
    home = (await projects.ensure("default")).id
    keys = Keys(PostgresKeys(database, ids), clock, pepper="pepper-of-the-tests")
    operator_models = OperatorModels()
    operator_models.add("local", ModelEndpoint("local", "scripted", "tiny", "http://127.0.0.1:1"))
    exposed = {"MODEL_KEY": "the value of the variable"} if exposed is None else exposed
    vault = vault or AesGcmVault(SEALING_KEYS)
    credentials = Credentials(PostgresCredentials(database, ids, vault), clock)
    secrets = NamedSecrets(exposed, credentials)
    models = Models(
        PostgresModels(database, ids, vault),
        clock,
        providers={name: NamedProvider(name) for name in ("scripted", "openai")},
        operator=operator_models,
        addresses=addresses or AddressRule(),
        secrets=secrets,
        capacity=Capacity(clock),
    )
    rule = addresses or AddressRule()
    peers = Peers(CheckedNetwork(rule.admits), exposed, credentials, {}, clock)
    mcp_servers = McpServers(
        PostgresMcpServers(database, ids, vault),
        peers,
        operator={server.name: server for server in mcp},
        addresses=rule,
        secrets=secrets,
        installed=installed,
    )
    tools = Tools(
        PostgresTools(database, ids, vault),
        clock,
        python={ADD.name: ADD},
        addresses=rule,
        secrets=secrets,
        most_ms=tool_ms,
        mcp=mcp_servers,
    )
    shares = PostgresShares(driver_arguments(database_url))
    services = Services(
        ids=ids,
        gatekeeper=Gatekeeper(
            keys,
            home=home,
            development=edge.development,
            bootstrap_key=None if edge.development else BOOTSTRAP_KEY,
        ),
        keys=keys,
        projects=Projects(projects),
        branches=Branches(PostgresBranches(database, ids), models, tools),
        models=models,
        tools=tools,
        mcp_servers=mcp_servers,
        webhooks=Webhooks(PostgresWebhooks(database, ids, vault), addresses or AddressRule()),
        approvals=Approvals(PostgresApprovals(database, ids), tools, clock),
        client_calls=ClientCalls(PostgresClientCalls(database), clock, ids),
        credentials=credentials,
        limits=Limits(PostgresQuotas(database, ids), Meter(shares, clock), keys.forget),
        replies=PostgresReplies(database),
        choices=Choices(Cel(), {}, addresses or AddressRule(), exposed),
        edge=edge,
        readiness=readiness or {},
    )
    app = build_app(services)
    headers = {} if edge.development else {"Authorization": f"Bearer {BOOTSTRAP_KEY}"}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers) as client:
        yield Api(app, client, services, database, clock, home)
    await shares.close()
    await peers.aclose()
    await engine.dispose()


def openapi_document() -> dict[str, Any]:
    """The document of the whole API, which needs no services behind it."""
    unused = cast(Any, None)
    services = Services(Uuid7Ids(), *(unused,) * 13)
    return build_app(services).openapi()


_EMPTY = (
    "DELETE FROM projects",
    "DELETE FROM events",
    "DELETE FROM token_blocks",
    "DELETE FROM audit_log",
)
"""Everything else goes with its project."""


@pytest.fixture(scope="session")
def shared_database_url(postgres: PostgresServer) -> Iterator[str]:
    """One migrated database for all tests over HTTP: making one each costs more than the tests."""

    async def make() -> str:
        made = await postgres.create()
        engine = make_engine(postgres.url_of(made))
        await migrate(engine, now_ms=SystemClock().wall_ms())
        await engine.dispose()
        return made

    name = asyncio.run(make())
    yield postgres.url_of(name)
    asyncio.run(postgres.drop(name))


@pytest.fixture
async def empty_database_url(shared_database_url: str) -> AsyncIterator[str]:
    """The shared database, emptied afterwards."""
    yield shared_database_url
    connection = await asyncpg.connect(shared_database_url)
    try:
        for statement in _EMPTY:
            await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture
async def api(empty_database_url: str) -> AsyncIterator[Api]:
    """A server in production mode over an empty database."""
    async with serving(empty_database_url) as made:
        yield made
