"""Whatever a client gives as a schema is taken or refused with its place; what is taken can be asked for."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import event, given, note
from hypothesis import strategies as st

from tests.support.fuzzed_runs import ends_well, nothing_breaks
from tests.support.fuzzed_schemas import schemas, values
from tests.support.fuzzed_streams import WIRES
from tests.support.fuzzing import bounded, marks, written
from tests.support.heard import served
from tests.support.model_server import ModelServer
from tests.support.service import Service

pytestmark = [pytest.mark.anyio, *marks]

HERE = "<schema>"
JSON = {"Content-Type": "application/json"}
LIFECYCLE: dict[str, Any] = {"retry": None, "timeout": {"initial_token_ms": 30_000, "inter_token_ms": 30_000}}
ASKED: list[dict[str, Any]] = [
    {"response_format": HERE},
    {"response_format": HERE, "reason": True, "actions": True, "tools": ["add"]},
    {"field_models": [{"name": "f", "schema": HERE, "nullable": True, "listable": True}]},
    {"tool_schemas": [HERE]},
    {"tool_schemas": [{"name": "f", "parameters": HERE}]},
    {"response_fields": HERE},
]
"""Where an operation takes a schema."""
PLACES = ("/response_format", "/field_models", "/tool_schemas", "/response_fields", "/parameters", "")


def filled(body: dict[str, Any], value: Any) -> bytes:
    """The body with the value in its place."""
    return json.dumps(body).replace(json.dumps(HERE), written(value)).encode("utf-8", "surrogatepass")


def taken(answer: httpx.Response, *places: str) -> bool:
    """Whether it was; a refusal says where and why."""
    event(f"a schema: {answer.status_code}")
    if answer.status_code < 300:
        return True
    problem = answer.json()
    if answer.status_code == 400:
        assert problem["code"] == "invalid_json"
        return False
    assert answer.status_code == 422, answer.text
    assert problem["errors"], answer.text
    for error in problem["errors"]:
        assert error["pointer"].startswith(places), answer.text
        assert error["message"], answer.text
    return False


@bounded
@given(schema=schemas, value=values, wire=st.sampled_from(sorted(WIRES)), asked=st.sampled_from(ASKED))
async def test_of_an_answer(
    service: Service, model_server: ModelServer, schema: Any, value: Any, wire: str, asked: dict[str, Any]
) -> None:
    note(f"{wire} {asked} {schema!r}")
    model = await served(service, model_server, [WIRES[wire].good], provider=wire)
    said = written(value)
    answering = await service.scripted("answering", [{"text": said}, {"end": "stop"}])
    for name in (model, answering):
        branch = await service.branch(chat_model=name)
        body = {"instruction": "go", "lifecycle": LIFECYCLE, **asked}
        with nothing_breaks():
            answer = await service.http.post(
                f"/v1/branches/{branch}/operate",
                content=filled(body, schema),
                headers={**JSON, "Prefer": "wait=50"},
            )
            if not taken(answer, *PLACES):
                return
            await ends_well(service, answer.json())


@bounded
@given(schema=schemas, arguments=values, wire=st.sampled_from(sorted(WIRES)), strict=st.booleans())
async def test_of_a_tools_arguments(
    service: Service, model_server: ModelServer, schema: Any, arguments: Any, wire: str, strict: bool
) -> None:
    note(f"{wire} {schema!r} {arguments!r}")
    tool = {
        "kind": "http",
        "parameters": HERE,
        "strict": strict,
        "http": {"url": "http://127.0.0.1:9/", "tries": 1},
    }
    with nothing_breaks():
        answer = await service.http.put("/v1/tools/shaped", content=filled(tool, schema), headers=JSON)
        if not taken(answer, "/parameters", ""):
            return
        model = await served(service, model_server, [WIRES[wire].good], provider=wire)
        branch = await service.branch(chat_model=model)
        run = await service.operate(branch, actions=True, tools=["shaped"], lifecycle=LIFECYCLE)
        assert (run["status"], run["error"]) == ("completed", None)
        await ends_well(service, run)
        requests = filled({"requests": [{"function": "shaped", "arguments": HERE}]}, arguments)
        acted = await service.http.post(f"/v1/branches/{branch}/act", content=requests, headers=JSON)
        if taken(acted, "/requests"):
            await ends_well(service, acted.json())
