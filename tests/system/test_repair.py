"""Mending an answer: each try is told what is wrong, no try is like another, and nobody mends in vain."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import chat_wire
from tests.support.heard import served
from tests.support.model_server import Attempt, ModelServer
from tests.support.polling import until
from tests.support.service import Service

pytestmark = pytest.mark.anyio

FORMAT: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}},
    "required": ["a"],
}
WRONG = '{"a": {"b": "x"}}'
RIGHT = {"a": {"b": 1}}


def saying(text: str) -> Attempt:
    return Attempt(chat_wire.text(text))


async def operated(
    service: Service, server: ModelServer, answer: str, mends: list[Attempt], **body: Any
) -> tuple[dict[str, Any], list[str]]:
    """The run, and what the parse model was asked, try by try."""
    model = await served(service, server, [saying(answer)])
    parser = await served(service, server, mends)
    branch = await service.branch(chat_model=model, parse_model=parser)
    run = await service.operate(branch, **{"response_format": FORMAT, "lifecycle": {"retry": None}, **body})
    asked = [r.body["messages"][0]["content"] for r in server.requests if r.model == parser]
    return run, asked


async def test_what_fits_is_not_mended(service: Service, model_server: ModelServer) -> None:
    run, asked = await operated(service, model_server, json.dumps(RIGHT), [saying("x")])
    assert (run["result"], asked, run["attempts"]) == (RIGHT, [], 1)
    assert run["validation"] == {"ok": True, "kind": None, "errors": [], "corrections": []}


@pytest.mark.parametrize(("policy", "result"), [("return_value", {"a": {"b": "x"}}), ("return_none", None)])
async def test_three_tries_each_told_where_it_is_wrong(
    service: Service, model_server: ModelServer, policy: str, result: Any
) -> None:
    run, asked = await operated(service, model_server, WRONG, [saying(WRONG)], handle_validation=policy)
    assert len(asked) == 3
    assert len(set(asked)) == 3, "a model that is asked the same answers the same"
    assert all("/a/b: " in text for text in asked)
    assert (run["result"], run["validation"]["kind"]) == (result, "schema")
    assert run["validation"]["errors"][0].startswith("/a/b: ")


async def test_each_try_mends_what_the_last_one_wrote(service: Service, model_server: ModelServer) -> None:
    mends = [saying('{"a": 1}'), saying(json.dumps(RIGHT))]
    run, asked = await operated(service, model_server, "b is x", mends, handle_validation="raise")
    assert run["result"] == RIGHT
    assert run["validation"]["corrections"] == ["repaired"]
    assert "no JSON value" in asked[0]
    assert "b is x" in asked[0]
    assert "/a: " in asked[1]
    assert '{"a": 1}' in asked[1]
    kinds = [message["kind"] for message in await service.messages(run["branch_id"])]
    assert kinds == ["instruction", "assistant_response"], "mending is no part of the conversation"


async def test_a_run_that_is_cancelled_is_not_mended_on(service: Service, model_server: ModelServer) -> None:
    model = await served(service, model_server, [saying(WRONG)])
    parser = await served(service, model_server, [Attempt([0.01], then="hang")])
    branch = await service.branch(chat_model=model, parse_model=parser)
    run = await service.started(branch, response_format=FORMAT, lifecycle={"timeout": None})
    await until(lambda: any(request.model == parser for request in model_server.requests))
    await service.http.post(f"/v1/runs/{run['id']}/cancel")
    ended = await service.ended(run["id"])
    assert (ended["status"], ended["result"]) == ("cancelled", None)
    assert sum(request.model == parser for request in model_server.requests) == 1
