"""Limits of keys and projects over HTTP: set, shown, refused, and in the audit log."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from app.core.access import Scope
from app.services.keys import REMEMBERED_MS
from tests.support.api import BASE, Api
from tests.support.limits import Limited

pytestmark = pytest.mark.anyio

NONE = {"requests_per_minute": None, "concurrent_runs": None, "tokens_per_day": None, "cost_per_day": None}
ALL = {"requests_per_minute": 600, "concurrent_runs": 8, "tokens_per_day": 2_000, "cost_per_day": 12.5}


def quotas(shown: dict[str, Any]) -> dict[str, Any]:
    """What is limited, without how far it is used."""
    return {name: shown[name] and shown[name]["quota"] for name in NONE}


@pytest.fixture
async def limited(api: Api) -> Limited:
    return await Limited.of(api.client)


async def test_limits_are_set_as_a_whole_and_shown_with_what_is_left(api: Api, limited: Limited) -> None:
    assert await limited.get(None) == {
        "object": "limits",
        "project_id": str(api.home),
        "key_id": None,
        **NONE,
    }
    made = await limited.set(None, **ALL)
    assert made == await limited.get(None)
    assert quotas(made) == {**ALL, "cost_per_day": "12.5"}
    assert made["concurrent_runs"] == {"quota": 8, "used": 0, "left": 8, "resets_in_s": None}
    for name, most in {"requests_per_minute": 60, "tokens_per_day": 86_400, "cost_per_day": 86_400}.items():
        assert 0 <= made[name]["resets_in_s"] <= most
    assert (made["cost_per_day"]["used"], made["cost_per_day"]["left"]) == ("0", "12.5")
    assert quotas(await limited.set(None, tokens_per_day=7)) == {**NONE, "tokens_per_day": 7}
    assert quotas(await limited.set(None)) == NONE
    assert await api.rows("SELECT * FROM quotas") == []


async def test_a_key_has_limits_of_its_own(api: Api, limited: Limited) -> None:
    id, headers = await limited.key("read", requests_per_minute=5)
    await limited.set(None, concurrent_runs=3)
    assert quotas(await limited.get(id)) == {**NONE, "requests_per_minute": 5}
    assert (await limited.get(id))["key_id"] == id
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(api.app), base_url=BASE, headers=headers
    ) as own:
        shown = (await own.get("/v1/limits")).json()["data"]
        assert shown == [await limited.get(id), await limited.get(None)]
        # Without the scope admin one's own are shown and no others.
        assert (await own.get(limited.path(id))).status_code == 200
        other, _ = await limited.key()
        assert (await own.get(limited.path(other))).status_code == 403
        assert (await own.put(limited.path(id), json={})).status_code == 403


async def test_every_change_is_in_the_audit_log(api: Api, limited: Limited) -> None:
    id, _ = await limited.key()
    await limited.set(id, concurrent_runs=3)
    await limited.set(id, concurrent_runs=3)
    await limited.set(id, concurrent_runs=4, tokens_per_day=5)
    await limited.set(id)
    found = await api.rows(
        "SELECT action, subject, detail FROM audit_log WHERE action LIKE 'limits%' ORDER BY id"
    )
    assert [(row["action"], row["subject"]) for row in found] == [("limits.update", f"limits:{id}")] * 3
    assert [row["detail"]["changed"] for row in found] == [
        ["concurrent_runs"],
        ["concurrent_runs", "tokens_per_day"],
        ["concurrent_runs", "tokens_per_day"],
    ]


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        ({"requests_per_minute": 0}, "/requests_per_minute", "invalid"),
        ({"concurrent_runs": "8"}, "/concurrent_runs", "wrong_type"),
        ({"cost_per_day": "1e9"}, "/cost_per_day", "invalid"),
        ({"requests_per_second": 1}, "/requests_per_second", "unknown_field"),
    ],
)
async def test_what_is_no_limit_is_told_by_its_place(
    api: Api, limited: Limited, body: Any, pointer: str, code: str
) -> None:
    answer = await api.client.put(limited.path(None), json=body)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert (error["pointer"], error["code"]) == (pointer, code)


async def test_what_is_not_there_has_no_limits(api: Api, limited: Limited) -> None:
    nothing = "019a0000-0000-7000-8000-000000000004"
    other = await api.project()
    id, _ = await limited.key()
    for path in (
        f"/v1/projects/{nothing}",
        f"{limited.project}/keys/{nothing}",
        f"/v1/projects/{other}/keys/{id}",
    ):
        for method in ("GET", "PUT"):
            answer = await api.client.request(method, f"{path}/limits", json={"concurrent_runs": 1})
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), path
    assert await api.rows("SELECT * FROM quotas") == []


async def test_limits_hold_at_once_here_and_within_seconds_elsewhere(api: Api, limited: Limited) -> None:
    id, headers = await limited.key("read")
    assert "ratelimit" not in (await api.client.get("/v1/branches", headers=headers)).headers
    await limited.set(id, requests_per_minute=5)
    assert "ratelimit" in (await api.client.get("/v1/branches", headers=headers)).headers
    # As another process would do it:
    await api.rows("DELETE FROM quotas")
    assert "ratelimit" in (await api.client.get("/v1/branches", headers=headers)).headers
    api.clock.now_ms += REMEMBERED_MS
    assert "ratelimit" not in (await api.client.get("/v1/branches", headers=headers)).headers


async def test_whoever_needs_no_key_is_held_to_the_limits_of_the_project(api: Api, limited: Limited) -> None:
    await limited.set(None, requests_per_minute=600)
    answer = await api.client.get("/v1/branches")
    assert answer.headers["ratelimit-policy"] == '"project-requests";q=600;w=60'
    headers = await api.key(Scope.READ, project=await api.project())
    assert "ratelimit" not in (await api.client.get("/v1/branches", headers=headers)).headers
