"""Idempotency-Key on requests that make things."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from app.adapters.db.replies import forget_old
from app.core.access import Scope
from tests.support.api import BASE, Api

pytestmark = pytest.mark.anyio

KEY = {"Idempotency-Key": "order-1"}
MESSAGES = {"messages": [{"kind": "instruction", "content": {"instruction": "hi"}}]}
MODEL = {"name": "m", "provider": "scripted", "model": "x"}


@pytest.mark.parametrize(
    ("path", "body", "table"),
    [
        ("/v1/branches", {"name": "a", "metadata": {"x": 1, "y": 2}}, "branches"),
        ("/v1/branches/BRANCH/fork", {}, "branches"),
        ("/v1/branches/BRANCH/messages", MESSAGES, "messages"),
        ("/v1/models", MODEL, "models"),
        ("/v1/projects", {"name": "shop"}, "projects"),
    ],
)
async def test_a_repeat_gets_the_first_answer_and_does_nothing(
    api: Api, path: str, body: dict[str, Any], table: str
) -> None:
    path = path.replace("BRANCH", (await api.branch())["id"])
    first = await api.client.post(path, json=body, headers=KEY)
    assert first.status_code == 201, first.text
    assert "idempotency-replayed" not in first.headers
    count = await api.rows(f"SELECT count(*) FROM {table}")
    turned = dict(reversed(body.items()))
    again = await api.client.post(path, json=turned, headers=KEY)
    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    assert await api.rows(f"SELECT count(*) FROM {table}") == count


@pytest.mark.parametrize(
    ("path", "body", "gone"),
    [
        ("/v1/branches", {"chat_model": "m"}, ["/v1/models/m"]),
        ("/v1/models", {**MODEL, "name": "n", "credential": "c"}, ["/v1/models/n", "/v1/credentials/c"]),
    ],
)
async def test_a_repeat_needs_nothing_of_what_the_request_needed(
    api: Api, path: str, body: dict[str, Any], gone: list[str]
) -> None:
    await api.client.post("/v1/models", json=MODEL)
    await api.client.post("/v1/credentials", json={"name": "c", "secret": "s3cret-words"})
    first = await api.client.post(path, json=body, headers=KEY)
    assert first.status_code == 201, first.text
    for address in gone:
        assert (await api.client.delete(address)).status_code == 204
    again = await api.client.post(path, json=body, headers=KEY)
    assert (again.status_code, again.content) == (201, first.content)


async def test_a_repeat_never_shows_a_secret(api: Api) -> None:
    path = f"/v1/projects/{api.home}/keys"
    first = await api.client.post(path, json={"name": "x"}, headers=KEY)
    again = await api.client.post(path, json={"name": "x"}, headers=KEY)
    secret = first.json().pop("key")
    assert again.json() == {name: value for name, value in first.json().items() if name != "key"}
    assert secret not in again.text
    stored = repr(await api.rows("SELECT body, encode(fingerprint, 'escape') FROM idempotency_keys"))
    assert secret not in stored


async def test_another_body_is_refused(api: Api) -> None:
    await api.client.post("/v1/branches", json={"name": "a"}, headers=KEY)
    answer = await api.client.post("/v1/branches", json={"name": "b"}, headers=KEY)
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")


async def test_the_same_key_means_something_else_elsewhere(api: Api) -> None:
    one, two = (await api.branch())["id"], (await api.branch())["id"]
    for path in ("/v1/branches", f"/v1/branches/{one}/fork", f"/v1/branches/{two}/fork"):
        answer = await api.client.post(path, json={}, headers=KEY)
        assert answer.status_code == 201
        assert "idempotency-replayed" not in answer.headers
    headers = await api.key(Scope.RUN)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api.app), base_url=BASE) as other:
        answer = await other.post("/v1/branches", json={}, headers={**headers, **KEY})
        assert "idempotency-replayed" not in answer.headers


async def test_a_refusal_is_not_kept(api: Api) -> None:
    answer = await api.client.post("/v1/branches", json={"chat_model": "m"}, headers=KEY)
    assert answer.status_code == 422
    await api.client.post("/v1/models", json=MODEL)
    answer = await api.client.post("/v1/branches", json={"chat_model": "m"}, headers=KEY)
    assert answer.status_code == 201
    await api.client.post("/v1/models", json=MODEL, headers=KEY)
    assert await api.rows("SELECT scope FROM idempotency_keys WHERE scope LIKE '%/v1/models'") == []


async def test_of_many_at_once_one_works_and_all_answer_the_same(api: Api) -> None:
    answers = await asyncio.gather(
        *(api.client.post("/v1/branches", json={"name": "a"}, headers=KEY) for _ in range(8))
    )
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1
    assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1
    assert len(await api.rows("SELECT id FROM branches")) == 1


async def test_a_key_means_nothing_after_a_day(api: Api) -> None:
    await api.client.post("/v1/branches", json={"name": "a"}, headers=KEY)
    await api.client.post("/v1/branches", json={"name": "b"}, headers={"Idempotency-Key": "order-2"})
    await api.rows(
        "UPDATE idempotency_keys SET created_at = now() - interval '25 hours' WHERE key = 'order-1'"
    )
    async with api.database.writing() as connection:
        assert await forget_old(connection) == 1
    answer = await api.client.post("/v1/branches", json={"name": "c"}, headers=KEY)
    assert answer.json()["name"] == "c"
    answer = await api.client.post("/v1/branches", json={"name": "b"}, headers={"Idempotency-Key": "order-2"})
    assert "idempotency-replayed" in answer.headers


@pytest.mark.parametrize("key", ["", "x" * 256, "with blank", "ümlaut"])
async def test_a_key_that_is_none_is_refused(api: Api, key: str) -> None:
    headers = [(b"Idempotency-Key", key.encode("latin-1"))]
    answer = await api.client.post("/v1/branches", json={}, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["parameter"] == "Idempotency-Key"
