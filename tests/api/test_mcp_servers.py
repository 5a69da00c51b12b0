"""MCP servers over HTTP: what is taken, what is refused, what is shown. None of them is spoken with here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.adapters.db import mcp_servers as stored
from app.adapters.sealing import AesGcmVault
from app.core.access import Scope
from app.core.addresses import AddressRule
from app.core.mcp_server import McpServer
from app.core.sealing import MARK
from tests.support.api import Api, serving

pytestmark = pytest.mark.anyio

PATH = "/v1/mcp-servers"
BODY: dict[str, Any] = {
    "url": "https://mcp.example/in?team=1",
    "headers": {"Authorization": "env:MODEL_KEY", "X-Team": "a written secret"},
    "timeout_ms": {"connect": 1, "request": 2, "call": 3},
    "trust_hints": True,
}
SHOWN = {**BODY, "headers": {"Authorization": "env:MODEL_KEY", "X-Team": None}}
UNKNOWN = {"state": "idle", "reason": None, "tools": None, "protocol_version": None, "listed_at": None}
FILES = McpServer("files", command=("serve-files", "--token=abc"), env=("FILES",))


@pytest.fixture
async def api(empty_database_url: str) -> AsyncIterator[Api]:
    async with serving(empty_database_url, mcp=(FILES,)) as made:
        yield made


async def test_a_server_is_registered_read_replaced_and_removed(api: Api) -> None:
    answer = await api.client.post(PATH, json={"name": "town", **BODY})
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"{PATH}/town"
    made = answer.json()
    expected = {**SHOWN, **UNKNOWN, "name": "town", "transport": "http", "source": "project"}
    assert {name: made[name] for name in expected} == expected
    assert (await api.client.post(PATH, json={"name": "town", **BODY})).status_code == 409
    answer = await api.client.put(f"{PATH}/town", json={"name": "town", "url": "https://mcp.example/"})
    assert answer.status_code == 200
    assert answer.json()["timeout_ms"] == {"connect": 5_000, "request": 15_000, "call": 60_000}
    assert answer.json()["created_at"] == made["created_at"] != answer.json()["updated_at"]
    assert (await api.client.put(f"{PATH}/other", json=BODY)).status_code == 201
    listed = (await api.client.get(PATH)).json()
    assert [(each["name"], each["source"]) for each in listed["data"]] == [
        ("files", "operator"),
        ("other", "project"),
        ("town", "project"),
    ]
    assert (await api.client.delete(f"{PATH}/town")).status_code == 204
    assert (await api.client.delete(f"{PATH}/town")).status_code == 404
    assert (await api.client.get(f"{PATH}/town")).status_code == 404


async def test_changes_are_in_the_audit_log_without_secrets(api: Api) -> None:
    await api.client.put(f"{PATH}/town", json=BODY)
    await api.client.put(f"{PATH}/town", json={**BODY, "url": "https://mcp.example/b"})
    await api.client.delete(f"{PATH}/town")
    rows = await api.rows("SELECT action, subject, detail FROM audit_log ORDER BY at, id")
    assert [(row["action"].partition(".")[2], row["detail"]["changed"]) for row in rows] == [
        ("create", ["headers", "name", "timeout_ms", "trust_hints", "url"]),
        ("replace", ["url"]),
        ("delete", ["headers", "name", "timeout_ms", "trust_hints", "url"]),
    ]
    assert {row["subject"] for row in rows} == {"mcp_server:town"}
    assert "secret" not in str(rows)


async def test_a_registration_comes_once_and_shows_no_secret(api: Api) -> None:
    once = {"Idempotency-Key": "once"}
    answers = [await api.client.post(PATH, json={"name": "t", **BODY}, headers=once) for _ in range(2)]
    answers.append(await api.client.get(PATH))
    assert [answer.status_code for answer in answers] == [201, 201, 200]
    assert answers[0].json() == answers[1].json()
    for answer in answers:
        assert "a written secret" not in answer.text
        assert "--token" not in answer.text


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"name": "a__b"}, "/name", "invalid"),
        ({"name": "Town"}, "/name", "invalid"),
        ({"name": "x" * 60}, "/name", "invalid"),
        ({"url": "http://127.0.0.1/mcp"}, "/url", "address_not_allowed"),
        ({"url": "http://[::ffff:7f00:1]/mcp"}, "/url", "address_not_allowed"),
        ({"url": "ftp://mcp.example/"}, "/url", "address_not_allowed"),
        ({"url": "https://me:pass@mcp.example/"}, "/url", "address_not_allowed"),
        ({"url": None}, "/url", "wrong_type"),
        ({"command": ["sh", "-c", "id"]}, "/command", "unsupported_option"),
        ({"env": ["PATH"]}, "/env", "unknown_field"),
        ({"cwd": "/"}, "/cwd", "unknown_field"),
        ({"trust_hints": 1}, "/trust_hints", "wrong_type"),
        ({"timeout_ms": {"call": 600_001}}, "/timeout_ms/call", "invalid"),
        ({"headers": {"X": "env:PATH"}}, "/headers/X", "not_exposed"),
        ({"headers": {"X": "credential:none"}}, "/headers/X", "unknown_credential"),
        ({"headers": {"X": "sealed:AAAA"}}, "/headers/X", "invalid"),
        ({"headers": {"Mcp-Session-Id": "1"}}, "/headers/Mcp-Session-Id", "invalid"),
        ({"headers": {"Host": "a"}}, "/headers/Host", "invalid"),
    ],
)
async def test_bad_servers_are_refused(api: Api, change: dict[str, Any], pointer: str, code: str) -> None:
    answer = await api.client.post(PATH, json={"name": "t", **BODY, **change})
    problem = answer.json()
    assert answer.status_code == 422, problem
    assert [(e["pointer"], e["code"]) for e in problem["errors"]] == [(pointer, code)]


async def test_the_operators_are_read_only(api: Api) -> None:
    shown = (await api.client.get(PATH)).json()["data"][0]
    assert (shown["name"], shown["transport"], shown["url"], shown["created_at"]) == (
        *("files", "stdio"),
        *(None, None),
    )
    for answer in (
        await api.client.post(PATH, json={"name": "files", **BODY}),
        await api.client.put(f"{PATH}/files", json=BODY),
        await api.client.delete(f"{PATH}/files"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert "branchline.toml" in answer.json()["detail"]


async def test_without_the_extra_it_is_said_what_to_install(empty_database_url: str) -> None:
    async with serving(empty_database_url, installed=False, addresses=AddressRule(private=True)) as api:
        answer = await api.client.post(PATH, json={"name": "t", **BODY})
        assert (answer.status_code, answer.json()["code"]) == (422, "unsupported_option")
        assert "pip install 'branchline[mcp]'" in answer.json()["detail"]


async def test_who_may(api: Api) -> None:
    for scope, expected in ((Scope.ADMIN, 201), (Scope.RUN, 403), (Scope.READ, 403)):
        headers = await api.key(scope)
        answer = await api.client.post(PATH, json={"name": scope.value, **BODY}, headers=headers)
        assert answer.status_code == expected
    assert (await api.client.get(PATH, headers=await api.key(Scope.READ))).status_code == 200
    assert (await api.client.get(PATH, headers=await api.key(Scope.RUN))).status_code == 403


async def test_there_is_an_end_to_how_many(api: Api) -> None:
    for n in range(stored.MOST):
        assert (await api.client.put(f"{PATH}/s{n}", json=BODY)).status_code == 201
    answer = await api.client.put(f"{PATH}/more", json=BODY)
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert (await api.client.put(f"{PATH}/s0", json=BODY)).status_code == 200


async def test_values_of_headers_are_sealed_and_may_name_credentials(api: Api) -> None:
    await api.client.put("/v1/credentials/town", json={"kind": "token", "secret": "a stored secret"})
    headers = {"X-Written": "a written secret", "X-Stored": "credential:town"}
    answer = await api.client.put(f"{PATH}/town", json={**BODY, "headers": headers})
    assert answer.json()["headers"] == {**headers, "X-Written": None}
    (row,) = await api.rows("SELECT settings->'headers' AS headers FROM mcp_servers")
    assert row["headers"]["X-Written"].startswith(MARK)
    assert row["headers"]["X-Stored"] == "credential:town"
    _, (kept,) = await api.services.mcp_servers.with_tools(api.home)
    assert dict(kept.server.headers) == headers
    answer = await api.client.delete("/v1/credentials/town")
    assert (answer.status_code, answer.json()["used_by"]) == (409, ["MCP server town"])


async def test_without_a_sealing_key_no_header_is_written_out(empty_database_url: str) -> None:
    async with serving(empty_database_url, vault=AesGcmVault({})) as api:
        answer = await api.client.put(f"{PATH}/town", json=BODY)
        assert (answer.status_code, answer.json()["code"]) == (409, "no_sealing_key")
        named = {**BODY, "headers": {"Authorization": "env:MODEL_KEY"}}
        assert (await api.client.put(f"{PATH}/town", json=named)).status_code == 201
