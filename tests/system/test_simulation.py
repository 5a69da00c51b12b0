"""A policy that is tried on calls that took place, and the audit log, over HTTP."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from tests.support.database import migrated
from tests.support.postgres import PostgresServer
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

ID = "00000000-0000-7000-8000-000000000000"
RULE = {"when": "nobody == 1", "effect": "deny"}
OPERATOR = "the operator's key of the tests"


async def simulated(service: Service, policy: dict[str, Any], **body: Any) -> dict[str, Any]:
    answer = await service.http.post("/v1/policies/simulate", json={"policy": policy, **body})
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def note(text: str) -> dict[str, Any]:
    return {"function": "note", "arguments": {"text": text}}


async def test_a_policy_is_tried_on_what_a_run_called(service: Service) -> None:
    branch = await service.branch(name="here", metadata={"tier": "gold"})
    run = await service.act(
        branch, note("/etc/passwd"), note("hello"), {"function": "note", "arguments": ["no object"]}
    )
    gate = {
        "rules": [
            {"when": "branch.metadata.tier != 'gold' || project.name != 'default'", "effect": "allow"},
            {"when": "arguments.text.startsWith('/etc')", "effect": "deny", "reason": "not there"},
        ],
        "default": "escalate",
    }
    made = await simulated(service, {"gate": gate}, run_id=run["id"])
    assert made["object"] == "policy_simulation"
    assert made["has_more"] is False
    assert made["totals"] == {
        "calls": 3,
        "judged": 2,
        "differ": 2,
        "then": {"allow": 2, "deny": 0, "escalate": 0},
        "now": {"allow": 0, "deny": 1, "escalate": 1},
    }
    stored = {
        call["id"]: call for call in (await service.get(f"/v1/function-calls?run_id={run['id']}"))["data"]
    }
    assert [one["function_call_id"] for one in made["data"]] == list(stored)
    for one in made["data"]:
        call = stored[one["function_call_id"]]
        for name in ("call_id", "run_id", "branch_id", "function", "created_at"):
            assert one[name] == call[name]
        assert one["then"] == {"status": call["status"], "gate": call["gate"]}
    by_text = {call["id"]: (call["arguments"] or {}).get("text") for call in stored.values()}
    now = {by_text[one["function_call_id"]]: one for one in made["data"]}
    assert now["/etc/passwd"]["now"] == {
        "effect": "deny",
        "by": "project.gate",
        "rule": "/rules/1",
        "reason": "not there",
    }
    assert now["hello"]["now"]["rule"] == "/default"
    # What never could have run, nobody is asked about.
    assert (now[None]["now"], now[None]["differs"]) == (None, False)


async def test_permissions_are_tried_too_and_what_does_not_differ_is_told(service: Service) -> None:
    branch = await service.branch()
    await service.act(branch, note("a"), note("b"), {"function": "add", "arguments": {"a": 1, "b": 2}})
    policy = {"permissions": {"deny": {"note": ["text=a"]}}}
    made = await simulated(service, policy, branch_id=branch)
    assert made["totals"] == {
        "calls": 3,
        "judged": 3,
        "differ": 1,
        "then": {"allow": 3, "deny": 0, "escalate": 0},
        "now": {"allow": 2, "deny": 1, "escalate": 0},
    }
    chosen = {"function": "note", "status": "completed", "branch_id": branch}
    made = await simulated(service, policy, function_calls=chosen, limit=1)
    assert (len(made["data"]), made["has_more"]) == (1, True)
    assert made["data"][0]["function"] == "note"
    made = await simulated(service, {}, function_calls={"branch_id": branch, "status": "failed"})
    assert (made["data"], made["totals"]["calls"]) == ([], 0)
    assert (await simulated(service, {}))["totals"]["differ"] == 0


async def test_what_was_decided_then_counts(postgres: PostgresServer) -> None:
    async with migrated(postgres) as url, running(url) as service:
        run = await service.act(await service.branch(), note("a"), note("b"), note("c"))
        connection = await asyncpg.connect(url)
        for effect, call in zip(("deny", "escalate"), run["function_calls"], strict=False):
            await connection.execute(
                "UPDATE function_calls SET gate = $2 WHERE id = $1", call, f'{{"effect": "{effect}"}}'
            )
        await connection.close()
        made = await simulated(service, {"gate": {"default": "deny"}}, run_id=run["id"])
        assert made["totals"]["then"] == {"allow": 1, "deny": 1, "escalate": 1}
        differs = {one["function_call_id"]: one["differs"] for one in made["data"]}
        assert [differs[call] for call in run["function_calls"]] == [False, True, True]
        call = await service.get(f"/v1/function-calls/{run['function_calls'][0]}")
        assert call["gate"] == {"effect": "deny"}


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({}, 422, "/policy"),
        ({"policy": {"gate": {"http": {"url": "https://gate.example"}}}}, 422, "/policy/gate/http"),
        (
            {"policy": {"gate": {"rules": [{"when": "x", "effect": "deny"}]}}},
            422,
            "/policy/gate/rules/0/when",
        ),
        ({"policy": {"permissions": {"mode": "x"}}}, 422, "/policy/permissions/mode"),
        ({"policy": {"hooks": []}}, 422, "/policy/hooks"),
        ({"policy": {}, "limit": 0}, 422, "/limit"),
        ({"policy": {}, "limit": 1_001}, 422, "/limit"),
        ({"policy": {}, "run_id": ID, "branch_id": ID}, 422, ""),
        ({"policy": {}, "function_calls": {"kind": "x"}}, 422, "/function_calls/kind"),
        ({"policy": {}, "run_id": "x"}, 422, "/run_id"),
        ({"policy": {}, "run_id": ID}, 404, None),
        ({"policy": {}, "branch_id": ID}, 404, None),
    ],
)
async def test_what_cannot_be_simulated(
    service: Service, body: dict[str, Any], status: int, pointer: str | None
) -> None:
    answer = await service.http.post("/v1/policies/simulate", json=body)
    assert answer.status_code == status, answer.text
    assert [error["pointer"] for error in answer.json()["errors"]] == ([] if pointer is None else [pointer])


async def test_admins_alone_try_policies_and_read_the_audit_log(postgres: PostgresServer) -> None:
    async with migrated(postgres) as url, running(url, bootstrap_key=OPERATOR) as service:
        service.http.headers["Authorization"] = f"Bearer {OPERATOR}"
        home = (await service.get("/v1/projects"))["data"][0]["id"]
        for scope in ("read", "run", "approve", "admin", "operator"):
            body = {"name": scope, "scopes": [scope]}
            key = (await service.http.post(f"/v1/projects/{home}/keys", json=body)).json()["key"]
            headers = {"Authorization": f"Bearer {key}"}
            tried = await service.http.post("/v1/policies/simulate", json={"policy": {}}, headers=headers)
            read = await service.http.get("/v1/audit-log", headers=headers)
            expected = 200 if scope == "admin" else 403
            assert (tried.status_code, read.status_code) == (expected, expected), scope


async def test_the_audit_log_comes_in_pages_and_is_the_projects_own(postgres: PostgresServer) -> None:
    async with migrated(postgres) as url, running(url, bootstrap_key=OPERATOR) as service:
        service.http.headers["Authorization"] = f"Bearer {OPERATOR}"
        home = (await service.get("/v1/projects"))["data"][0]["id"]
        for mode in ("deny_all", "rules", "allow_all"):
            body = {"permissions": {"mode": mode}}
            assert (await service.http.patch(f"/v1/projects/{home}", json=body)).status_code == 200
        await service.http.post("/v1/projects", json={"name": "other"})
        await service.scripted("m", [])
        log = (await service.get("/v1/audit-log"))["data"]
        assert [record["action"] for record in log] == ["model.create", *["project.update"] * 3]
        assert log[1] == {
            "id": log[1]["id"],
            "object": "audit_record",
            "at": log[1]["at"],
            "key_id": None,
            "action": "project.update",
            "subject": f"project:{home}",
            "digest_before": log[2]["digest_after"],
            "digest_after": log[1]["digest_after"],
            "detail": {"changed": ["permissions"]},
        }
        first = await service.get(f"/v1/audit-log?action=project.update&subject=project:{home}&limit=2")
        rest = await service.get(f"/v1/audit-log?action=project.update&limit=2&after={first['next']}")
        assert (first["data"] + rest["data"], rest["has_more"]) == (log[1:], False)
        assert (await service.get(f"/v1/audit-log?key_id={ID}"))["data"] == []
        assert (await service.get("/v1/audit-log?order=asc"))["data"] == log[::-1]
