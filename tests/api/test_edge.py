"""What the edge does with every request: bodies, problems, ids, and refusals of all kinds."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import structlog
from starlette.requests import Request
from starlette.responses import Response

from app.api.deps import Edge
from tests.support.api import BASE, BOOTSTRAP_KEY, Api, serving

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}
URL = "/v1/branches"
DEEP = 10_000


def assert_problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == status
    assert problem["code"] == code, problem
    assert problem["type"] == f"/problems/{code}"
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert set(problem) >= {"title", "detail", "errors", "retryable"}
    assert len(answer.content) < 10_000
    return problem


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "invalid_json"),
        (b"{", 400, "invalid_json"),
        (b"{}x", 400, "invalid_json"),
        (b"\xff", 400, "invalid_json"),
        (b'{"name": NaN}', 400, "invalid_json"),
        (b'{"metadata": {"x": 1e999}}', 400, "invalid_json"),
        (b'{"name": "a", "name": "b"}', 400, "invalid_json"),
        (b'{"metadata": {"x": "\\u0000"}}', 400, "invalid_json"),
        (b'{"metadata": {"\\u0000": 1}}', 400, "invalid_json"),
        (b'{"name": "\\ud800"}', 400, "invalid_json"),
        (b'{"metadata": {"x": 1' + b"0" * 5_000 + b"}}", 400, "invalid_json"),
        (b'{"metadata": ' + b"[" * DEEP + b"]" * DEEP + b"}", 422, "invalid_request"),
        (b'{"metadata": {"x": ' + b"[" * 70 + b"]" * 70 + b"}}", 422, "invalid_request"),
        (b"[]", 422, "invalid_request"),
        (b"null", 422, "invalid_request"),
        (b'"text"', 422, "invalid_request"),
        (b'{"' + b"k" * 100_000 + b'": 1}', 422, "invalid_request"),
        (b'{"name": "' + b"n" * 100_000 + b'"}', 422, "invalid_request"),
        (b"{" + b",".join(b'"k%d": 1' % n for n in range(1_000)) + b"}", 422, "invalid_request"),
    ],
    ids=lambda value: repr(value)[:24] if isinstance(value, bytes) else None,
)
async def test_bad_bodies(api: Api, body: bytes, status: int, code: str) -> None:
    assert_problem(await api.client.post(URL, content=body, headers=JSON), status, code)
    assert (await api.client.get(URL)).json()["data"] == []


async def test_a_broken_body_is_told_where_it_breaks(api: Api) -> None:
    problem = (await api.client.post(URL, content=b'{"name": tru}', headers=JSON)).json()
    assert problem["offset"] == 9
    deep = b'{"metadata": {"x": ' + b"[" * 70 + b"]" * 70 + b"}}"
    problem = (await api.client.post(URL, content=deep, headers=JSON)).json()
    assert_problem(await api.client.post(URL, content=deep, headers=JSON), 422, "invalid_request")
    assert problem["errors"][0]["pointer"].startswith("/metadata/x/0")
    deeper = b'{"metadata": {"x": ' + b"[" * 5_000 + b"]" * 5_000 + b"}}"
    assert_problem(await api.client.post(URL, content=deeper, headers=JSON), 422, "invalid_request")


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 201),
        ("APPLICATION/JSON; charset=UTF-8", 201),
        ('application/json;charset="utf-8"', 201),
        ("application/json; charset=latin-1", 415),
        ("text/plain", 415),
        ("application/problem+json", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        (None, 415),
    ],
)
async def test_only_json_is_read(api: Api, kind: str | None, status: int) -> None:
    headers = {"Content-Type": kind} if kind else {}
    answer = await api.client.post(URL, content=b"{}", headers=headers)
    if status == 201:
        assert answer.status_code == 201
    else:
        assert_problem(answer, 415, "unsupported_media_type")


async def chunks(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b" " * 1024


@pytest.mark.parametrize("length", [None, "10", "1000000", "nonsense"])
async def test_a_body_is_counted_whatever_its_length_says(
    empty_database_url: str, length: str | None
) -> None:
    async with serving(empty_database_url, edge=Edge(body_bytes=2048)) as api:
        headers = JSON if length is None else {**JSON, "Content-Length": length}
        answer = await api.client.post(URL, content=chunks(3), headers=headers)
        assert assert_problem(answer, 413, "body_too_large")["limit"] == 2048
        answer = await api.client.post(URL, content=b"{}".ljust(2048), headers=JSON)
        assert answer.status_code == 201


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/v1/branches/", 404, "not_found"),
        ("GET", "/v1/branches/00000000-0000-7000-8000-000000000000", 404, "not_found"),
        ("GET", "/v1/branches/not-an-id", 404, "not_found"),
        ("PATCH", "/v1/branches/not-an-id", 404, "not_found"),
        ("GET", "/v1/branches/a%00b", 400, "malformed_request"),
        ("GET", "/v1/models/%00", 400, "malformed_request"),
        ("PUT", URL, 405, "method_not_allowed"),
        ("BREW", URL, 405, "method_not_allowed"),
        ("DELETE", "/healthz", 405, "method_not_allowed"),
    ],
)
async def test_addresses_that_lead_nowhere(api: Api, method: str, path: str, status: int, code: str) -> None:
    answer = await api.client.request(
        method, path, headers=JSON, content=b"{}" if method == "PATCH" else None
    )
    assert_problem(answer, status, code)
    if status == 405:
        assert answer.headers["allow"] == ("GET, POST" if path == URL else "GET")


@pytest.mark.parametrize("sent", ["abc-123", "0:1/2=@+._"])
async def test_a_request_id_is_echoed(api: Api, sent: str) -> None:
    answer = await api.client.get("/v1/branches", headers={"X-Request-Id": sent})
    assert answer.headers["x-request-id"] == sent


@pytest.mark.parametrize("sent", [None, "", "with blank", "x" * 129, "a\tb", 'quote"'])
async def test_a_request_id_that_is_none_is_replaced(api: Api, sent: str | None) -> None:
    headers = {} if sent is None else {"X-Request-Id": sent}
    first = (await api.client.get("/healthz", headers=headers)).headers["x-request-id"]
    second = (await api.client.get("/healthz", headers=headers)).headers["x-request-id"]
    assert first not in (second, sent)
    assert len(first) == 36


async def test_an_unforeseen_error_is_a_problem_that_tells_nothing(api: Api) -> None:
    async def explode(request: Request) -> Response:
        raise RuntimeError("the secret inside")

    api.app.router.add_route("/explode", explode)
    with structlog.testing.capture_logs() as logs:
        answer = await api.client.get("/explode")
    problem = assert_problem(answer, 500, "internal")
    assert "secret" not in answer.text
    failed = [line for line in logs if line["event"] == "request failed"]
    assert [line["request_id"] for line in failed] == [problem["request_id"]]
    assert failed[0]["exc_info"]


async def test_a_client_that_leaves_while_it_sends_is_not_an_error(api: Api) -> None:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": URL,
        "query_string": b"",
        "headers": [(b"authorization", f"Bearer {BOOTSTRAP_KEY}".encode())],
    }
    with structlog.testing.capture_logs() as logs:
        await api.app(scope, receive, send)
    assert sent == []
    assert [(line["event"], line["status"]) for line in logs] == [("request", 499)]


async def test_the_access_log_holds_no_secrets(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with structlog.testing.capture_logs() as logs:
        await api.client.post(URL + "?ticket=hidden", json={"name": "hidden"}, headers={"Cookie": "hidden"})
        await api.client.get("/healthz")
    assert "hidden" not in repr(logs)
    assert "Bearer" not in repr(logs)
    lines = [{k: v for k, v in line.items() if k not in ("ms", "request_id")} for line in logs]
    assert lines == [
        {"event": "request", "log_level": "info", "method": "POST", "route": "/v1/branches", "status": 201}
    ]


DEVELOPMENT = Edge(development=True)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "127.0.0.1:8000"}, 200),
        ({"Host": "[::1]:8000"}, 200),
        ({"Host": "LOCALHOST:8000"}, 200),
        ({"Host": "localhost"}, 403),
        ({"Host": "localhost:8001"}, 403),
        ({"Host": "evil.example:8000"}, 403),
        ({"Host": "localhost.evil.example:8000"}, 403),
        ({"Host": "evil.example#localhost:8000"}, 403),
        ({"Host": "[::2]:8000"}, 403),
        ({"Host": ""}, 403),
        ({"Origin": "http://localhost:8000"}, 200),
        ({"Origin": "http://127.0.0.1:8000"}, 200),
        ({"Origin": "http://localhost:3000"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
    ],
)
async def test_development_mode_answers_this_machine_alone(
    empty_database_url: str, headers: dict[str, str], status: int
) -> None:
    async with serving(empty_database_url, edge=DEVELOPMENT) as api:
        answer = await api.client.get(URL, headers=headers)
        if status == 403:
            assert_problem(answer, 403, "forbidden")
        assert answer.status_code == status


async def test_development_mode_needs_no_key_but_checks_one(empty_database_url: str) -> None:
    async with serving(empty_database_url, edge=DEVELOPMENT) as api:
        assert (await api.client.post(URL, json={})).status_code == 201
        answer = await api.client.get(URL, headers={"Authorization": "Bearer bl_unknown"})
        assert_problem(answer, 401, "unauthenticated")


async def test_a_production_server_has_any_name(api: Api) -> None:
    headers = {"Host": "branchline.example", "Origin": "https://evil.example"}
    answer = await api.client.get(URL, headers=headers)
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("development", [False, True])
async def test_listed_origins_may_call(empty_database_url: str, development: bool) -> None:
    edge = Edge(development=development, cors_origins=("https://app.example",))
    async with serving(empty_database_url, edge=edge) as api:
        preflight = {
            "Origin": "https://app.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization, content-type, idempotency-key",
        }
        answer = await api.client.options(URL, headers=preflight)
        assert answer.status_code == 200, answer.text
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        answer = await api.client.get(URL, headers={"Origin": "https://app.example"})
        assert answer.status_code == 200
        assert "X-Request-Id" in answer.headers["access-control-expose-headers"]
        answer = await api.client.get(URL, headers={"Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in answer.headers
        assert answer.status_code == (403 if development else 200)


async def test_health_and_readiness(empty_database_url: str) -> None:
    faults: dict[str, str | None] = {"database": None, "recorder": None}

    async def database() -> str | None:
        return faults["database"]

    async def recorder() -> str | None:
        if faults["recorder"] == "raise":
            raise RuntimeError("broken")
        return faults["recorder"]

    checks = {"database": database, "recorder": recorder}
    async with (
        serving(empty_database_url, readiness=checks) as api,
        httpx.AsyncClient(transport=httpx.ASGITransport(api.app), base_url=BASE) as anyone,
    ):
        assert (await anyone.get("/healthz")).json() == {"status": "ok"}
        assert (await anyone.get("/readyz")).json() == {"status": "ok"}
        faults["recorder"] = "it is paused"
        answer = await anyone.get("/readyz")
        problem = assert_problem(answer, 503, "unavailable")
        assert [(e["code"], e["message"]) for e in problem["errors"]] == [("recorder", "it is paused")]
        assert answer.headers["retry-after"] == "1"
        faults["recorder"] = "raise"
        assert_problem(await anyone.get("/readyz"), 503, "unavailable")
        assert (await anyone.get("/healthz")).status_code == 200


async def test_metrics_count_requests_by_template(api: Api) -> None:
    for _ in range(3):
        await api.client.get("/v1/branches/00000000-0000-7000-8000-000000000000")
    await api.client.get("/nowhere/at/all")
    await api.client.request("BREW", "/healthz")
    text = (await api.client.get("/metrics")).text
    counted = 'branchline_http_requests_total{method="GET",route="/v1/branches/{branch_id}",status="404"} 3.0'
    assert counted in text
    assert 'route="unmatched",status="404"} 1.0' in text
    assert "/nowhere" not in text
    assert 'method="OTHER"' in text
    assert "BREW" not in text


async def test_the_catalog_tells_version_and_event_types(api: Api) -> None:
    assert (await api.client.get("/v1/version")).json() == {"name": "branchline", "version": "0"}
    types = {kind["type"]: kind for kind in (await api.client.get("/v1/event-types")).json()["data"]}
    assert types["TOKEN"]["fields"][0]["name"] == "text"
    assert types["TOKEN"]["family"] == "session"


async def test_every_problem_explains_itself(api: Api) -> None:
    problem = (await api.client.get("/v1/branches/not-an-id")).json()
    explained = (await api.client.get(problem["type"])).json()
    assert (explained["code"], explained["status"], explained["retryable"]) == ("not_found", 404, False)
    listed = (await api.client.get("/problems")).json()["data"]
    assert explained in listed
    assert all(entry["description"] for entry in listed)
    assert_problem(await api.client.get("/problems/nonsense"), 404, "not_found")
