"""Tools over HTTP in runs: each end is told apart and recorded, and nobody sees a secret."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest

from app.adapters.tools.http_answers import MAX_BYTES
from tests.support.model_server import Attempt, ModelServer
from tests.support.polling import until
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

JSON = "application/json"
OPERATOR = "the operator's key of the tests"
TOKEN = "a-token-that-nobody-sees"
WRITTEN = "a-value-that-was-written-out"
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
SILENCE = Attempt(head=b"", then="hang")


def gives(body: bytes, status: int = 200, **more: Any) -> Attempt:
    return Attempt([body], status, JSON, framing="length", **more)


ATTEMPTS: Mapping[str, Attempt] = {
    "sum": gives(b'{"sum": 3}'),
    "null": gives(b"null"),
    "none": Attempt(status=204, content_type=None),
    "false": gives(b"false"),
    "empty": gives(b'""'),
    "boom": gives(b'{"error": "no stock"}', 500),
    "busy": gives(b"", 503),
    "slow": SILENCE,
    "large": gives(b'"' + b"x" * MAX_BYTES + b'"'),
    "redirect": gives(b"", 302, headers={"Location": "http://127.0.0.1:1/"}),
    "reset": Attempt(head=b"", chunks=[0.01], then="reset"),
    "half": Attempt([b'{"a": 1'], framing="length", cut=True),
    "html": gives(b"<html>"),
}
OUTPUTS: Mapping[str, Any] = {"sum": {"sum": 3}, "null": None, "none": None, "false": False, "empty": ""}
FAILURES: Mapping[str, tuple[str, bool | None]] = {
    "boom": ("HTTP_ERROR: HTTP 500: no stock", False),
    "busy": ("HTTP_ERROR: HTTP 503", True),
    "slow": ("TIMEOUT: ", None),
    "large": ("HTTP_TOO_LARGE: ", False),
    "redirect": ("BLOCKED_ADDRESS: ", False),
    "reset": ("OUTCOME_UNKNOWN: ", True),
    "half": ("CONNECTION_LOST: ", True),
    "html": ("INVALID_RESPONSE: ", False),
}


@pytest.fixture(scope="module")
async def servers() -> AsyncIterator[Mapping[str, ModelServer]]:
    """A server for each way of answering."""
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(ModelServer({"": [attempt]}))
            for name, attempt in ATTEMPTS.items()
        }


async def register(service: Service, name: str, url: str, **http: Any) -> None:
    body = {
        "kind": "http",
        "description": f"The tool {name}.",
        "parameters": NUMBER,
        "http": {"url": url, **http},
    }
    answer = await service.http.put(f"/v1/tools/{name}", json=body)
    assert answer.status_code < 300, answer.text


def request(function: str, **arguments: Any) -> dict[str, Any]:
    return {"function": function, "arguments": arguments}


async def test_every_end_is_told_apart_and_recorded(
    service: Service, servers: Mapping[str, ModelServer]
) -> None:
    for name, server in servers.items():
        limits = {"first_byte": 250} if name == "slow" else {}
        await register(service, f"t_{name}", server.base_url, timeout_ms=limits)
    branch = await service.branch()
    names = [*OUTPUTS, *FAILURES]
    run = await service.act(branch, *(request(f"t_{name}", n=2**70) for name in names))
    results = dict(zip(names, run["result"], strict=True))
    assert [result["function"] for result in run["result"]] == [f"t_{name}" for name in names]
    calls = {call["function"][2:]: call for call in (await service.get("/v1/function-calls"))["data"]}
    for name, output in OUTPUTS.items():
        result = results[name]
        assert (result["output"], result["error"], result["status"]) == (output, None, "completed")
        assert calls[name]["execution"]["response"] == output
    for name, (error, retryable) in FAILURES.items():
        assert results[name]["error"].startswith(error), name
        assert (results[name]["status"], calls[name]["execution"]["retryable"]) == ("failed", retryable)
        assert calls[name]["execution"]["error"]["error"] == error.partition(":")[0]
    messages = [m for m in await service.messages(branch) if m["kind"] == "action_response"]
    assert {m["content"]["function"]: m["content"]["error"] for m in messages} == {
        result["function"]: result["error"] for result in run["result"]
    }
    for name, result in results.items():
        (asked,) = servers[name].requests
        project = asked.body.pop("project_id")
        assert project
        assert asked.body == {
            "call_id": result["call_id"],
            "function": f"t_{name}",
            "arguments": {"n": 2**70},
            "run_id": run["id"],
            "branch_id": branch,
        }
        assert asked.headers["idempotency-key"] == result["call_id"]


async def test_arguments_that_do_not_fit_are_not_sent(service: Service) -> None:
    async with ModelServer({"": [gives(b"1")]}) as server:
        await register(service, "t_strict", server.base_url)
        branch = await service.branch(tools=["t_strict"])
        bad = [{"function": "t_strict", "arguments": arguments} for arguments in ({"n": "x"}, {"m": 1}, [1])]
        run = await service.act(branch, *bad)
        assert [r["error"].partition(":")[0] for r in run["result"]] == ["INVALID_ARGUMENTS"] * 3
        assert server.connections == 0


async def test_a_model_is_shown_the_tool_and_its_call_is_carried_out(service: Service) -> None:
    async with ModelServer({"": [gives(b'{"sum": 42}')]}) as server:
        await register(service, "t_model", server.base_url)
        call = {"index": 0, "id": "c1", "name": "t_model", "arguments": '{"n": 2}'}
        model = await service.scripted("asks", [{"tool_call": call}, {"end": "tool_calls"}])
        branch = await service.branch(chat_model=model)
        run = await service.operate(branch, actions=True, tools=["t_model"])
        (response,) = run["result"]["action_responses"]
        assert (response["output"], server.requests[0].body["arguments"]) == ({"sum": 42}, {"n": 2})


async def test_cancelling_the_run_closes_the_connection(service: Service) -> None:
    async with ModelServer({"": [SILENCE]}) as server:
        await register(service, "t_waits", server.base_url)
        branch = await service.branch()
        answer = await service.http.post(
            f"/v1/branches/{branch}/act",
            json={"requests": request("t_waits")},
            headers={"Prefer": "respond-async"},
        )
        await until(lambda: len(server.requests) == 1)
        run = (await service.http.post(f"/v1/runs/{answer.json()['id']}/cancel")).json()
        assert run["status"] == "cancelled"
        await until(lambda: len(server.left_early) == 1)
        (call,) = (await service.get(f"/v1/function-calls?run_id={run['id']}"))["data"]
        assert call["status"] == "cancelled"


async def test_a_tool_is_known_and_gone_at_once(service: Service) -> None:
    async with ModelServer({"": [gives(b"1")]}) as server:
        branch = await service.branch()
        outcomes = []
        for change in (None, "PUT", "DELETE"):
            if change == "PUT":
                await register(service, "t_short", server.base_url)
            elif change == "DELETE":
                assert (await service.http.delete("/v1/tools/t_short")).status_code == 204
            run = await service.act(branch, request("t_short"))
            outcomes.append(run["result"][0]["error"] or run["result"][0]["output"])
    assert outcomes[1] == 1
    assert [str(o).partition(":")[0] for o in outcomes] == ["TOOL_NOT_FOUND", "1", "TOOL_NOT_FOUND"]


async def test_secrets_are_sent_and_seen_by_nobody_else(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOOL_TOKEN", f"Bearer {TOKEN}")
    echo = gives(json.dumps({"error": f"{TOKEN} and {WRITTEN} are no good"}).encode(), 401)
    settings: dict[str, Any] = {"exposed_env": ("TOOL_TOKEN",), "log_level": "debug"}
    async with ModelServer({"": [echo]}) as server, running(database_url, **settings) as service:
        headers = {"Authorization": "env:TOOL_TOKEN", "X-Key": WRITTEN}
        await register(service, "t_secret", server.base_url, headers=headers)
        branch = await service.branch()
        run = await service.act(branch, request("t_secret"))
        (asked,) = server.requests
        assert (asked.headers["authorization"], asked.headers["x-key"]) == (f"Bearer {TOKEN}", WRITTEN)
        seen = [run, await service.messages(branch), await service.events(run["id"])]
        paths = ("/v1/function-calls", "/v1/tools", "/v1/tools/t_secret")
        seen += [await service.get(path) for path in paths]
        text = json.dumps(seen)
        assert "[redacted] and [redacted] are no good" in text
        for secret in (TOKEN, WRITTEN):
            assert secret not in text
        captured = capsys.readouterr()
        assert TOKEN not in captured.out + captured.err
        assert WRITTEN not in captured.out + captured.err


async def test_an_address_is_judged_again_when_it_is_called(database_url: str) -> None:
    async with ModelServer({"": [gives(b"1")]}) as server:
        private: dict[str, Any] = {"bootstrap_key": OPERATOR}
        key = {"Authorization": f"Bearer {OPERATOR}"}
        for allowed, expected in (("127.0.0.1",), None), ((), "BLOCKED_ADDRESS"):
            async with running(database_url, allowed_hosts=allowed, **private) as service:
                service.http.headers.update(key)
                if allowed:
                    await register(service, "t_inside", server.base_url)
                run = await service.act(await service.branch(), request("t_inside"))
                error = run["result"][0]["error"]
                assert (error and error.partition(":")[0]) == expected
        assert len(server.requests) == 1
