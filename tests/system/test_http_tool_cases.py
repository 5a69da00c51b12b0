"""Failures of tools over HTTP from the field: what a client of the service must get from each of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import pytest

from tests.support import cases
from tests.support.acting import begun, call, pairs_of, rows_of
from tests.support.http_tools import SILENCE, full, gives
from tests.support.model_server import Attempt, ModelServer
from tests.support.polling import until
from tests.support.service import Service

pytestmark = pytest.mark.anyio

CASES = cases.load("6-http-tools-mcp")
UNKNOWN = "whether the tool took effect is unknown"

_numbers = count(1)


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    """The tool's."""
    async with ModelServer() as made:
        yield made


async def registered(service: Service, server: ModelServer, *, idempotent: bool = False, **http: Any) -> str:
    """A tool that is called at the server."""
    name = f"case_{next(_numbers)}"
    body = {
        "kind": "http",
        "parameters": {"type": "object"},
        "idempotent": idempotent,
        "http": {"url": server.base_url, **http},
    }
    answer = await service.http.put(f"/v1/tools/{name}", json=body)
    assert answer.status_code == 201, answer.text
    return name


async def ended(service: Service, name: str, expected: dict[str, Any], **body: Any) -> dict[str, Any]:
    """The only call of a run, which ended as the case says and left a response to its request."""
    branch = await service.branch()
    run = await service.act(branch, call(name), **body)
    assert run["status"] == "completed"
    (row,) = await rows_of(service, run["id"])
    assert row["execution"]["error"]["error"] == expected["error_code"]
    ((asked, answered),) = await pairs_of(service, branch)
    assert asked["function"] == name
    assert answered["error"] == answered["output"]["error"] == run["result"][0]["error"]
    assert answered["error"].startswith(f"{expected['error_code']}: ")
    return row


@pytest.mark.parametrize("limits", [{"first_byte": 300}, {"total": 300}])
async def test_h06_a_tool_that_never_answers_is_given_up(
    service: Service, server: ModelServer, limits: dict[str, int]
) -> None:
    server.scripts[""] = [SILENCE]
    row = await ended(service, await registered(service, server, timeout_ms=limits), CASES["H06"]["expected"])
    assert row["execution"]["duration"] < CASES["H06"]["input"]["tool_timeout_s"]
    assert UNKNOWN in row["execution"]["error"]["message"]
    await until(lambda: len(server.left_early) == 1)


async def test_h06_a_server_that_takes_no_connection_is_given_up(service: Service) -> None:
    with full() as port:
        url = f"http://127.0.0.1:{port}/"
        spec = {"kind": "http", "parameters": {"type": "object"}}
        http = {"url": url, "timeout_ms": {"connect": 300}}
        assert (await service.http.put("/v1/tools/full", json={**spec, "http": http})).status_code == 201
        row = await ended(service, "full", CASES["H06"]["expected"])
    assert row["execution"]["duration"] < CASES["H06"]["input"]["tool_timeout_s"]
    assert "nothing was sent" in row["execution"]["error"]["message"]


async def test_h06_the_callers_own_limit_counts_too(service: Service, server: ModelServer) -> None:
    server.scripts[""] = [SILENCE]
    name = await registered(service, server)
    await ended(service, name, CASES["H06"]["expected"], call_params={"retry_timeout": 0.3})
    await until(lambda: len(server.left_early) == 1)


async def test_h06_a_run_is_cancelled_while_it_waits(service: Service, server: ModelServer) -> None:
    server.scripts[""] = [SILENCE]
    name = await registered(service, server)
    run = await begun(service, await service.branch(), requests=[call(name)])
    await until(lambda: len(server.requests) == 1)
    answer = await service.http.post(f"/v1/runs/{run['id']}/cancel")
    assert answer.json()["status"] == "cancelled"
    await until(lambda: len(server.left_early) == 1)


LOST = Attempt(head=b"", chunks=[0.01], then="reset")


@pytest.mark.parametrize("attempt", [LOST, gives(b"", 429), gives(b"", 502), SILENCE])
async def test_h08_what_may_have_been_done_is_not_done_again(
    service: Service, server: ModelServer, attempt: Attempt
) -> None:
    server.scripts[""] = [attempt]
    name = await registered(service, server, idempotent=False, timeout_ms={"first_byte": 300}, tries=5)
    run = await service.act(await service.branch(), call(name), call_params={"retry_attempts": 3})
    assert len(server.requests) == 1
    if attempt is LOST:
        (row,) = await rows_of(service, run["id"])
        assert row["execution"]["error"]["error"] == CASES["H08"]["expected"]["error_code"]
        assert UNKNOWN in row["execution"]["error"]["message"]


async def test_h08_an_idempotent_tool_gets_one_key_for_all_tries(
    service: Service, server: ModelServer
) -> None:
    server.scripts[""] = [LOST]
    name = await registered(service, server, idempotent=True, tries=2)
    row = await ended(service, name, CASES["H08"]["expected"])
    assert [request.headers["idempotency-key"] for request in server.requests] == [row["call_id"]] * 2
    server.scripts[""] = [gives(b"1")]
    await service.act(await service.branch(), call(name))
    assert server.requests[-1].headers["idempotency-key"] != row["call_id"]


async def test_h08_attempts_of_the_run_keep_the_key_too(service: Service, server: ModelServer) -> None:
    server.scripts[""] = [LOST, LOST, LOST, gives(b"1")]
    name = await registered(service, server, idempotent=True, tries=2)
    run = await service.act(await service.branch(), call(name), call_params={"retry_attempts": 1})
    (result,) = run["result"]
    assert result["output"] == 1
    assert [r.headers["idempotency-key"] for r in server.requests] == [result["call_id"]] * 4


H09: list[Any] = ["INVALID_RESPONSE", None, {"a": 1}, {"a": "é"}, 7, "INVALID_RESPONSE"]
"""What becomes of each answer of the case."""


@pytest.mark.parametrize("n", range(len(H09)))
async def test_h09_a_body_counts_and_not_what_is_said_of_it(
    service: Service, server: ModelServer, n: int
) -> None:
    given = CASES["H09"]["input"]["responses"][n]
    body = given["body_latin1"].encode("latin-1") if "body_latin1" in given else given["body"].encode()
    kind = given.get("content_type")
    # What has no body has no length either.
    server.scripts[""] = [Attempt([body], given["status"], kind, framing="length" if body else "eof")]
    name = await registered(service, server, idempotent=True)
    run = await service.act(await service.branch(), call(name))
    (result,) = run["result"]
    if H09[n] == "INVALID_RESPONSE":
        assert result["status"] == "failed"
        assert result["error"].startswith("INVALID_RESPONSE: ")
        assert given["body"] in result["error"]
    else:
        assert (result["output"], result["error"], result["status"]) == (H09[n], None, "completed")
    assert len(server.requests) == 1


async def test_h09_an_excerpt_is_short(service: Service, server: ModelServer) -> None:
    server.scripts[""] = [gives(b"<html>" + b"x" * 100_000)]
    run = await service.act(await service.branch(), call(await registered(service, server)))
    assert len(run["result"][0]["error"]) < 400


@pytest.mark.parametrize(("idempotent", "requests"), [(False, 1), (True, 3)])
async def test_h11_half_an_answer_is_none(
    service: Service, server: ModelServer, idempotent: bool, requests: int
) -> None:
    head, _, body = CASES["H11"]["input"]["server"].partition("\r\n\r\n")
    server.scripts[""] = [Attempt([body.encode(), 0.02], head=f"{head}\r\n\r\n".encode(), then="reset")]
    name = await registered(service, server, idempotent=idempotent)
    row = await ended(service, name, CASES["H11"]["expected"])
    assert len(server.requests) == requests
    assert "X-1" not in json.dumps(row)
