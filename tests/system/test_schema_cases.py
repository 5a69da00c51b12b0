"""Schemas from the field that broke other services: as a response format, and as a tool's parameters."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from app.core.json_schema import compile_schema
from tests.support import cases, chat_wire
from tests.support.heard import served
from tests.support.model_server import Attempt, ModelServer
from tests.support.service import Service

pytestmark = pytest.mark.anyio

HERE = "<schema>"
JSON = {"Content-Type": "application/json"}
CASES = cases.load("4-json-schema")


def schema_of(id: str) -> Any:
    return CASES[id]["input"]["schema"]


async def offered(service: Service, schema: Any) -> tuple[httpx.Response, httpx.Response]:
    """What the service says to a schema: for an answer, and for a tool's arguments.

    One that is a `Written` is JSON already.
    """
    branch = await service.branch(chat_model=await service.scripted("any", [{"text": "{}"}, {"end": "stop"}]))
    body = filled({"instruction": "go", "response_format": HERE}, schema)
    operated = await service.http.post(f"/v1/branches/{branch}/operate", content=body, headers=JSON)
    runs = (await service.get(f"/v1/branches/{branch}/runs"))["data"]
    assert bool(runs) == (operated.status_code == 200)
    return operated, await registered(service, schema)


async def registered(service: Service, schema: Any) -> httpx.Response:
    tool = {"kind": "http", "parameters": HERE, "http": {"url": "https://tools.example/x"}}
    return await service.http.put("/v1/tools/shaped", content=filled(tool, schema), headers=JSON)


class Written(str):
    """JSON text that is too deep to be written by the usual means."""


def filled(body: dict[str, Any], schema: Any) -> str:
    text = schema if isinstance(schema, Written) else json.dumps(schema)
    return json.dumps(body).replace(json.dumps(HERE), text)


async def answered(service: Service, server: ModelServer, schema: Any, value: Any) -> dict[str, Any]:
    """A run whose model answers with the value."""
    model = await served(service, server, [Attempt(chat_wire.text(json.dumps(value)))])
    return await service.operate(await service.branch(chat_model=model), response_format=schema)


async def faults_in_both(service: Service, server: ModelServer, schema: Any, value: Any) -> list[str]:
    """The pointers of the faults that an answer has; arguments of a tool have the same."""
    run = await answered(service, server, schema, value)
    pointers = [error.partition(": ")[0] for error in run["validation"]["errors"]]
    assert (await registered(service, schema)).status_code < 300
    branch = await service.branch()
    acted = await service.act(branch, {"function": "shaped", "arguments": value})
    (outcome,) = acted["result"]["outcomes"] if isinstance(acted["result"], dict) else acted["result"]
    refused = "INVALID_ARGUMENTS" in str(outcome["error"])
    assert refused == bool(pointers)
    assert all(pointer in str(outcome["error"]) for pointer in pointers if pointer.startswith("/"))
    return pointers


FITS: dict[str, list[tuple[Any, list[str]]]] = {
    "S01": [
        ({"root": {"v": 1, "kids": [{"v": 2}]}}, []),
        ({"root": {"v": 1, "kids": [{"v": "x"}]}}, ["/root/kids/0/v"]),
    ],
    "S03": [({"a": "x", "b": 1, "c": True}, []), ({"a": "x", "c": None}, ["/c"])],
    "S06": [({"code": "a" * 32 + "!"}, ["/code"])],
    "S08": [({"a": None, "b": "x"}, []), ({"a": "q", "b": 3}, []), ({"a": 1, "b": 2}, ["/a", "/b"])],
    "S09": [({"any": [1]}, []), ({"never": 1}, ["/never"]), ({"z": "s"}, ["/z"])],
    "S13": [
        ({"größe": 1.5, "$ref": "#", "e\u0301": 2, "\u00e9": 1, "": 3, "🦦": True}, []),
        ({"größe": "x", "$ref": 1, "a b": "", "": ""}, ["/größe", "/$ref", "/a b", "/"]),
        ({"größe": 1, "$ref": "x", "e\u0301": "", "\u00e9": 1}, ["/e\u0301"]),
    ],
    "S16": [({"mail": "." * 100_000, "when": "never", "z": "x"}, [])],
    "S19": [
        ({"price": 0.07}, []),
        ({"price": 19.99}, []),
        ({"price": 0.075}, ["/price"]),
        ({"price": 1e308}, []),
    ],
}
"""Values, and where they do not fit."""


@pytest.mark.parametrize("id", FITS)
async def test_what_fits_and_what_does_not(service: Service, model_server: ModelServer, id: str) -> None:
    for value, pointers in FITS[id]:
        assert sorted(await faults_in_both(service, model_server, schema_of(id), value)) == sorted(pointers)


@pytest.mark.parametrize("pattern", ["(a|a)*b", "(a|aa)+$", "(.*a){20}"])
async def test_s06_patterns_hold_nobody_up(service: Service, model_server: ModelServer, pattern: str) -> None:
    word = "a" * 50_000 + "!"
    as_value = {"type": "object", "properties": {"code": {"pattern": pattern}}}
    as_name = {
        "type": "object",
        "patternProperties": {pattern: {"type": "null"}},
        "additionalProperties": False,
    }
    one, other, health = await asyncio.gather(
        answered(service, model_server, as_value, {"code": word}),
        answered(service, model_server, as_name, {word: 1}),
        service.get("/healthz"),
    )
    matches = pattern == "(.*a){20}"
    assert (one["validation"]["ok"], other["validation"]["ok"]) == (matches, False)
    assert health["status"] == "ok"


async def test_s03_an_unescaped_name_leads_nowhere(service: Service) -> None:
    schema = {**schema_of("S03"), "properties": {"a": {"$ref": "#/$defs/geo/city~v2"}}}
    for answer in await offered(service, schema):
        assert answer.status_code == 422
        assert answer.json()["code"] == "invalid_schema"
        assert answer.json()["errors"][0]["pointer"].endswith("/properties/a/$ref")


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"x": {"$ref": "URL"}}},
        {"properties": {"x": {"$dynamicRef": "URL"}}},
        {"$schema": "URL"},
        {"$id": "URL", "properties": {"x": {"$ref": "other.json"}}},
        {"properties": {"x": {"$id": "URL", "$ref": "other.json"}}},
        {"$defs": {"x": {"$ref": "URL"}}},
        {"properties": {"x": {"$ref": "file:///etc/passwd"}}},
        {"properties": {"x": {"$ref": "http://169.254.169.254/latest/meta-data/"}}},
    ],
)
async def test_s04_nothing_is_fetched(service: Service, schema: Any) -> None:
    connections = 0

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.close()

    listener = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        text = json.dumps({"type": "object", **schema}).replace("URL", f"http://127.0.0.1:{port}/leak.json")
        for answer in await offered(service, json.loads(text)):
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_schema")
            assert answer.json()["errors"][0]["pointer"]
    assert connections == 0


async def test_s11_draft_04_means_what_it_meant(service: Service, model_server: ModelServer) -> None:
    for answer in await offered(service, schema_of("S11")):
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"].endswith("/properties/ttl/exclusiveMinimum")
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", **schema_of("S11")}
    assert await faults_in_both(service, model_server, schema, {"ttl": 0}) == ["/ttl"]
    assert await faults_in_both(service, model_server, schema, {"ttl": 1}) == []
    sent = [request.body for request in model_server.requests][-1]
    said = sent["response_format"]["json_schema"]["schema"]
    assert said["properties"]["ttl"] == {"type": "integer", "exclusiveMinimum": 0}
    tool = await service.get("/v1/tools/shaped")
    assert tool["parameters"]["properties"]["ttl"] == {"type": "integer", "exclusiveMinimum": 0}


async def test_s13_pointers_are_escaped(service: Service, model_server: ModelServer) -> None:
    schema = {"type": "object", "properties": {"a/b": {"type": "integer"}, "c~d": {"type": "integer"}}}
    faults = await faults_in_both(service, model_server, schema, {"a/b": "", "c~d": ""})
    assert sorted(faults) == ["/a~1b", "/c~0d"]


async def test_s14_what_is_too_large_is_refused_before_it_is_built(service: Service) -> None:
    given = schema_of("S14")
    wide = [
        eval(text, {"__builtins__": {"range": range}}) for text in (given["gen_py"], given["variants_py"][0])
    ]
    assert "range(2000)" in given["variants_py"][1]
    deep = Written('{"type":"object","properties":{"n":' * 2000 + "{}" + "}}" * 2000)
    for schema in (*wide, deep):
        answers, health = await asyncio.gather(offered(service, schema), service.get("/healthz"))
        assert health["status"] == "ok"
        for answer in answers:
            assert answer.status_code == 422, answer.text
            # What is too deep for any body is told before anybody asks whether it is a schema.
            told = ("invalid_request", "too_deep") if schema is deep else ("invalid_schema", "invalid_schema")
            assert (answer.json()["code"], answer.json()["errors"][0]["code"]) == told


async def test_s18_what_is_no_schema_starts_no_run(service: Service) -> None:
    keywords = ["/type", "/required", "/items", "", "", None, "/properties"]
    for variant, keyword in zip(schema_of("S18")["variants"], keywords, strict=True):
        operated, tool = await offered(service, variant)
        for answer, at in ((operated, "/response_format"), (tool, "/parameters")):
            if variant is None and at == "/response_format":
                assert answer.status_code == 200, "null is no format at all"
                continue
            assert answer.status_code == 422, (variant, answer.text)
            (error, *_) = answer.json()["errors"]
            assert error["pointer"] == at + (keyword or "")
            assert (answer.json()["code"], error["code"]) == ("invalid_schema", "invalid_schema")


async def test_s18_what_is_no_object_is_no_schema_wherever_one_stands(service: Service) -> None:
    branch = await service.branch(chat_model=await service.scripted("any", [{"text": "{}"}, {"end": "stop"}]))
    fields = {"instruction": "go", "field_models": [{"name": "f", "schema": "text"}]}
    voted = {"instruction": "go", "voters": ["any", "any"], "response_format": 42}
    for path, body, at in (
        (f"/v1/branches/{branch}/operate", fields, "/field_models/0/schema"),
        ("/v1/consensus", voted, "/response_format"),
    ):
        answer = await service.http.post(path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_schema"), answer.text
        (error,) = answer.json()["errors"]
        assert (error["pointer"], error["code"]) == (at, "invalid_schema")
    both = {"instruction": "go", "response_format": 42, "chat_model": 42}
    answer = await service.http.post(f"/v1/branches/{branch}/operate", json=both)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


@pytest.mark.parametrize("schema", [True, False])
async def test_s09_a_whole_schema_of_one_word(service: Service, schema: bool) -> None:
    for answer in await offered(service, schema):
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_schema")
        assert "write an object" in answer.json()["errors"][0]["message"]


def test_every_case_is_played() -> None:
    here = {*FITS, "S04", "S11", "S14", "S18"}
    assert CASES.keys() == here
    for id in FITS:
        compile_schema(schema_of(id))
