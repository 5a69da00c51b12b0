"""Tools over HTTP: what is taken, what is refused, what is shown."""

from __future__ import annotations

from typing import Any

import pytest

from app.adapters.db import tools as stored
from app.core.access import Scope
from app.core.addresses import AddressRule
from app.ports.tool import ToolSpec
from app.services.models import REMEMBERED_MS
from tests.support.api import ADD, Api, serving

pytestmark = pytest.mark.anyio

HTTP: dict[str, Any] = {
    "url": "https://tools.example/weather?units=si",
    "headers": {"Authorization": "env:MODEL_KEY", "X-Team": "a written secret"},
    "timeout_ms": {"connect": 1, "first_byte": 2, "total": 3},
    "tries": 2,
    "signing": {"env": "MODEL_KEY"},
}
BODY: dict[str, Any] = {
    "kind": "http",
    "description": "Tell the weather.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"$ref": "#/$defs/name"}, "big": {"maximum": 12345678901234567890123}},
        "$defs": {"name": {"type": "string"}},
    },
    "strict": True,
    "idempotent": True,
    "http": HTTP,
}
SHOWN = {**HTTP, "headers": {"Authorization": "env:MODEL_KEY", "X-Team": None}}


def changed(**http: Any) -> dict[str, Any]:
    return {**BODY, "http": {**HTTP, **http}}


async def test_a_tool_is_registered_read_replaced_and_removed(api: Api) -> None:
    answer = await api.client.post("/v1/tools", json={"name": "weather", **BODY})
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == "/v1/tools/weather"
    made = answer.json()
    assert {name: made[name] for name in BODY} == {**BODY, "http": SHOWN}
    assert (made["object"], made["name"]) == ("tool", "weather")
    assert made["created_at"] == made["updated_at"] is not None
    assert (await api.client.get("/v1/tools/weather")).json() == made
    small = {
        "name": "weather",
        "kind": "http",
        "parameters": {"type": "object"},
        "http": {"url": HTTP["url"]},
    }
    answer = await api.client.put("/v1/tools/weather", json=small)
    assert answer.status_code == 200
    replaced = answer.json()
    assert (replaced["description"], replaced["strict"], replaced["idempotent"]) == ("", False, False)
    assert replaced["http"] == {
        "url": HTTP["url"],
        "headers": {},
        "timeout_ms": {"connect": 2_000, "first_byte": 10_000, "total": 30_000},
        "tries": 3,
        "signing": None,
    }
    assert replaced["created_at"] == made["created_at"] != replaced["updated_at"]
    assert (await api.client.put("/v1/tools/n", json=BODY)).status_code == 201
    assert (await api.client.delete("/v1/tools/weather")).status_code == 204
    assert (await api.client.get("/v1/tools/weather")).status_code == 404
    assert (await api.client.delete("/v1/tools/weather")).status_code == 404


async def test_the_list_has_the_servers_tools_first_and_then_the_projects_by_name(api: Api) -> None:
    for name in ("b", "a"):
        await api.client.put(f"/v1/tools/{name}", json=BODY)
    page = (await api.client.get("/v1/tools")).json()
    assert [tool["name"] for tool in page["data"]] == ["add", "a", "b"]
    assert (page["has_more"], page["next"]) == (False, None)
    assert page["data"][0] == {
        "object": "tool",
        "name": "add",
        "kind": "python",
        "description": ADD.description,
        "parameters": ADD.parameters,
        "strict": False,
        "idempotent": False,
        "http": None,
        "client": None,
        "mcp": None,
        "created_at": None,
        "updated_at": None,
    }
    assert (await api.client.get("/v1/tools/add")).json() == page["data"][0]


async def test_values_of_headers_are_shown_nowhere(api: Api) -> None:
    headers = {"Idempotency-Key": "once"}
    answers = [
        await api.client.post("/v1/tools", json={"name": "t", **BODY}, headers=headers),
        await api.client.post("/v1/tools", json={"name": "t", **BODY}, headers=headers),
        await api.client.post("/v1/tools", json={"name": "t", **BODY}),
        await api.client.put("/v1/tools/t", json=BODY),
        await api.client.put("/v1/tools/t", json=changed(headers={"X": "a written secret\n"})),
        await api.client.put("/v1/tools/t", json=changed(headers={"a b": "a written secret"})),
        await api.client.put("/v1/tools/t", json=changed(headers={"X": ["a written secret"]})),
        await api.client.get("/v1/tools"),
        await api.client.get("/v1/tools/t"),
    ]
    assert [answer.status_code for answer in answers] == [201, 201, 409, 200, 422, 422, 422, 200, 200]
    for answer in answers:
        assert "a written secret" not in answer.text
        assert "the value of the variable" not in answer.text
    (spec,) = [s for s in (await api.services.tools.tools(api.home)).values() if s.kind == "http"]
    assert spec.settings["headers"]["X-Team"] == "a written secret"
    assert "secret" not in repr(spec)


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"kind": "mcp"}, "/kind", "invalid"),
        ({"kind": "client"}, "/http", "invalid"),
        ({"kind": "client", "http": None, "client": {"expires_s": 0}}, "/client/expires_s", "invalid"),
        ({"kind": "client", "http": None, "client": {"expires_s": "1"}}, "/client/expires_s", "wrong_type"),
        ({"kind": "client", "http": None, "client": {"lease_s": 86_401}}, "/client/lease_s", "invalid"),
        ({"kind": "client", "http": None, "client": {"lease": 5}}, "/client/lease", "unknown_field"),
        ({"client": {}}, "/client", "invalid"),
        ({"http": None}, "/http", "missing"),
        ({"kind": "python"}, "/kind", "invalid"),
        ({"kind": "ftp"}, "/kind", "invalid"),
        ({"name": "a.b"}, "/name", "invalid"),
        ({"name": ""}, "/name", "invalid"),
        ({"name": "x" * 65}, "/name", "invalid"),
        ({"name": "t\n"}, "/name", "invalid"),
        ({"strict": 1}, "/strict", "wrong_type"),
        ({"redact": ["/password"]}, "/redact", "unsupported_option"),
        ({"parametres": {}}, "/parametres", "unknown_field"),
        ({"parameters": {}}, "/parameters/type", "invalid_schema"),
        ({"parameters": {"type": "array"}}, "/parameters/type", "invalid_schema"),
        ({"parameters": {"type": ["object", "null"]}}, "/parameters/type", "invalid_schema"),
        (
            {"parameters": {"type": "object", "minProperties": "1"}},
            "/parameters/minProperties",
            "invalid_schema",
        ),
        ({"parameters": {"$ref": "https://schemas.example/a"}}, "/parameters/$ref", "invalid_schema"),
        ({"parameters": {"enum": list(range(1_001))}}, "/parameters/enum", "invalid_schema"),
        ({"http": {}}, "/http/url", "missing"),
        (changed(method="GET"), "/http/method", "unknown_field"),
        (changed(url="https://tools.example/a b"), "/http/url", "invalid"),
        (changed(url="ftp://tools.example/"), "/http/url", "address_not_allowed"),
        (changed(url="https://user:pass@tools.example/"), "/http/url", "address_not_allowed"),
        (changed(timeout_ms={"total": 0}), "/http/timeout_ms/total", "invalid"),
        (changed(timeout_ms={"total": 600_001}), "/http/timeout_ms/total", "invalid"),
        (changed(timeout_ms={"connect": True}), "/http/timeout_ms/connect", "wrong_type"),
        (changed(timeout_ms={"read": 1}), "/http/timeout_ms/read", "unknown_field"),
        (changed(tries=0), "/http/tries", "invalid"),
        (changed(tries=6), "/http/tries", "invalid"),
        (changed(tries=True), "/http/tries", "wrong_type"),
        (changed(signing={}), "/http/signing", "invalid"),
        (changed(signing={"env": "A", "credential": "b"}), "/http/signing", "invalid"),
        (changed(signing={"env": "PATH"}), "/http/signing/env", "not_exposed"),
        (changed(signing={"env": "a b"}), "/http/signing/env", "invalid"),
        (changed(signing={"secret": "whsec_AAAA"}), "/http/signing/secret", "unknown_field"),
        (changed(signing="whsec_AAAA"), "/http/signing", "wrong_type"),
        (changed(headers={"Webhook-Id": "1"}), "/http/headers/Webhook-Id", "invalid"),
        (changed(headers={"X": "env:PATH"}), "/http/headers/X", "not_exposed"),
        (changed(headers={"X": "env:"}), "/http/headers/X", "not_exposed"),
        (changed(headers={"X": ""}), "/http/headers/X", "invalid"),
        (changed(headers={"X": "a\r\nb: c"}), "/http/headers/X", "invalid"),
        (changed(headers={"X": "ü"}), "/http/headers/X", "invalid"),
        (changed(headers={"X": None}), "/http/headers/X", "wrong_type"),
        (changed(headers={"a b": "c"}), "/http/headers/a b", "invalid"),
        (changed(headers={"Host": "evil.example"}), "/http/headers/Host", "invalid"),
        (changed(headers={"content-length": "5"}), "/http/headers/content-length", "invalid"),
        (changed(headers={"Idempotency-Key": "1"}), "/http/headers/Idempotency-Key", "invalid"),
        (changed(headers={"x-a": "b", "X-A": "c"}), "/http/headers/X-A", "invalid"),
    ],
)
async def test_bad_tools_are_refused(api: Api, change: dict[str, Any], pointer: str, code: str) -> None:
    answer = await api.client.post("/v1/tools", json={"name": "t", **BODY, **change})
    problem = answer.json()
    assert answer.status_code == 422, problem
    assert [(e["pointer"], e["code"]) for e in problem["errors"]] == [(pointer, code)]
    assert problem["code"] in (code, "invalid_request")
    assert await api.rows("SELECT id FROM tools") == []


@pytest.mark.parametrize(
    "url",
    [
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[2002:7f00:1::]/",
        "http://[::127.0.0.1]/",
        "http://0.0.0.0/",
        "http://[::]/",
        "http://100.64.0.1/",
        "http://2130706433/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://localhost./",
        "http://[fe80::1%25eth0]/",
        "http://user@127.0.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://postgres/",
    ],
)
async def test_private_addresses_are_refused_however_they_are_written(api: Api, url: str) -> None:
    answer = await api.client.post("/v1/tools", json={"name": "t", **changed(url=url)})
    assert answer.status_code == 422
    assert [(e["pointer"], e["code"]) for e in answer.json()["errors"]] == [
        ("/http/url", "address_not_allowed")
    ]


async def test_the_operator_bounds_the_time_of_a_call(empty_database_url: str) -> None:
    async with serving(empty_database_url, tool_ms=5_000) as api:
        answer = await api.client.put(
            "/v1/tools/t", json=changed(timeout_ms={"total": 5_001, "first_byte": 1})
        )
        (error,) = answer.json()["errors"]
        assert (answer.status_code, error["pointer"]) == (422, "/http/timeout_ms/total")
        assert "5000 ms at most" in error["message"]
        limits = {"connect": 5_000, "first_byte": 5_000, "total": 5_000}
        assert (await api.client.put("/v1/tools/t", json=changed(timeout_ms=limits))).status_code == 201


async def test_listed_private_hosts_may_be_called(empty_database_url: str) -> None:
    rule = AddressRule(allowed=("tools", "10.1.0.0/16"))
    async with serving(empty_database_url, addresses=rule) as api:
        for url, status in [
            ("http://tools:9000/", 201),
            ("http://10.1.2.3/", 200),
            ("http://10.2.2.3/", 422),
            ("http://127.0.0.1/", 422),
        ]:
            assert (await api.client.put("/v1/tools/t", json=changed(url=url))).status_code == status, url


async def test_all_faults_are_told_at_once(api: Api) -> None:
    body = {**changed(url="http://127.0.0.1/", headers={"X": "env:PATH"}), "parameters": {}}
    problem = (await api.client.put("/v1/tools/t", json=body)).json()
    assert [e["pointer"] for e in problem["errors"]] == ["/parameters/type", "/http/url", "/http/headers/X"]


@pytest.mark.parametrize("name", ["a.b", "a%20b", "%C3%BC", "x" * 65])
async def test_bad_names_in_the_address_are_refused(api: Api, name: str) -> None:
    assert (await api.client.put(f"/v1/tools/{name}", json=BODY)).status_code == 422
    assert (await api.client.get(f"/v1/tools/{name}")).status_code == 404
    answer = await api.client.put("/v1/tools/t", json={**BODY, "name": "u"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/name")


async def test_a_name_is_registered_once(api: Api) -> None:
    assert (await api.client.post("/v1/tools", json={"name": "t", **BODY})).status_code == 201
    answer = await api.client.post("/v1/tools", json={"name": "t", **BODY})
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (409, "name_taken")


async def test_python_tools_are_read_only_and_keep_their_names(api: Api) -> None:
    answers = [
        await api.client.post("/v1/tools", json={"name": "add", **BODY}),
        await api.client.put("/v1/tools/add", json=BODY),
        await api.client.delete("/v1/tools/add"),
    ]
    for answer in answers:
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert "read-only" in answer.json()["detail"]
    # A Python tool that came later than a tool of its name takes the name; the other can still be removed.
    await api.client.put("/v1/tools/t", json=BODY)
    await api.rows("UPDATE tools SET name = 'add'")
    assert (await api.client.get("/v1/tools/add")).json()["kind"] == "python"
    assert [tool["kind"] for tool in (await api.client.get("/v1/tools")).json()["data"]] == ["python"]
    assert (await api.client.delete("/v1/tools/add")).status_code == 204
    assert (await api.client.get("/v1/tools/add")).json()["kind"] == "python"


async def test_changes_need_the_scope_admin(api: Api) -> None:
    reader = await api.key(Scope.READ, Scope.RUN, Scope.APPROVE)
    admin = await api.key(Scope.ADMIN)
    for method, path in [("POST", "/v1/tools"), ("PUT", "/v1/tools/t"), ("DELETE", "/v1/tools/t")]:
        answer = await api.client.request(method, path, json=BODY, headers=reader)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert (await api.client.put("/v1/tools/t", json=BODY, headers=admin)).status_code == 201
    assert (await api.client.get("/v1/tools/t", headers=reader)).status_code == 200
    assert (await api.client.get("/v1/tools/t", headers=admin)).status_code == 403


async def test_every_change_is_on_record(api: Api) -> None:
    headers = await api.key()
    await api.client.post("/v1/tools", json={"name": "t", **BODY}, headers=headers)
    await api.client.put("/v1/tools/t", json=changed(url="https://other.example"), headers=headers)
    await api.client.delete("/v1/tools/t", headers=headers)
    rows = await api.rows(
        "SELECT action, key_id, digest_before, digest_after FROM audit_log "
        "WHERE subject = 'tool:t' ORDER BY id"
    )
    assert [row["action"] for row in rows] == ["tool.create", "tool.replace", "tool.delete"]
    assert all(row["key_id"] is not None for row in rows)
    first, second = rows[0]["digest_after"], rows[1]["digest_after"]
    assert [row["digest_before"] for row in rows] == [None, first, second]
    assert first != second
    assert rows[2]["digest_after"] is None


async def test_a_project_has_a_bounded_number_of_tools(api: Api) -> None:
    await api.client.put("/v1/tools/t", json=BODY)
    columns = "project_id, kind, description, parameters, strict, idempotent, settings"
    await api.rows(
        f"INSERT INTO tools (id, name, {columns}) "
        f"SELECT gen_random_uuid(), 'n' || i, {columns} FROM tools, generate_series(2, :most) i",
        most=stored.MOST,
    )
    answer = await api.client.put("/v1/tools/more", json=BODY)
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert (await api.client.put("/v1/tools/t", json=BODY)).status_code == 200
    theirs = await api.key(project=await api.project())
    assert (await api.client.put("/v1/tools/more", json=BODY, headers=theirs)).status_code == 201


async def test_a_change_here_is_known_at_once_and_one_elsewhere_within_two_seconds(api: Api) -> None:
    async def known() -> dict[str, ToolSpec]:
        return dict(await api.services.tools.tools(api.home))

    assert list(await known()) == ["add"]
    await api.client.put("/v1/tools/t", json=BODY)
    assert (await known())["t"].description == BODY["description"]
    await api.rows("UPDATE tools SET description = 'elsewhere'")
    assert (await known())["t"].description == BODY["description"]
    api.clock.now_ms += REMEMBERED_MS
    assert (await known())["t"].description == "elsewhere"
    await api.client.delete("/v1/tools/t")
    assert list(await known()) == ["add"]


async def test_a_branch_can_name_it(api: Api) -> None:
    answer = await api.client.post("/v1/branches", json={"tools": ["t"]})
    assert (answer.status_code, answer.json()["code"]) == (422, "unknown_tool")
    await api.client.put("/v1/tools/t", json=BODY)
    assert (await api.branch(tools=["t", "add"]))["tools"] == ["t", "add"]
    theirs = await api.key(project=await api.project())
    answer = await api.client.post("/v1/branches", json={"tools": ["t"]}, headers=theirs)
    assert (answer.status_code, answer.json()["code"]) == (422, "unknown_tool")
