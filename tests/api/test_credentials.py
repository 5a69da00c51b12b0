"""Credentials over HTTP: what goes in never comes out, and what refers to one is found."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import text

from app.adapters.sealing import AesGcmVault
from app.core.access import Scope
from app.core.errors import CredentialUnreadable, UnknownCredential
from app.services.credentials import REMEMBERED_MS
from tests.support.api import Api, serving
from tests.support.polling import until_true

pytestmark = pytest.mark.anyio

SECRET = "sk-a-secret-that-nobody-may-see"
SIGNING = "whsec_" + "QUJD" * 12
BODY: dict[str, Any] = {"kind": "token", "secret": SECRET}
MODEL = {"provider": "openai", "model": "m", "credential": "openai"}
TOOL = {
    "kind": "http",
    "parameters": {"type": "object"},
    "http": {"url": "https://tools.example", "headers": {"Authorization": "credential:openai"}},
}


async def stored(api: Api, name: str = "openai", **more: Any) -> dict[str, Any]:
    answer = await api.client.put(f"/v1/credentials/{name}", json={**BODY, **more})
    assert answer.status_code < 300, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def test_a_credential_is_stored_read_replaced_and_removed(api: Api) -> None:
    answer = await api.client.post("/v1/credentials", json={"name": "openai", **BODY})
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert answer.headers["location"] == "/v1/credentials/openai"
    told = {"object": "credential", "name": "openai", "kind": "token", "key_id": "first", "readable": True}
    assert made == {**told, **{at: made["created_at"] for at in ("created_at", "updated_at", "rotated_at")}}
    assert (await api.client.get("/v1/credentials/openai")).json() == made
    assert (await api.client.get("/v1/credentials")).json()["data"] == [made]
    answer = await api.client.put(
        "/v1/credentials/openai", json={"kind": "signing_secret", "secret": SIGNING}
    )
    assert answer.status_code == 200
    replaced = answer.json()
    assert (replaced["kind"], replaced["created_at"]) == ("signing_secret", made["created_at"])
    assert replaced["updated_at"] > made["updated_at"]
    assert (await api.client.put("/v1/credentials/other", json=BODY)).status_code == 201
    assert (await api.client.delete("/v1/credentials/openai")).status_code == 204
    assert (await api.client.get("/v1/credentials/openai")).status_code == 404
    assert (await api.client.delete("/v1/credentials/openai")).status_code == 404


async def test_a_name_is_given_once_and_a_repeat_is_answered_from_before(api: Api) -> None:
    once = {"Idempotency-Key": "once"}
    body = {"name": "openai", **BODY}
    first = await api.client.post("/v1/credentials", json=body, headers=once)
    again = await api.client.post("/v1/credentials", json=body, headers=once)
    assert (again.status_code, again.json()) == (201, first.json())
    other = await api.client.post("/v1/credentials", json={**body, "secret": SECRET + "2"}, headers=once)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    taken = await api.client.post("/v1/credentials", json=body)
    assert (taken.status_code, taken.json()["errors"][0]["code"]) == (409, "name_taken")
    for answer in (first, again, other, taken):
        assert SECRET not in answer.text


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"secret": "short"}, "/secret"),
        ({"secret": "x" * 4_097}, "/secret"),
        ({"secret": "x" * 9_000}, "/secret"),
        ({"secret": f"{SECRET}\n"}, "/secret"),
        ({"secret": f" {SECRET}"}, "/secret"),
        ({"secret": f"{SECRET}ü"}, "/secret"),
        ({"secret": [SECRET]}, "/secret"),
        ({"secret": None}, "/secret"),
        ({"kind": "signing_secret"}, "/secret"),
        ({"kind": "signing_secret", "secret": "whsec_QUJD"}, "/secret"),
        ({"kind": "password"}, "/kind"),
        ({"name": "a/b"}, "/name"),
        ({"name": "a:b"}, "/name"),
        ({"value": SECRET}, "/value"),
    ],
)
async def test_bad_credentials_are_refused_without_telling_them(
    api: Api, change: dict[str, Any], pointer: str
) -> None:
    answer = await api.client.post("/v1/credentials", json={"name": "n", **BODY, **change})
    assert answer.status_code == 422, answer.text
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
    assert SECRET not in answer.text
    assert await api.rows("SELECT id FROM credentials") == []


async def test_scopes_and_projects_are_kept_apart(api: Api) -> None:
    await stored(api)
    reader = await api.key(Scope.READ, Scope.RUN)
    assert (await api.client.get("/v1/credentials/openai", headers=reader)).status_code == 200
    for method, path in (("PUT", "/openai"), ("DELETE", "/openai"), ("POST", "")):
        answer = await api.client.request(method, f"/v1/credentials{path}", json=BODY, headers=reader)
        assert answer.status_code == 403
    project = await api.project()
    theirs = await api.key(project=project)
    assert (await api.client.get("/v1/credentials/openai", headers=theirs)).status_code == 404
    assert (await api.client.delete("/v1/credentials/openai", headers=theirs)).status_code == 404
    answer = await api.client.put("/v1/models/m", json=MODEL, headers=theirs)
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "unknown_credential")
    with pytest.raises(UnknownCredential):
        await api.services.credentials.secret(project, "openai")


async def test_changes_are_in_the_audit_log_without_the_secret(api: Api) -> None:
    await stored(api)
    await stored(api, secret=SECRET + "2")
    await api.client.delete("/v1/credentials/openai")
    rows = await api.rows("SELECT * FROM audit_log ORDER BY id")
    assert [(row["action"], row["subject"]) for row in rows] == [
        (f"credential.{verb}", "credential:openai") for verb in ("create", "replace", "delete")
    ]
    assert rows[1]["detail"] == {"changed": ["secret"]}
    assert SECRET not in str(rows)


async def test_a_model_has_its_key_from_a_credential_or_a_variable(api: Api) -> None:
    await stored(api)
    assert (await api.client.put("/v1/models/m", json=MODEL)).json()["credential"] == "openai"
    resolved = await api.services.models.resolve(api.home, "m")
    assert resolved.endpoint.api_key == SECRET
    both = {**MODEL, "api_key_env": "MODEL_KEY"}
    answer = await api.client.put("/v1/models/n", json=both)
    assert [(e["pointer"], e["code"]) for e in answer.json()["errors"]] == [("/credential", "contradictory")]
    answer = await api.client.put("/v1/models/n", json={**MODEL, "credential": "nobody"})
    assert [(e["pointer"], e["code"]) for e in answer.json()["errors"]] == [
        ("/credential", "unknown_credential")
    ]


async def test_a_new_secret_counts_at_once_here_and_soon_elsewhere(api: Api, empty_database_url: str) -> None:
    await stored(api)
    await api.client.put("/v1/models/m", json=MODEL)
    async with serving(empty_database_url) as elsewhere:
        for each in (api, elsewhere):
            assert (await each.services.models.resolve(api.home, "m")).endpoint.api_key == SECRET
        await stored(api, secret="another secret")
        same = await api.services.models.resolve(api.home, "m")
        assert same.endpoint.api_key == "another secret"
        assert (await api.services.models.resolve(api.home, "m")).endpoint is same.endpoint
        assert (await elsewhere.services.models.resolve(api.home, "m")).endpoint.api_key == SECRET
        elsewhere.clock.now_ms += REMEMBERED_MS + 1
        found = await elsewhere.services.models.resolve(api.home, "m")
        assert found.endpoint.api_key == "another secret"


async def test_headers_of_models_are_sealed_hidden_and_may_name_secrets(api: Api) -> None:
    await stored(api)
    headers = {"X-Written": SECRET, "X-Variable": "env:MODEL_KEY", "X-Stored": "credential:openai"}
    answer = await api.client.put(
        "/v1/models/m", json={"provider": "openai", "model": "m", "options": {"headers": headers}}
    )
    assert answer.json()["options"] == {"headers": {**headers, "X-Written": None}}
    endpoint = (await api.services.models.resolve(api.home, "m")).endpoint
    assert endpoint.options["headers"] == {
        "X-Written": SECRET,
        "X-Variable": "the value of the variable",
        "X-Stored": SECRET,
    }
    faults = {"env:PATH": "not_exposed", "credential:x": "unknown_credential", "sealed:": "invalid"}
    for value, code in faults.items():
        body = {"provider": "openai", "model": "m", "options": {"headers": {"X": value}}}
        error = (await api.client.put("/v1/models/n", json=body)).json()["errors"][0]
        assert (error["pointer"], error["code"]) == ("/options/headers/X", code)


async def test_what_is_used_is_not_removed(api: Api) -> None:
    await stored(api)
    await api.client.put("/v1/models/by-key", json=MODEL)
    named = {"provider": "openai", "model": "m", "options": {"headers": {"X": "credential:openai"}}}
    await api.client.put("/v1/models/by-header", json=named)
    assert (await api.client.put("/v1/tools/t", json=TOOL)).status_code == 201
    await stored(api, "open")  # the beginning of another name is no reference to it
    assert (await api.client.delete("/v1/credentials/open")).status_code == 204
    answer = await api.client.delete("/v1/credentials/openai")
    assert (answer.status_code, answer.json()["used_by"]) == (
        409,
        ["model by-header", "model by-key", "tool t"],
    )
    for path in ("/v1/models/by-header", "/v1/models/by-key", "/v1/tools/t"):
        assert (await api.client.delete(path)).status_code == 204
    assert (await api.client.delete("/v1/credentials/openai")).status_code == 204


REGISTERED: dict[str, dict[str, Any]] = {
    "/v1/models/m": MODEL,
    "/v1/models/n": {
        "provider": "openai",
        "model": "m",
        "options": {"headers": {"X": "credential:openai"}},
    },
    "/v1/tools/t": TOOL,
    "/v1/mcp-servers/s": {"url": "https://mcp.example", "headers": {"X": "credential:openai"}},
}
WAITING = (
    "SELECT count(*) AS n FROM pg_stat_activity "
    "WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


@pytest.mark.parametrize("path", REGISTERED)
async def test_what_is_removed_while_it_is_being_named_is_not_named(api: Api, path: str) -> None:
    await stored(api)
    async with api.database.writing() as connection:
        await connection.execute(text("DELETE FROM credentials WHERE name = 'openai'"))
        naming = asyncio.create_task(api.client.put(path, json=REGISTERED[path]))
        await until_true(lambda: waiting(api, 1))
    answer = await naming
    assert (answer.status_code, answer.json()["code"]) == (422, "unknown_credential")
    assert (await api.client.get(path)).status_code == 404


@pytest.mark.parametrize("path", REGISTERED)
async def test_what_is_being_named_is_not_removed(api: Api, path: str) -> None:
    await stored(api)
    async with api.database.writing() as connection:
        # The last thing that is written of a registration, which waits for it.
        await connection.execute(text("LOCK TABLE audit_log IN EXCLUSIVE MODE"))
        naming = asyncio.create_task(api.client.put(path, json=REGISTERED[path]))
        await until_true(lambda: waiting(api, 1))
        removing = asyncio.create_task(api.client.delete("/v1/credentials/openai"))
        await until_true(lambda: waiting(api, 2))
    assert (await naming).status_code == 201
    assert ((await removing).status_code, (await removing).json()["code"]) == (409, "conflict")


async def waiting(api: Api, count: int) -> bool:
    return bool((await api.rows(WAITING))[0]["n"] >= count)


async def test_without_a_sealing_key_nothing_secret_is_stored(empty_database_url: str) -> None:
    async with serving(empty_database_url, vault=AesGcmVault({})) as api:
        written = {"provider": "openai", "model": "m", "options": {"headers": {"X": SECRET}}}
        tool = {**TOOL, "http": {"url": "https://tools.example", "headers": {"X": SECRET}}}
        for path, body in (
            ("/v1/credentials/c", BODY),
            ("/v1/models/m", written),
            ("/v1/tools/t", tool),
        ):
            answer = await api.client.put(path, json=body)
            assert (answer.status_code, answer.json()["code"]) == (409, "no_sealing_key"), path
            assert SECRET not in answer.text
        answer = await api.client.post("/v1/webhook-endpoints", json={"url": "https://hooks.example"})
        assert (answer.status_code, answer.json()["code"]) == (409, "no_sealing_key")
        by_name = {"provider": "openai", "model": "m", "api_key_env": "MODEL_KEY"}
        assert (await api.client.put("/v1/models/m", json=by_name)).status_code == 201


async def test_what_no_key_opens_is_told_and_can_be_set_anew(api: Api, empty_database_url: str) -> None:
    await stored(api)
    await api.client.put("/v1/models/m", json=MODEL)
    async with serving(empty_database_url, vault=AesGcmVault({"second": bytes(32)})) as later:
        seen = (await later.client.get("/v1/credentials/openai")).json()
        assert (seen["key_id"], seen["readable"]) == ("first", False)
        with pytest.raises(CredentialUnreadable, match="'first'"):
            await later.services.models.resolve(api.home, "m")
        assert (await stored(later))["key_id"] == "second"
        assert (await later.services.models.resolve(api.home, "m")).endpoint.api_key == SECRET


async def test_a_secret_does_not_open_in_another_row(api: Api) -> None:
    await stored(api)
    await stored(api, "other")
    await api.rows(
        "UPDATE credentials SET secret = (SELECT secret FROM credentials WHERE name = 'openai') "
        "WHERE name = 'other'"
    )
    assert await api.services.credentials.secret(api.home, "openai") == SECRET
    with pytest.raises(CredentialUnreadable):
        await api.services.credentials.secret(api.home, "other")


async def test_rows_of_before_go_on_working(api: Api) -> None:
    """Headers that an earlier version stored as they were."""
    await stored(api)
    for path, body in (("/v1/tools/t", TOOL), ("/v1/models/m", MODEL)):
        assert (await api.client.put(path, json=body)).status_code == 201
    await api.rows("""UPDATE models SET options = '{"headers": {"X": "plain"}}'""")
    await api.rows(
        """UPDATE tools SET settings = jsonb_set(settings::jsonb, '{headers}', '{"X": "plain"}')"""
    )
    assert (await api.services.models.resolve(api.home, "m")).endpoint.options == {"headers": {"X": "plain"}}
    assert (await api.services.tools.tools(api.home))["t"].settings["headers"] == {"X": "plain"}
