"""Posts to tools, gates and hooks are signed where those say so, and not sent where they cannot be."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.core.webhooks import secret_of
from tests.support.acting import call, rows_of
from tests.support.database import migrated
from tests.support.postgres import PostgresServer
from tests.support.receiver import Receiver, Reply
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

SECRET = secret_of(b"s" * 32)
SIGNED: dict[str, Any] = {"signing": {"env": "POST_SIGNING"}}
POINTS = ("TOOL_PRE", "TOOL_POST", "TOOL_ERROR")
UNSIGNABLE: dict[str, dict[str, Any]] = {
    "unset": {"signing": {"env": "POST_UNSET"}},
    "no secret": {"signing": {"env": "POST_PLAIN"}},
    "no secret stored": {"signing": {"credential": "plain"}},
}


@pytest.fixture(scope="module")
async def service(postgres: PostgresServer) -> AsyncIterator[Service]:
    names = ("POST_SIGNING", "POST_UNSET", "POST_PLAIN")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("POST_SIGNING", SECRET)
        environment.setenv("POST_PLAIN", "a password of somebody's")
        async with migrated(postgres) as url, running(url, exposed_env=names) as made:
            for name, secret in (("shop", SECRET), ("plain", "a password of somebody's")):
                body = {"kind": "token", "secret": secret}
                assert (await made.http.put(f"/v1/credentials/{name}", json=body)).status_code == 201
            yield made


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as made:
        yield made


async def tool(service: Service, url: str, *, idempotent: bool = False, **http: Any) -> str:
    body = {
        "kind": "http",
        "parameters": {"type": "object"},
        "idempotent": idempotent,
        "http": {"url": url, **http},
    }
    answer = await service.http.put("/v1/tools/signed", json=body)
    assert answer.status_code < 300, answer.text
    return "signed"


@pytest.mark.parametrize("signing", [{"env": "POST_SIGNING"}, {"credential": "shop"}], ids=str)
async def test_every_try_of_a_call_is_signed_under_the_calls_id(
    service: Service, receiver: Receiver, signing: dict[str, str]
) -> None:
    receiver.replies["/tool"] = [Reply(503), Reply(200, body=b"1")]
    name = await tool(service, receiver.url("/tool"), idempotent=True, signing=signing)
    run = await service.act(await service.branch(), call(name, a=1))
    (result,) = run["result"]
    assert result["output"] == 1
    first, second = receiver.received
    for post in (first, second):
        post.verify(SECRET)
        assert post.id == post.headers["idempotency-key"] == result["call_id"]
    assert first.body == second.body


async def test_gates_and_hooks_are_asked_with_a_signature(service: Service, receiver: Receiver) -> None:
    receiver.replies["/gate"] = [Reply(200, body=b'{"effect": "allow"}')]
    posts = [{"point": point, "http": {"url": receiver.url("/hook"), **SIGNED}} for point in POINTS]
    branch = await service.branch(gate={"http": {"url": receiver.url("/gate"), **SIGNED}}, hooks=posts)
    run = await service.act(branch, call("add", a=1, b=2))
    assert run["result"][0]["output"] == 3
    for post in receiver.received:
        post.verify(SECRET)
    told = [json.loads(post.body).get("point") for post in receiver.received]
    assert told == [None, "TOOL_PRE", "TOOL_POST"]
    assert len({post.id for post in receiver.received}) == 3


@pytest.mark.parametrize("signing", UNSIGNABLE.values(), ids=UNSIGNABLE)
async def test_what_cannot_be_signed_is_not_sent_and_allows_nothing(
    service: Service, receiver: Receiver, signing: dict[str, Any]
) -> None:
    name = await tool(service, receiver.url("/tool"), **signing)
    run = await service.act(await service.branch(), call(name))
    (result,) = run["result"]
    assert result["error"].startswith("NOT_CONFIGURED: ")
    assert result["error"].endswith("nothing was sent")
    remote = {"http": {"url": receiver.url("/gate"), **signing}}
    run = await service.act(await service.branch(gate=remote), call("add", a=1, b=2))
    (row,) = await rows_of(service, run["id"])
    assert (row["status"], row["gate"]["effect"]) == ("skipped", "deny")
    hooked = await service.branch(hooks=[{"point": "TOOL_PRE", **remote}])
    run = await service.act(hooked, call("add", a=1, b=2))
    (result,) = run["result"]
    assert result["error"].startswith("HOOK_BLOCKED: ")
    assert receiver.received == []
    assert "a password" not in json.dumps([run, row])


async def test_a_variable_has_to_be_listed_by_the_operator(service: Service, receiver: Receiver) -> None:
    http = {"url": receiver.url("/"), "signing": {"env": "PATH"}}
    spec = {"kind": "http", "parameters": {"type": "object"}, "http": http}
    answers = {
        "/http/signing/env": await service.http.put("/v1/tools/listed", json=spec),
        "/gate/http/signing": await service.http.post("/v1/branches", json={"gate": {"http": http}}),
        "/hooks/0/http/signing": await service.http.post(
            "/v1/branches", json={"hooks": [{"point": "TOOL_PRE", "http": http}]}
        ),
    }
    for pointer, answer in answers.items():
        (error,) = answer.json()["errors"]
        assert (answer.status_code, error["pointer"]) == (422, pointer)
        assert "BRANCHLINE_EXPOSED_ENV" in error["message"]


async def test_a_credential_has_to_be_there_and_stays_while_it_is_named(
    service: Service, receiver: Receiver
) -> None:
    http = {"url": receiver.url("/tool"), "signing": {"credential": "nobody"}}
    answer = await service.http.put(
        "/v1/tools/x", json={"kind": "http", "parameters": {"type": "object"}, "http": http}
    )
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/http/signing/credential")
    await tool(service, receiver.url("/tool"), signing={"credential": "shop"})
    answer = await service.http.delete("/v1/credentials/shop")
    assert (answer.status_code, answer.json()["used_by"]) == (409, ["tool signed"])


async def test_the_name_of_a_secret_is_shown_and_the_secret_is_not(
    service: Service, receiver: Receiver
) -> None:
    name = await tool(service, receiver.url("/tool"), **SIGNED)
    shown = await service.get(f"/v1/tools/{name}")
    assert shown["http"]["signing"] == {"env": "POST_SIGNING"}
    branch = await service.branch(gate={"http": {"url": receiver.url("/gate"), **SIGNED}})
    gate = (await service.get(f"/v1/branches/{branch}"))["gate"]
    assert gate["http"]["signing"] == {"env": "POST_SIGNING"}
    assert SECRET not in json.dumps([shown, gate])
