"""Model servers that are away, misled, silent or broken: what a client is told, and what is left behind."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.support import chat_wire
from tests.support.database import migrated
from tests.support.heard import ONCE, hear, heard, served
from tests.support.model_server import Attempt, ModelServer
from tests.support.polling import until
from tests.support.postgres import PostgresServer
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

SECRET = "sk-a-key-that-nobody-may-see"
GOOD = [Attempt(chat_wire.text("fine"))]
HALF = [chat_wire.delta({"content": "half "})]
JSON = "application/json"

SOON: dict[str, Any] = {"initial_token_ms": 200, "inter_token_ms": 60_000}
SOON_AFTER_THE_FIRST: dict[str, Any] = {"initial_token_ms": 60_000, "inter_token_ms": 200}
ONLY_BETWEEN: dict[str, Any] = {"initial_token_ms": None, "inter_token_ms": 200}


@dataclass(frozen=True)
class Bad:
    """A way to fail, and what is to be told of it."""

    code: str
    says: str
    """A part of the message."""
    retryable: bool
    attempt: Attempt | None = None
    """None where no answer ever begins."""
    partial: str | None = None
    timeout: dict[str, Any] = field(default_factory=dict)


def status(code: int, body: bytes = b"", content_type: str = JSON, **headers: str) -> Attempt:
    """An answer with an HTTP status."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Attempt([body], code, content_type, named, framing="length")


def error(message: str) -> bytes:
    """An error as model servers put it."""
    return json.dumps({"error": {"message": message, "type": "t"}}).encode()


HTML = b"<html><body><h1>Sign in</h1></body></html>"

NETWORK, REFUSED, NO_STREAM, CUT = "NETWORK_ERROR", "PROVIDER_ERROR", "INVALID_STREAM", "STREAM_TRUNCATED"

BAD = {
    # No connection.
    "refused": Bad(NETWORK, "check that it runs at base_url", True),
    "no such name": Bad(NETWORK, "has no address; check base_url", True),
    "no TLS": Bad(NETWORK, "TLS handshake failed; check base_url", False),
    # A connection without an answer.
    "closed": Bad(NETWORK, "closed before the answer", True, Attempt(head=b"")),
    "reset at once": Bad(NETWORK, "reset", True, Attempt(head=b"", then="reset")),
    "no HTTP": Bad(NO_STREAM, "is not HTTP", False, Attempt(head=b"\x00nonsense\r\n\r\n")),
    # An answer that is none.
    "401": Bad(REFUSED, "HTTP 401: bad key", False, status(401, error("bad key"))),
    "403": Bad(REFUSED, "check the model's API key", False, status(403)),
    "404": Bad(REFUSED, "base_url and the model's name", False, status(404, b"404 page not found")),
    "302": Bad(REFUSED, "redirects are not followed", True, status(302, Location="http://127.0.0.1:1/")),
    "429": Bad("RATE_LIMITED", "429: slow down", True, status(429, error("slow down"), Retry_After="30")),
    "500": Bad(REFUSED, "HTTP 500: <html>", True, status(500, HTML, "text/html")),
    "503": Bad(REFUSED, "status 503", True, status(503)),
    "a page": Bad(NO_STREAM, "check base_url: '<html>", False, Attempt([HTML], content_type="text/html")),
    "other JSON": Bad(NO_STREAM, "check base_url: '{}'", False, Attempt([b"{}"], content_type=JSON)),
    "an error as JSON": Bad(REFUSED, "loading", True, Attempt([error("loading")], content_type=JSON)),
    "nothing": Bad(CUT, "before it was complete", True, Attempt([])),
    # An answer that breaks off.
    "cut": Bad(CUT, "before it was complete", True, Attempt(HALF), "half "),
    "cut chunk": Bad(NETWORK, "closed before", True, Attempt(HALF, framing="chunked", cut=True), "half "),
    "reset": Bad(NETWORK, "reset", True, Attempt([*HALF, 0.01], then="reset"), "half "),
    "no JSON": Bad(REFUSED, "is no JSON: '{oops'", True, Attempt([*HALF, b"data: {oops\n\n"]), "half "),
    "an error inside": Bad(REFUSED, "boom", True, Attempt([*HALF, b"event: error\ndata: boom\n\n"]), "half "),
    # Silence.
    "no answer": Bad(
        "INITIAL_TOKEN_TIMEOUT",
        "200 ms, the limit timeout.initial_token_ms",
        True,
        Attempt(open_wait_s=60),
        timeout=SOON,
    ),
    "headers alone": Bad(
        "INITIAL_TOKEN_TIMEOUT",
        "200 ms, the limit timeout.initial_token_ms",
        True,
        Attempt(then="hang"),
        timeout=SOON,
    ),
    "stalled": Bad(
        "INTER_TOKEN_TIMEOUT",
        "200 ms, the limit timeout.inter_token_ms",
        True,
        Attempt(HALF, then="hang"),
        "half ",
        SOON_AFTER_THE_FIRST,
    ),
}


@pytest.fixture(scope="module")
async def service(postgres: PostgresServer) -> AsyncIterator[Service]:
    """The service with a secret in its environment."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MODEL_KEY", SECRET)
        async with migrated(postgres) as url, running(url, exposed_env=("MODEL_KEY",)) as made:
            yield made


@asynccontextmanager
async def model_of(service: Service, server: ModelServer, name: str) -> AsyncIterator[str]:
    """A registered model that fails in the way of `BAD[name]`."""
    attempt = BAD[name].attempt
    if attempt is not None:
        yield await served(service, server, [attempt])
    elif name == "refused":
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # and nobody listens
            yield await served(service, server, [], base_url=f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
    elif name == "no such name":
        yield await served(service, server, [], base_url=f"http://{'x' * 64}.test/v1")
    else:
        async with await asyncio.start_server(_talk_plainly, "127.0.0.1", 0) as plain:
            port = plain.sockets[0].getsockname()[1]
            yield await served(service, server, [], base_url=f"https://127.0.0.1:{port}/v1")


async def _talk_plainly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    writer.close()


@pytest.mark.parametrize("name", BAD)
async def test_failed(
    service: Service, model_server: ModelServer, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    bad = BAD[name]
    async with model_of(service, model_server, name) as model:
        got = await hear(service, model, lifecycle={**ONCE, "timeout": bad.timeout})
    run = got.run
    assert (run["status"], got.code) == ("failed", bad.code)
    assert bad.says in run["error"]["message"]
    assert "\n" not in run["error"]["message"]
    assert run["error"]["retryable"] is bad.retryable
    assert (run["result"], run["partial_text"], got.messages) == (None, bad.partial, [])
    assert got.types[-1] == "RUN_FAILED"
    assert got.events[-1]["meta"]["error"] == run["error"]

    good = await served(service, model_server, GOOD)
    after = await service.operate(run["branch_id"], chat_model=good, instruction="again")
    assert (after["status"], after["result"]) == ("completed", "fine")
    kinds = [message["kind"] for message in await service.messages(run["branch_id"])]
    assert kinds == ["instruction", "assistant_response"]
    prompt = model_server.requests[-1].body["messages"]
    assert [(message["role"], message["content"]) for message in prompt] == [("user", "again")]
    for unfinished in ("queued", "running", "waiting"):
        assert (await service.get(f"/v1/runs?status={unfinished}"))["data"] == []
    logged = capsys.readouterr().out
    assert "/v1/branches/{branch_id}/operate" in logged
    assert "Traceback" not in logged


@pytest.mark.parametrize("name", BAD)
async def test_another_model_answers_instead(service: Service, model_server: ModelServer, name: str) -> None:
    good = await served(service, model_server, GOOD)
    async with model_of(service, model_server, name) as model:
        options = {**ONCE, "timeout": BAD[name].timeout, "fallbacks": [good]}
        got = await hear(service, model, lifecycle=options)
    assert (got.run["status"], got.run["result"], got.text) == ("completed", "fine", "fine")
    assert (got.run["model"], got.run["fallback_index"], got.run["attempts"]) == (good, 1, 2)
    assert got.run["error"] is None
    (told,) = [event["meta"] for event in got.events if event["type"] == "ERROR"]
    assert (told["code"], told["recoveryStrategy"]) == (BAD[name].code, "fallback")


RECOVERING = {
    name: bad.attempt for name, bad in BAD.items() if bad.retryable and bad.attempt and not bad.timeout
}


@pytest.mark.parametrize("name", RECOVERING)
async def test_the_same_model_is_asked_again(service: Service, model_server: ModelServer, name: str) -> None:
    attempt = replace(RECOVERING[name], headers={})  # without Retry-After
    model = await served(service, model_server, [attempt, attempt, *GOOD])
    got = await hear(service, model, lifecycle={"retry": {"base_delay_ms": 0}})
    assert (got.run["status"], got.run["result"], got.text) == ("completed", "fine", "fine")
    assert got.run["attempts"] == 3
    assert [message["kind"] for message in got.messages] == ["instruction", "assistant_response"]


async def test_a_server_that_answers_all_at_once_is_taken_as_it_is(
    service: Service, model_server: ModelServer
) -> None:
    message = {"role": "assistant", "content": "whole"}
    body = {
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
    }
    attempt = Attempt([json.dumps(body).encode()], content_type=JSON)
    got = await hear(service, await served(service, model_server, [attempt]))
    assert (got.run["status"], got.run["result"], got.run["finish_reason"]) == ("completed", "whole", "stop")
    usage = got.run["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["estimated"]) == (3, 1, False)


async def test_every_models_failure_is_told_when_all_fail(
    service: Service, model_server: ModelServer
) -> None:
    names = ["401", "cut", "a page"]
    models = [await served(service, model_server, [BAD[name].attempt or Attempt()]) for name in names]
    got = await hear(service, models[0], lifecycle={**ONCE, "fallbacks": models[1:]})
    assert (got.run["status"], got.code) == ("failed", "ALL_STREAMS_EXHAUSTED")
    assert [cause["code"] for cause in got.detail["causes"]] == [BAD[name].code for name in names]
    for cause, name in zip(got.detail["causes"], names, strict=True):
        assert BAD[name].says in cause["message"]


async def test_retry_after_is_waited_for(service: Service, model_server: ModelServer) -> None:
    busy = status(429, error("slow down"), Retry_After="1")
    model = await served(service, model_server, [busy, *GOOD])
    got = await hear(service, model, lifecycle={"retry": {"base_delay_ms": 0}})
    assert got.run["result"] == "fine"
    (retry,) = [event["meta"] for event in got.events if event["type"] == "RETRY_ATTEMPT"]
    assert retry["delayMs"] == 1_000
    first, second = [request.at for request in model_server.requests if request.model == model]
    assert second - first >= 1.0


@pytest.mark.parametrize(
    ("name", "http_status", "code"), [("500", 502, "run_failed"), ("no answer", 504, "run_timed_out")]
)
async def test_unsuppressed_it_is_a_problem_with_the_same_words(
    service: Service, model_server: ModelServer, name: str, http_status: int, code: str
) -> None:
    async with model_of(service, model_server, name) as model:
        branch = await service.branch(chat_model=model)
        options = {**ONCE, "timeout": BAD[name].timeout}
        body = {"instruction": "go", "suppress_errors": False, "lifecycle": options}
        answer = await service.http.post(f"/v1/branches/{branch}/operate", json=body)
    assert (answer.status_code, answer.json()["code"]) == (http_status, code)
    run = await service.get(f"/v1/runs/{answer.json()['run_id']}")
    assert answer.json()["error"] == run["error"]
    assert BAD[name].says in answer.text.replace('\\"', '"')


# Secrets


@pytest.mark.parametrize("where", ["status", "in the stream", "in a header", "as bare words"])
async def test_no_secret_is_told_whatever_the_server_quotes(
    service: Service, model_server: ModelServer, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    quoting = error(f"Incorrect API key provided: {SECRET}. Bearer {SECRET} is unknown.")
    attempt = {
        "status": status(401, quoting),
        "in the stream": Attempt([*HALF, b"data: " + quoting + b"\n\n"]),
        "in a header": status(400, b"", X_Request_Id=SECRET),
        "as bare words": Attempt([f"no {SECRET}".encode()], content_type="text/plain"),
    }[where]
    model = await served(service, model_server, [attempt], api_key_env="MODEL_KEY")
    got = await hear(service, model)
    assert got.run["status"] == "failed"
    assert model_server.requests[-1].headers["authorization"] == f"Bearer {SECRET}"
    told = json.dumps([got.run, got.events, await service.get(f"/v1/models/{model}")])
    assert "[redacted]" in told
    assert SECRET not in told
    assert SECRET not in capsys.readouterr().out


# Hanging up


async def _cancel(service: Service, run_id: str) -> None:
    await service.http.post(f"/v1/runs/{run_id}/cancel")


async def _wait(service: Service, run_id: str) -> None:
    await service.ended(run_id)


Ending = Callable[[Service, str], Any]


@pytest.mark.parametrize(
    ("attempt", "timeout", "ending", "code"),
    [
        (Attempt(open_wait_s=60), None, _cancel, "STREAM_ABORTED"),
        (Attempt(then="hang"), None, _cancel, "STREAM_ABORTED"),
        (Attempt(HALF, then="hang"), None, _cancel, "STREAM_ABORTED"),
        (Attempt([*HALF, 0.01] * 2_000), None, _cancel, "STREAM_ABORTED"),
        (Attempt(open_wait_s=60), SOON, _wait, "INITIAL_TOKEN_TIMEOUT"),
        (Attempt([b": ping\n\n", 0.01] * 20, then="hang"), SOON, _wait, "INITIAL_TOKEN_TIMEOUT"),
        (Attempt(HALF, then="hang"), SOON_AFTER_THE_FIRST, _wait, "INTER_TOKEN_TIMEOUT"),
        (Attempt(HALF, then="hang"), ONLY_BETWEEN, _wait, "INTER_TOKEN_TIMEOUT"),
        (Attempt([*HALF, 0.01] * 2_000), {"total_ms": 300}, _wait, "DEADLINE_EXCEEDED"),
        (Attempt(open_wait_s=60), {"total_ms": 300}, _wait, "DEADLINE_EXCEEDED"),
    ],
)
async def test_the_connection_is_closed_as_soon_as_the_run_ends(
    service: Service, attempt: Attempt, timeout: Any, ending: Ending, code: str
) -> None:
    async with ModelServer() as server:
        model = await served(service, server, [attempt])
        branch = await service.branch(chat_model=model)
        run = await service.started(branch, lifecycle={**ONCE, "timeout": timeout})
        await until(lambda: server.requests)
        await ending(service, run["id"])
        got = await heard(service, await service.get(f"/v1/runs/{run['id']}"))
        assert got.code == code
        # The answer would go on for far longer than this.
        await until(lambda: server.left_early, within_s=5.0)
        assert server.answered == 0
        assert len(server.requests) == 1
    assert got.messages == []
    assert (got.run["partial_text"] or "").startswith(got.text)
    again = await service.operate(
        branch, chat_model=await service.scripted("ok", [{"text": "ok"}, {"end": "stop"}])
    )
    assert again["result"] == "ok"


async def test_a_cancelled_pause_between_attempts_asks_no_more(
    service: Service, model_server: ModelServer
) -> None:
    model = await served(service, model_server, [status(503)])
    branch = await service.branch(chat_model=model)
    run = await service.started(
        branch, lifecycle={"retry": {"base_delay_ms": 60_000, "max_delay_ms": 60_000}}
    )
    async for frame in service.stream("GET", f"/v1/runs/{run['id']}/events"):
        if frame.event == "RETRY_ATTEMPT":
            await _cancel(service, run["id"])
    ended = await service.get(f"/v1/runs/{run['id']}")
    assert (ended["status"], ended["error"]["code"]) == ("cancelled", "STREAM_ABORTED")
    assert sum(request.model == model for request in model_server.requests) == 1


async def test_a_client_that_leaves_does_not_end_the_run(service: Service, model_server: ModelServer) -> None:
    slow = Attempt([*HALF, 0.3, *chat_wire.text("whole")])
    model = await served(service, model_server, [slow])
    branch = await service.branch(chat_model=model)
    frames = service.stream("POST", f"/v1/branches/{branch}/operate", json={"instruction": "go"})
    first = await anext(frames)
    await frames.aclose()
    run = await service.ended(first.data["run_id"])
    assert (run["status"], run["result"]) == ("completed", "half whole")
