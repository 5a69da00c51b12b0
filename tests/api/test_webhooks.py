"""Webhook endpoints over HTTP."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from app.adapters.db.webhooks import MOST
from app.core.access import Scope
from app.core.addresses import AddressRule
from tests.support.api import Api, serving

pytestmark = pytest.mark.anyio

PATH = "/v1/webhook-endpoints"
BODY: dict[str, Any] = {"url": "https://hooks.example/in?team=1"}
ID = "00000000-0000-7000-8000-000000000000"


async def made(api: Api, **body: Any) -> dict[str, Any]:
    answer = await api.client.post(PATH, json={**BODY, **body})
    assert answer.status_code == 201, answer.text
    endpoint: dict[str, Any] = answer.json()
    return endpoint


async def test_an_endpoint_is_made_read_changed_and_removed(api: Api) -> None:
    endpoint = await made(api, description="alerts", callbacks=["on_error"], event_types=["RUN_FAILED"])
    path = f"{PATH}/{endpoint['id']}"
    shown = {name: value for name, value in endpoint.items() if name != "secret"}
    assert shown["object"] == "webhook_endpoint"
    assert (shown["active"], shown["disabled_at"], shown["disabled_reason"]) == (True, None, None)
    assert (await api.client.get(path)).json() == shown
    assert (await api.client.get(PATH)).json()["data"] == [shown]
    changed = (await api.client.patch(path, json={"callbacks": None, "active": False})).json()
    assert (changed["callbacks"], changed["active"], changed["disabled_reason"]) == (None, False, "requested")
    assert changed["disabled_at"] is not None
    assert (changed["url"], changed["description"], changed["event_types"]) == (
        BODY["url"],
        "alerts",
        ["RUN_FAILED"],
    )
    changed = (await api.client.patch(path, json={"active": True, "event_types": None})).json()
    assert (changed["active"], changed["disabled_at"], changed["disabled_reason"]) == (True, None, None)
    assert changed["event_types"] == []
    assert (await api.client.patch(path, json={})).json() == changed
    assert (await api.client.delete(path)).status_code == 204
    assert (await api.client.get(path)).status_code == 404


async def test_a_secret_is_shown_once(api: Api) -> None:
    endpoint = await made(api)
    secret = endpoint["secret"]
    assert secret.startswith("whsec_")
    assert len(base64.b64decode(secret.removeprefix("whsec_"))) == 32
    path = f"{PATH}/{endpoint['id']}"
    rotated = (await api.client.post(f"{path}/rotate-secret")).json()
    assert rotated["secret"] != secret
    for text in (
        (await api.client.get(PATH)).text,
        (await api.client.get(path)).text,
        (await api.client.patch(path, json={"description": "x"})).text,
        repr(await api.rows("SELECT * FROM audit_log, idempotency_keys")),
    ):
        assert "whsec_" not in text
        assert secret not in text
        assert rotated["secret"] not in text


async def test_a_repeated_request_makes_one_endpoint_and_hides_its_secret(api: Api) -> None:
    headers = {"Idempotency-Key": "once"}
    first = await api.client.post(PATH, json=BODY, headers=headers)
    again = await api.client.post(PATH, json=BODY, headers=headers)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == {name: value for name, value in first.json().items() if name != "secret"}
    assert len((await api.client.get(PATH)).json()["data"]) == 1


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/url"),
        ({"url": "ftp://hooks.example"}, "/url"),
        ({"url": "https://u:p@hooks.example"}, "/url"),
        ({"url": "http://127.0.0.1/"}, "/url"),
        ({"url": "http://169.254.169.254/latest"}, "/url"),
        ({"url": "http://localhost/"}, "/url"),
        ({"url": "http://[::1]/"}, "/url"),
        ({**BODY, "callbacks": ["on_starts"]}, "/callbacks/0"),
        ({**BODY, "event_types": ["RUN_FAILED", "RUN_FELL"]}, "/event_types/1"),
        ({**BODY, "secret": "whsec_mine"}, "/secret"),
        ({**BODY, "active": "yes"}, "/active"),
    ],
)
async def test_what_cannot_be_an_endpoint_is_refused(api: Api, body: dict[str, Any], pointer: str) -> None:
    answer = await api.client.post(PATH, json=body)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
    if body:
        path = f"{PATH}/{(await made(api))['id']}"
        answer = await api.client.patch(path, json=body)
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)


async def test_private_addresses_are_the_operators_to_allow(empty_database_url: str) -> None:
    async with serving(empty_database_url, addresses=AddressRule(allowed=("hooks", "10.0.0.0/8"))) as api:
        for url in ("http://hooks/in", "http://10.1.2.3:8080/in"):
            await made(api, url=url)
        assert (await api.client.post(PATH, json={"url": "http://192.168.1.1/"})).status_code == 422
    async with serving(empty_database_url, addresses=AddressRule(private=True)) as api:
        await made(api, url="http://127.0.0.1:9000/in")


async def test_a_project_has_a_bounded_number_of_endpoints(api: Api) -> None:
    for _ in range(MOST):
        await made(api)
    answer = await api.client.post(PATH, json=BODY)
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    page = (await api.client.get(f"{PATH}?limit=15")).json()
    rest = (await api.client.get(f"{PATH}?limit=15&after={page['next']}")).json()
    ids = [endpoint["id"] for endpoint in (*page["data"], *rest["data"])]
    assert ids == sorted(ids, reverse=True)
    assert len(set(ids)) == MOST


async def test_changes_are_audited_with_digests(api: Api) -> None:
    endpoint = await made(api)
    path = f"{PATH}/{endpoint['id']}"
    await api.client.patch(path, json={"description": "x"})
    await api.client.patch(path, json={"active": True})
    await api.client.post(f"{path}/rotate-secret")
    await api.client.delete(path)
    rows = await api.rows("SELECT * FROM audit_log ORDER BY id")
    assert [row["action"] for row in rows] == [
        f"webhook_endpoint.{action}" for action in ("create", "update", "rotate_secret", "delete")
    ]
    assert {row["subject"] for row in rows} == {f"webhook_endpoint:{endpoint['id']}"}
    assert [row["digest_before"] for row in rows[1:]] == [row["digest_after"] for row in rows[:-1]]
    assert rows[0]["digest_after"] != rows[1]["digest_after"]


async def test_deliveries_are_listed_by_run_and_redriven(api: Api) -> None:
    endpoint = await made(api)
    branch = await api.branch()
    runs = [f"00000000-0000-7000-8000-00000000000{n}" for n in range(3)]
    states = ("dead", "pending", "done")
    for run, status in zip(runs, states, strict=True):
        await api.rows(
            "INSERT INTO runs (id, project_id, branch_id, kind, status, request, created_at, ended_at) "
            "VALUES (:run, :project, :branch, 'act', 'failed', '{}', now(), now())",
            run=run,
            project=api.home,
            branch=branch["id"],
        )
        await api.rows(
            "INSERT INTO webhook_deliveries (endpoint_id, run_id, project_id, status, failures, ended_at, "
            "next_at) VALUES (:endpoint, :run, :project, :status, 3, "
            "CASE WHEN :status <> 'pending' THEN now() END, now() + interval '1 day')",
            endpoint=endpoint["id"],
            run=run,
            project=api.home,
            status=status,
        )
    path = f"{PATH}/{endpoint['id']}/deliveries"
    listed = (await api.client.get(path)).json()["data"]
    assert [(one["id"], one["status"]) for one in listed] == [*zip(runs, states, strict=True)][::-1]
    assert [one["next_at"] is None for one in listed] == [True, False, True]
    (dead,) = (await api.client.get(f"{path}?status=dead")).json()["data"]
    assert dead["run_id"] == runs[0]
    assert (await api.client.get(f"{path}?status=lost")).status_code == 422
    for run in runs[:2]:
        headers = {"Idempotency-Key": run}
        answer = await api.client.post(f"{path}/{run}/redrive", headers=headers)
        redriven = answer.json()
        assert (redriven["status"], redriven["failures"], redriven["ended_at"]) == ("pending", 0, None)
        assert redriven["next_at"] < listed[1]["next_at"]
        again = await api.client.post(f"{path}/{run}/redrive", headers=headers)
        assert again.headers["idempotency-replayed"] == "true"
    assert (await api.client.post(f"{path}/{runs[2]}/redrive")).status_code == 409
    assert (await api.client.post(f"{path}/{ID[:-1]}9/redrive")).status_code == 404
    actions = await api.rows("SELECT action FROM audit_log WHERE action LIKE 'webhook_delivery%'")
    assert len(actions) == 2


async def test_what_is_being_tried_at_this_moment_is_left_alone_by_a_redrive(api: Api) -> None:
    endpoint = await made(api)
    branch = await api.branch()
    await api.rows(
        "INSERT INTO runs (id, project_id, branch_id, kind, status, request, created_at) "
        "VALUES (:run, :project, :branch, 'act', 'running', '{}', now())",
        run=ID,
        project=api.home,
        branch=branch["id"],
    )
    await api.rows(
        "INSERT INTO webhook_deliveries (endpoint_id, run_id, project_id, failures, lease_until) "
        "VALUES (:endpoint, :run, :project, 3, now() + interval '1 minute')",
        endpoint=endpoint["id"],
        run=ID,
        project=api.home,
    )
    answer = await api.client.post(f"{PATH}/{endpoint['id']}/deliveries/{ID}/redrive")
    assert (answer.status_code, answer.json()["failures"]) == (200, 3)


async def test_another_project_has_its_own(api: Api) -> None:
    endpoint = await made(api)
    other = await api.project()
    headers = await api.key(Scope.ADMIN, project=other)
    assert (await api.client.get(PATH, headers=headers)).json()["data"] == []
    for method, path, body in [
        ("GET", "", None),
        ("PATCH", "", {"active": False}),
        ("DELETE", "", None),
        ("POST", "/rotate-secret", None),
        ("GET", "/deliveries", None),
        ("POST", f"/deliveries/{ID}/redrive", None),
    ]:
        answer = await api.client.request(
            method, f"{PATH}/{endpoint['id']}{path}", json=body, headers=headers
        )
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), (method, path)
    assert (await api.client.get(f"{PATH}/{endpoint['id']}")).json()["active"] is True
