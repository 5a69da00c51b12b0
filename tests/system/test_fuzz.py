"""Schemathesis over the OpenAPI document: whatever is sent, what comes back was documented."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import schemathesis
from schemathesis import Case, GenerationMode
from schemathesis.checks import ignored_auth, positive_data_acceptance, unsupported_method

from tests.support.api import openapi_document
from tests.support.database import migrated
from tests.support.fuzzing import bounded, marks
from tests.support.postgres import PostgresServer
from tests.support.service import Service, running

pytestmark = [*marks]

KEY = "the operator's key of the tests"

DOCUMENT = openapi_document()
for methods in DOCUMENT["paths"].values():
    for operation in methods.values():
        # The key is ours to send: else half of the requests would be about having none.
        operation.pop("security", None)
schema = schemathesis.openapi.from_dict(DOCUMENT)

UNTOLD = [
    positive_data_acceptance,  # Names of models, cursors and addresses are checked beyond their form.
    ignored_auth,  # tests/api/test_access.py
    unsupported_method,  # tests/api/test_edge.py
]


@schemathesis.serializer("application/x-ndjson")
def _one_line(context: Any, value: Any) -> bytes:
    """What is made up for a line, as the only one of a file."""
    return json.dumps(value, default=str).encode() + b"\n"


@dataclass
class Target:
    """The service in a thread of its own, since schemathesis waits for its answers."""

    url: str = ""
    known: dict[str, str] = field(default_factory=dict)
    """Ids of things that exist."""


@pytest.fixture(scope="module")
def target(postgres: PostgresServer) -> Iterator[Target]:
    made, up, over = Target(), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with migrated(postgres) as url, running(url, bootstrap_key=KEY) as service:
            service.http.headers["Authorization"] = f"Bearer {KEY}"
            made.url, made.known = service.url, await _things(service)
            up.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert up.wait(30)
    yield made
    loop.call_soon_threadsafe(over.set)
    thread.join()
    loop.close()


async def _things(service: Service) -> dict[str, str]:
    script = [{"text": "hello"}, {"end": "stop"}]
    branch = await service.branch(chat_model=await service.scripted("m", script))
    run = await service.operate(branch)
    await service.act(branch, {"function": "add", "arguments": {"a": 1, "b": 2}})
    call = (await service.get("/v1/function-calls"))["data"][0]["id"]
    project = (await service.get("/v1/projects"))["data"][0]["id"]
    other = (await service.http.post("/v1/projects", json={"name": "to be limited"})).json()["id"]
    found = {"branch_id": branch, "run_id": run["id"], "call_id": call, "project_id": project, "name": "m"}
    return found | {"limited_project_id": other}


@schema.parametrize()
@bounded
def test_every_answer_is_one_that_was_documented(case: Case[Any], target: Target) -> None:
    # A made-up id is a 404 and no more, so most requests are about things that exist.
    assert case.meta is not None
    if case.meta.generation.mode is GenerationMode.POSITIVE and case.method != "DELETE":
        known = {name: target.known[name] for name in case.path_parameters if name in target.known}
        case.path_parameters.update(known)
        if case.path.endswith("/limits") and "project_id" in known:
            # Limits of any kind, but not those of the project in which everything else is tried.
            case.path_parameters["project_id"] = target.known["limited_project_id"]
    headers = {"Authorization": f"Bearer {KEY}", "Prefer": "wait=5"}
    case.call_and_validate(base_url=target.url, headers=headers, excluded_checks=UNTOLD, timeout=30)
