"""Whatever leaves the service for an address of a client's passes the one check of addresses."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import pytest

from tests.conftest import ROOT

APP = ROOT / "app"

OPENERS = frozenset(
    {
        *("AsyncClient", "Client", "AsyncHTTPTransport", "HTTPTransport"),  # httpx
        *("AsyncConnectionPool", "ConnectionPool", "AsyncHTTPProxy", "HTTPProxy", "AsyncSOCKSProxy"),
        *("AsyncHTTPConnection", "HTTPConnection", "HTTPSConnection", "AnyIOBackend", "AutoBackend"),
        *("ClientSession", "TCPConnector", "UnixConnector"),  # aiohttp
        *("open_connection", "open_unix_connection", "create_connection", "create_unix_connection"),
        *("create_datagram_endpoint", "connect_tcp", "connect_unix", "sock_connect", "getaddrinfo"),
        *("gethostbyname", "socketpair", "socket", "urlopen", "streamablehttp_client", "sse_client"),
        *("streamable_http_client", "websocket_client"),
    }
)
"""Names by which a connection, or a client that makes them, comes into being."""

SHORT_WAYS = frozenset(
    f"{client}.{name}"
    for client in ("httpx", "httpx2", "aiohttp")
    for name in ("get", "post", "put", "patch", "delete", "request", "stream")
)
"""Requests without a client."""

CLIENTS = frozenset(
    {
        *("requests", "urllib.request", "urllib3", "http.client", "ftplib", "smtplib", "telnetlib"),
        *("websockets", "socks", "anyio", "xmlrpc.client"),
    }
)
"""Modules that connect by themselves."""

CHECKED: Mapping[str, str] = {
    "adapters/checked_network.py": "the check itself, below every pool of httpcore's",
    "adapters/mcp/session.py": "MCP servers: the SDK's client, all of whose requests the next one carries",
    "adapters/mcp/wire.py": "MCP servers: a pool of the SDK's own httpcore, above the same check",
    "adapters/http_client.py": "models: aiohttp's connector, which asks the same check",
}
OURS: Mapping[str, str] = {
    "adapters/embedded/model.py": "asks the model server that the service itself started whether it is up",
    "adapters/embedded/server.py": "the Postgres that the service itself started, through a Unix socket",
    "adapters/mcp/process.py": "a program of the operator's, through its standard input and output",
    "first_job.py": "the command speaks to the service on this machine",
    "server.py": "listens",
}
"""What connects to nothing that a client named. The database is the operator's; `.importlinter` keeps its
driver in one place."""


def openers_in(source: str) -> Iterator[str]:
    """Everything in a module that could make a connection, annotations left out."""
    tree = ast.parse(source)
    annotations = {id(part) for node in ast.walk(tree) for part in _annotated(node)}
    for node in ast.walk(tree):
        if id(node) in annotations:
            continue
        match node:
            case ast.Attribute(attr=name) if name in OPENERS or ast.unparse(node) in SHORT_WAYS:
                yield ast.unparse(node)
            case ast.Name(id=name) if name in OPENERS and name != "socket":
                yield name
            case ast.Import(names=names):
                yield from (each.name for each in names if each.name in CLIENTS)
            case ast.ImportFrom(module=module, names=names):
                every = [f"{module}.{each.name}" for each in names]
                yield from (name for name in [module or "", *every] if name in CLIENTS)
                yield from (each.name for each in names if each.name in OPENERS)


def _annotated(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.arg(annotation=said) | ast.AnnAssign(annotation=said) if said is not None:
            yield from ast.walk(said)
        case ast.FunctionDef(returns=said) | ast.AsyncFunctionDef(returns=said) if said is not None:
            yield from ast.walk(said)


def found() -> dict[str, list[str]]:
    """The modules of the service that could make a connection, and by what."""
    sources = {path.relative_to(APP).as_posix(): path.read_text("utf-8") for path in APP.rglob("*.py")}
    return {name: openers for name, source in sources.items() if (openers := [*openers_in(source)])}


def test_connections_are_made_in_a_few_places_that_are_known() -> None:
    assert {name: by for name, by in found().items() if name not in {**CHECKED, **OURS}} == {}


def test_the_places_that_are_known_are_still_such() -> None:
    assert sorted(found()) == sorted({**CHECKED, **OURS})


@pytest.mark.parametrize(
    "source",
    [
        "import httpx\nasync def f():\n    async with httpx.AsyncClient() as c: pass",
        "from httpx import AsyncClient",
        "import httpcore\npool = httpcore.AsyncConnectionPool()",
        "import asyncio\nasync def f(): await asyncio.open_connection('h', 1)",
        "import asyncio\nasync def f(): await asyncio.get_running_loop().create_connection(None, 'h', 1)",
        "import aiohttp\nsession = aiohttp.ClientSession()",
        "import socket\ns = socket.socket()",
        "from socket import create_connection",
        "from urllib import request",
        "import urllib.request",
        "from urllib.request import urlopen",
        "import requests",
        "import httpx\nhttpx.post('http://h')",
        "import httpx\nclass Mine(httpx.AsyncClient): pass",
        "from mcp.client.streamable_http import streamablehttp_client",
    ],
)
def test_a_connection_of_ones_own_is_noticed(source: str) -> None:
    assert [*openers_in(source)]


def test_a_name_in_an_annotation_connects_to_nothing() -> None:
    source = "def f(client: httpx.AsyncClient) -> httpx.AsyncClient: ...\nx: socket.socket"
    assert [*openers_in(source)] == []
