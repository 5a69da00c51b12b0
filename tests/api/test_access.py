"""Keys, scopes and projects over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
import pytest

from app.core.access import Scope
from app.services.keys import REMEMBERED_MS
from tests.support.api import BASE, BOOTSTRAP_KEY, Api

pytestmark = pytest.mark.anyio


def anyone(api: Api, headers: dict[str, str] | None = None) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(api.app), base_url=BASE, headers=headers)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer bl_unknown",
        "Basic dXNlcjpwYXNz",
        BOOTSTRAP_KEY,
        f"Bearer {BOOTSTRAP_KEY}x",
        "Bearer " + "x" * 10_000,
        "Bearer bl_\xfcml\xe4ut",
    ],
    ids=lambda value: repr(value)[:24],
)
async def test_without_a_valid_key_nothing_is_told(api: Api, header: str | None) -> None:
    headers = [] if header is None else [(b"Authorization", header.encode("latin-1"))]
    async with anyone(api) as client:
        for path in ("/v1/branches", "/v1/branches/not-an-id", "/v1/version", "/v1/models/local"):
            answer = await client.get(path, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated"), path
            assert answer.headers["www-authenticate"] == "Bearer"
        answer = await client.post("/v1/branches", content=b"{", headers=headers)
        assert answer.status_code == 401


async def made_key(api: Api, **body: Any) -> dict[str, Any]:
    answer = await api.client.post(f"/v1/projects/{api.home}/keys", json={"name": "a key", **body})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def test_a_key_is_shown_once_and_kept_as_a_digest(api: Api) -> None:
    made = await made_key(api, scopes=["read"])
    secret = made["key"]
    assert secret.startswith("bl_")
    assert len(secret) == 3 + 43
    assert secret.startswith(made["prefix"])
    listed = await api.client.get(f"/v1/projects/{api.home}/keys")
    assert secret not in listed.text
    shown = {name: value for name, value in made.items() if name != "key"}
    assert listed.json()["data"] == [shown]
    stored = repr(await api.rows("SELECT * FROM api_keys, audit_log"))
    assert secret not in stored
    assert secret[3:] not in stored
    async with anyone(api, {"Authorization": f"Bearer {secret}"}) as client:
        assert (await client.get("/v1/branches")).status_code == 200
        answer = await client.post("/v1/branches", json={})
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


async def test_a_revoked_key_is_refused_everywhere_within_seconds(api: Api) -> None:
    made = await made_key(api)
    async with anyone(api, {"Authorization": f"Bearer {made['key']}"}) as client:
        assert (await client.get("/v1/branches")).status_code == 200
        # As another process would do it:
        await api.rows("UPDATE api_keys SET revoked_at = now()")
        assert (await client.get("/v1/branches")).status_code == 200
        api.clock.now_ms += REMEMBERED_MS
        assert (await client.get("/v1/branches")).status_code == 401


async def test_revoking_takes_effect_at_once_here_and_only_once(api: Api) -> None:
    made = await made_key(api)
    url = f"/v1/projects/{api.home}/keys/{made['id']}"
    async with anyone(api, {"Authorization": f"Bearer {made['key']}"}) as client:
        assert (await client.get("/v1/branches")).status_code == 200
        first = (await api.client.delete(url)).json()
        assert first["revoked_at"] is not None
        assert (await client.get("/v1/branches")).status_code == 401
    assert (await api.client.delete(url)).json() == first
    assert await api.rows("SELECT action FROM audit_log ORDER BY id") == [
        {"action": "key.create"},
        {"action": "key.revoke"},
    ]


async def test_a_key_expires(api: Api) -> None:
    now = datetime.fromtimestamp(api.clock.wall_ms() / 1000, UTC)
    made = await made_key(api, expires_at=(now + timedelta(seconds=1)).isoformat())
    async with anyone(api, {"Authorization": f"Bearer {made['key']}"}) as client:
        assert (await client.get("/v1/branches")).status_code == 200
        api.clock.now_ms += 1_000
        assert (await client.get("/v1/branches")).status_code == 401


SCOPES = ["read", "run", "approve", "admin", "operator"]
ID = "00000000-0000-7000-8000-000000000000"


@pytest.mark.parametrize(
    ("method", "path", "body", "allowed"),
    [
        ("GET", "/v1/branches", None, {"read"}),
        ("POST", "/v1/branches", {}, {"run"}),
        ("GET", f"/v1/branches/{ID}", None, {"read"}),
        ("PATCH", f"/v1/branches/{ID}", {}, {"run"}),
        ("DELETE", f"/v1/branches/{ID}", None, {"run"}),
        ("POST", f"/v1/branches/{ID}/fork", {}, {"run"}),
        ("GET", f"/v1/branches/{ID}/messages", None, {"read"}),
        ("POST", f"/v1/branches/{ID}/messages", {"messages": []}, {"run"}),
        ("GET", "/v1/models", None, {"read"}),
        ("POST", "/v1/models", {}, {"admin"}),
        ("GET", "/v1/models/local", None, {"read"}),
        ("PUT", "/v1/models/x", {}, {"admin"}),
        ("DELETE", "/v1/models/x", None, {"admin"}),
        ("GET", "/v1/tools", None, {"read"}),
        ("GET", "/v1/tools/add", None, {"read"}),
        ("POST", "/v1/tools", {}, {"admin"}),
        ("PUT", "/v1/tools/add", {}, {"admin"}),
        ("DELETE", "/v1/tools/add", None, {"admin"}),
        ("GET", "/v1/credentials", None, {"read"}),
        ("GET", "/v1/credentials/x", None, {"read"}),
        ("POST", "/v1/credentials", {}, {"admin"}),
        ("PUT", "/v1/credentials/x", {}, {"admin"}),
        ("DELETE", "/v1/credentials/x", None, {"admin"}),
        ("GET", "/v1/projects", None, {"operator"}),
        ("POST", "/v1/projects", {"name": "x"}, {"operator"}),
        ("GET", "/v1/projects/HOME", None, set(SCOPES)),
        ("PATCH", "/v1/projects/HOME", {}, {"admin", "operator"}),
        ("GET", "/v1/projects/HOME/keys", None, {"admin", "operator"}),
        ("POST", "/v1/projects/HOME/keys", {"name": "x"}, {"admin", "operator"}),
        ("DELETE", f"/v1/projects/HOME/keys/{ID}", None, {"admin", "operator"}),
        ("GET", "/v1/limits", None, set(SCOPES)),
        ("GET", "/v1/projects/HOME/limits", None, set(SCOPES)),
        ("PUT", "/v1/projects/HOME/limits", {}, {"admin", "operator"}),
        ("GET", f"/v1/projects/HOME/keys/{ID}/limits", None, {"admin", "operator"}),
        ("PUT", f"/v1/projects/HOME/keys/{ID}/limits", {}, {"admin", "operator"}),
        ("GET", "/v1/webhook-endpoints", None, {"admin"}),
        ("POST", "/v1/webhook-endpoints", {"url": "https://hooks.example"}, {"admin"}),
        ("GET", f"/v1/webhook-endpoints/{ID}", None, {"admin"}),
        ("PATCH", f"/v1/webhook-endpoints/{ID}", {}, {"admin"}),
        ("DELETE", f"/v1/webhook-endpoints/{ID}", None, {"admin"}),
        ("POST", f"/v1/webhook-endpoints/{ID}/rotate-secret", None, {"admin"}),
        ("GET", f"/v1/webhook-endpoints/{ID}/deliveries", None, {"admin"}),
        ("POST", f"/v1/webhook-endpoints/{ID}/deliveries/{ID}/redrive", None, {"admin"}),
        ("GET", "/v1/version", None, set(SCOPES)),
        ("GET", "/v1/event-types", None, set(SCOPES)),
    ],
)
async def test_each_route_needs_its_scope(
    api: Api, method: str, path: str, body: Any, allowed: set[str]
) -> None:
    path = path.replace("HOME", str(api.home))
    for scope in SCOPES:
        headers = await api.key(Scope(scope))
        async with anyone(api, headers) as client:
            answer = await client.request(method, path, json=body)
        assert (answer.status_code != 403) == (scope in allowed), (scope, answer.text)


async def test_an_admin_governs_the_keys_of_the_own_project_alone(api: Api) -> None:
    other = await api.project()
    async with anyone(api, await api.key(Scope.ADMIN)) as client:
        own, foreign = f"/v1/projects/{api.home}", f"/v1/projects/{other}"
        assert (await client.post(f"{own}/keys", json={"name": "x"})).status_code == 201
        answer = await client.post(f"{own}/keys", json={"name": "x", "scopes": ["operator"]})
        assert answer.status_code == 403
        for method, path, body in [
            ("GET", foreign, None),
            ("PATCH", foreign, {"name": "mine"}),
            ("GET", f"{foreign}/keys", None),
            ("POST", f"{foreign}/keys", {"name": "x"}),
            ("DELETE", f"{foreign}/keys/{ID}", None),
            ("GET", f"{foreign}/limits", None),
            ("PUT", f"{foreign}/limits", {}),
            ("GET", f"{foreign}/keys/{ID}/limits", None),
            ("PUT", f"{foreign}/keys/{ID}/limits", {}),
        ]:
            answer = await client.request(method, path, json=body)
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), (method, path)
    names = [row["name"] for row in await api.rows("SELECT name FROM projects ORDER BY name")]
    assert names == ["default", "other"]


async def test_a_key_is_revoked_at_the_address_of_its_own_project_alone(api: Api) -> None:
    other = await api.project()
    made = await made_key(api)
    answer = await api.client.delete(f"/v1/projects/{other}/keys/{made['id']}")
    assert answer.status_code == 404
    assert await api.rows("SELECT id FROM api_keys WHERE revoked_at IS NOT NULL") == []


async def test_an_operator_governs_every_project(api: Api) -> None:
    made = (await api.client.post("/v1/projects", json={"name": "shop", "lifecycle": {"retry": None}})).json()
    assert (made["name"], made["lifecycle"]) == ("shop", {"retry": None})
    url = f"/v1/projects/{made['id']}"
    assert (await api.client.get(url)).json() == made
    changed = (await api.client.patch(url, json={"name": "store", "lifecycle": None})).json()
    assert (changed["name"], changed["lifecycle"]) == ("store", None)
    listed = (await api.client.get("/v1/projects")).json()["data"]
    assert [project["name"] for project in listed] == ["store", "default"]
    key = (await api.client.post(f"{url}/keys", json={"name": "x", "scopes": ["read", "run"]})).json()["key"]
    async with anyone(api, {"Authorization": f"Bearer {key}"}) as client:
        await client.post("/v1/branches", json={"name": "theirs"})
        assert [b["name"] for b in (await client.get("/v1/branches")).json()["data"]] == ["theirs"]
    assert (await api.client.get("/v1/branches")).json()["data"] == []


async def test_a_project_name_is_used_once(api: Api) -> None:
    answer = await api.client.post("/v1/projects", json={"name": "default"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (409, "/name")
    made = await api.project("shop")
    answer = await api.client.patch(f"/v1/projects/{made}", json={"name": "default"})
    assert answer.status_code == 409
    assert (await api.client.patch(f"/v1/projects/{made}", json={"name": "shop"})).status_code == 200


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/name"),
        ({"name": "x", "scopes": []}, "/scopes"),
        ({"name": "x", "scopes": ["everything"]}, "/scopes/0"),
        ({"name": "x", "expires_at": "2030-01-01T00:00:00"}, "/expires_at"),
        ({"name": "x", "expires_at": "soon"}, "/expires_at"),
        ({"name": "x", "expires_at": 1764547200}, "/expires_at"),
    ],
)
async def test_bad_keys_are_refused(api: Api, body: dict[str, Any], pointer: str) -> None:
    answer = await api.client.post(f"/v1/projects/{api.home}/keys", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
    assert await api.rows("SELECT id FROM api_keys") == []


async def test_changes_of_settings_are_audited_with_digests(api: Api) -> None:
    headers = await api.key(Scope.ADMIN)
    await api.rows("DELETE FROM audit_log")
    key_id = (await api.rows("SELECT id FROM api_keys"))[0]["id"]
    async with anyone(api, headers) as client:
        body = {"name": "m", "provider": "scripted", "model": "x"}
        await client.post("/v1/models", json=body)
        await client.put("/v1/models/m", json={**body, "model": "y"})
        await client.put("/v1/models/m", json={**body, "model": "x"})
        await client.delete("/v1/models/m")
        await client.patch(f"/v1/projects/{api.home}", json={"lifecycle": {}})
    rows = await api.rows("SELECT * FROM audit_log ORDER BY id")
    assert [(row["action"], row["subject"]) for row in rows] == [
        ("model.create", "model:m"),
        ("model.replace", "model:m"),
        ("model.replace", "model:m"),
        ("model.delete", "model:m"),
        ("project.update", f"project:{api.home}"),
    ]
    assert {(row["key_id"], row["project_id"]) for row in rows} == {(key_id, api.home)}
    before, after = ([row[f"digest_{when}"] for row in rows[:4]] for when in ("before", "after"))
    assert before == [None, *after[:3]]
    assert rows[4]["digest_before"] != rows[4]["digest_after"]
    assert after == [after[0], after[1], after[0], None]
    assert after[0] != after[1]
    assert isinstance(rows[0]["id"], UUID)
