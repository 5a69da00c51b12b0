"""Gates, permissions and hooks of branches and projects over HTTP: taken, refused, kept, cleared, audited."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from app.core.access import Scope
from tests.support.api import BASE, Api

pytestmark = pytest.mark.anyio

RULE = {"when": "function == 'rm'", "effect": "deny", "reason": "never"}
GATE = {"rules": [RULE], "default": "escalate"}
REMOTE = {"http": {"url": "https://gate.example/v1", "timeout_ms": 500}}
PERMISSIONS = {"mode": "rules", "allow": {"read_*": ["path=/srv/*"]}, "deny": {"*": ["*/etc/*"]}}
HOOKS = [{"point": "TOOL_PRE", "tool": "rm", "http": {"url": "https://hook.example"}}]
ALL: dict[str, Any] = {"gate": GATE, "permissions": PERMISSIONS, "hooks": HOOKS}
NONE: dict[str, Any] = {"gate": None, "permissions": None, "hooks": None}


def policies(shown: dict[str, Any]) -> dict[str, Any]:
    return {name: shown[name] for name in ALL}


def anyone(api: Api, headers: dict[str, str]) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(api.app), base_url=BASE, headers=headers)


async def test_a_branch_keeps_its_policies_and_a_fork_has_them_too(api: Api) -> None:
    made = await api.branch(**ALL)
    url = f"/v1/branches/{made['id']}"
    assert policies(made) == policies((await api.client.get(url)).json()) == ALL
    fork = (await api.client.post(f"{url}/fork", json={})).json()
    assert policies(fork) == ALL
    changed = (await api.client.patch(url, json={"gate": REMOTE, "hooks": []})).json()
    assert policies(changed) == {"gate": REMOTE, "permissions": PERMISSIONS, "hooks": []}
    assert changed["version"] == 2
    cleared = (await api.client.patch(url, json=NONE)).json()
    assert policies(cleared) == NONE
    assert await api.rows("SELECT hooks FROM branches WHERE gate IS NULL") == [{"hooks": None}]
    assert policies((await api.client.get(f"/v1/branches/{fork['id']}")).json()) == ALL
    assert policies(await api.branch()) == policies(await api.branch(**NONE)) == NONE


async def test_a_project_keeps_its_policies(api: Api) -> None:
    url = f"/v1/projects/{api.home}"
    shown = (await api.client.get(url)).json()
    assert policies(shown) == NONE
    assert shown["self_approval"] is False
    changed = await api.client.patch(url, json={**ALL, "self_approval": True})
    assert changed.status_code == 200, changed.text
    shown = (await api.client.get(url)).json()
    assert (policies(shown), shown["self_approval"], shown["name"]) == (ALL, True, "default")
    shown = (await api.client.patch(url, json={"name": "shop"})).json()
    assert (policies(shown), shown["self_approval"], shown["name"]) == (ALL, True, "shop")
    shown = (await api.client.patch(url, json={**NONE, "self_approval": False})).json()
    assert (policies(shown), shown["self_approval"]) == (NONE, False)


def rule(**parts: Any) -> dict[str, Any]:
    return {"gate": {"rules": [RULE, {**RULE, **parts}]}}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (rule(when="function =="), "/gate/rules/1/when"),
        (rule(when="nobody == 'rm'"), "/gate/rules/1/when"),
        (rule(when=""), "/gate/rules/1/when"),
        (rule(when=5), "/gate/rules/1/when"),
        (rule(effect="ask"), "/gate/rules/1/effect"),
        (rule(then="deny"), "/gate/rules/1/then"),
        ({"gate": {"default": "maybe"}}, "/gate/default"),
        ({"gate": {"rule": []}}, "/gate/rule"),
        ({"gate": []}, "/gate"),
        ({"gate": {"http": {}}}, "/gate/http/url"),
        ({"gate": {"http": {"url": "ftp://gate.example"}}}, "/gate/http/url"),
        ({"gate": {"http": {"url": "http://user:word@gate.example"}}}, "/gate/http/url"),
        ({"gate": {"http": {"url": "http://169.254.169.254/latest"}}}, "/gate/http/url"),
        ({"gate": {"http": {"url": "http://localhost:9"}}}, "/gate/http/url"),
        ({"gate": {**REMOTE, "default": "allow"}}, "/gate/default"),
        ({"permissions": {"mode": "some"}}, "/permissions/mode"),
        ({"permissions": {"deny": {"rm": "*"}}}, "/permissions/deny/rm"),
        ({"permissions": {"deny": {"rm": ["x", ""]}}}, "/permissions/deny/rm/1"),
        ({"permissions": {"on_escalate": "x"}}, "/permissions/on_escalate"),
        ({"hooks": {}}, "/hooks"),
        ({"hooks": [{**HOOKS[0], "point": "TOOL_END"}]}, "/hooks/0/point"),
        ({"hooks": [*HOOKS, {**HOOKS[0], "http": {"url": "http://10.0.0.1"}}]}, "/hooks/1/http/url"),
        ({"hooks": [{"point": "TOOL_PRE"}]}, "/hooks/0/http"),
    ],
)
async def test_what_is_no_policy_is_refused_with_a_pointer(
    api: Api, body: dict[str, Any], pointer: str
) -> None:
    made = await api.branch()
    before = await api.rows(
        "SELECT gate, permissions, hooks FROM branches UNION ALL "
        "SELECT gate, permissions, hooks FROM projects"
    )
    for method, path in (
        ("POST", "/v1/branches"),
        ("PATCH", f"/v1/branches/{made['id']}"),
        ("PATCH", f"/v1/projects/{api.home}"),
    ):
        answer = await api.client.request(method, path, json=body)
        assert answer.status_code == 422, (path, answer.text)
        assert [error["pointer"] for error in answer.json()["errors"]] == [pointer], answer.text
    assert (
        await api.rows(
            "SELECT gate, permissions, hooks FROM branches UNION ALL "
            "SELECT gate, permissions, hooks FROM projects"
        )
        == before
    )


async def test_who_may_run_may_govern_a_new_branch_and_only_an_admin_one_that_is_there(api: Api) -> None:
    async with anyone(api, await api.key(Scope.RUN)) as runner:
        made = await runner.post("/v1/branches", json=ALL)
        assert made.status_code == 201
        url = f"/v1/branches/{made.json()['id']}"
        for name in ALL:
            answer = await runner.patch(url, json={name: None})
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
        assert (await runner.patch(url, json={"name": "still mine"})).status_code == 200
        assert (await runner.patch(f"/v1/projects/{api.home}", json={"gate": None})).status_code == 403
    async with anyone(api, await api.key(Scope.RUN, Scope.ADMIN)) as admin:
        assert policies((await admin.patch(url, json={"gate": None})).json()) == {**ALL, "gate": None}
        assert (await admin.patch(f"/v1/projects/{api.home}", json={"gate": GATE})).status_code == 200
        other = await api.project()
        assert (await admin.patch(f"/v1/projects/{other}", json={"gate": GATE})).status_code == 404


async def test_every_change_of_a_policy_is_audited(api: Api) -> None:
    headers = await api.key(Scope.RUN, Scope.ADMIN)
    (key,) = await api.rows("SELECT id FROM api_keys")
    await api.rows("DELETE FROM audit_log")
    async with anyone(api, headers) as client:
        plain = (await client.post("/v1/branches", json={"name": "x"})).json()["id"]
        made = (await client.post("/v1/branches", json={"gate": GATE})).json()["id"]
        fork = (await client.post(f"/v1/branches/{made}/fork", json={})).json()["id"]
        await client.patch(f"/v1/branches/{plain}", json={"name": "y", "gate": None})
        await client.patch(f"/v1/branches/{made}", json={"permissions": PERMISSIONS, "gate": GATE})
        await client.patch(f"/v1/branches/{made}", json={"permissions": None, "gate": None})
        await client.patch(f"/v1/projects/{api.home}", json={"hooks": HOOKS, "self_approval": True})
    rows = await api.rows("SELECT * FROM audit_log ORDER BY id")
    assert [(row["action"], row["subject"], row["detail"]["changed"]) for row in rows] == [
        ("branch.govern", f"branch:{made}", ["gate"]),
        ("branch.govern", f"branch:{fork}", ["gate"]),
        ("branch.govern", f"branch:{made}", ["permissions"]),
        ("branch.govern", f"branch:{made}", ["gate", "permissions"]),
        ("project.update", f"project:{api.home}", ["hooks", "self_approval"]),
    ]
    assert {row["key_id"] for row in rows} == {key["id"]}
    assert rows[2]["digest_after"] == rows[3]["digest_before"]


async def test_what_gates_are_told_of_a_key(api: Api) -> None:
    await api.key(Scope.READ, Scope.RUN)
    (key,) = await api.rows("SELECT id FROM api_keys")
    facts = await api.services.keys.facts(key["id"])
    assert facts is not None
    assert (facts.id, facts.name, facts.scopes) == (key["id"], "a key", ["read", "run"])
    await api.rows("DELETE FROM api_keys")
    assert await api.services.keys.facts(key["id"]) == facts
    assert await api.services.keys.facts(api.home) is None
    assert await api.services.keys.facts(None) is None
