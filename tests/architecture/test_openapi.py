"""The OpenAPI document is good enough to make a client from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from tests.support.api import openapi_document

DOCUMENT = openapi_document()
SCHEMAS = DOCUMENT["components"]["schemas"]
OPERATIONS = [
    pytest.param(path, method, operation, id=f"{method.upper()} {path}")
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]


def pointing_at(root: str) -> dict[str, Any]:
    """A schema of the document, with all others at hand."""
    return {"$ref": f"#/components/schemas/{root}", "components": {"schemas": SCHEMAS}}


def references(node: Any) -> Iterator[str]:
    match node:
        case {"$ref": str(target)}:
            yield target
        case dict():
            for child in node.values():
                yield from references(child)
        case list():
            for child in node:
                yield from references(child)


def test_it_is_openapi_3_1() -> None:
    assert DOCUMENT["openapi"].startswith("3.1")
    assert DOCUMENT["info"]["title"] == "Branchline"


def test_what_is_referred_to_exists() -> None:
    missing = {
        target
        for target in references(DOCUMENT)
        if target.removeprefix("#/components/schemas/") not in SCHEMAS
    }
    assert missing == set()


def test_what_exists_is_referred_to() -> None:
    mapped = set(SCHEMAS["Event"]["discriminator"]["mapping"].values())
    unused = {f"#/components/schemas/{name}" for name in SCHEMAS} - set(references(DOCUMENT)) - mapped
    assert unused == set()


@pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS)
def test_every_json_that_is_answered_has_a_schema(path: str, method: str, operation: dict[str, Any]) -> None:
    for answer in operation["responses"].values():
        for media_type, content in answer.get("content", {}).items():
            assert content.get("schema") or "json" not in media_type, media_type


def test_operation_ids_are_readable_and_unique() -> None:
    ids = [parameter.values[2]["operationId"] for parameter in OPERATIONS]  # type: ignore[index]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", id_) for id_ in ids)


@pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS)
def test_an_operation_says_what_it_is(path: str, method: str, operation: dict[str, Any]) -> None:
    known = {tag["name"] for tag in DOCUMENT["tags"]}
    assert len(operation["tags"]) == 1
    assert set(operation["tags"]) <= known
    assert 8 <= len(operation["summary"]) <= 120
    assert not operation["summary"].endswith(".")
    assert "[" not in operation["summary"]


def codes_of(operation: dict[str, Any]) -> set[str]:
    """The problems that an operation documents."""
    responses = operation["responses"].values()
    documented = (response.get("content", {}).get("application/problem+json", {}) for response in responses)
    return {code for problem in documented for code in problem.get("examples", ())}


@pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS)
def test_an_operation_documents_its_problems(path: str, method: str, operation: dict[str, Any]) -> None:
    expected = {"500"}
    if path.startswith("/v1/"):
        expected |= {"401", "403", "503"}
        assert operation["security"] == [{"key": []}]
        assert "x-scope" in operation
    if "{" in path:
        expected |= {"404"}
    if "requestBody" in operation:
        expected |= {"413", "415", "422"} | (set() if path.endswith("/import") else {"400"})
    bodiless = path.endswith(("/cancel", "/redrive", "/rotate-secret", "/purge"))
    if method in ("post", "put", "patch") and not bodiless:
        kind = "application/x-ndjson" if path.endswith("/import") else "application/json"
        assert operation["requestBody"]["content"].keys() == {kind}
    assert operation["responses"].keys() >= expected
    if "Idempotency-Key" in {parameter["name"] for parameter in operation.get("parameters", ())}:
        assert {"malformed_request", "conflict", "idempotency_key_reused"} <= codes_of(operation)
    for status, response in operation["responses"].items():
        assert response["description"], status
        if int(status) >= 400:
            content = response["content"]["application/problem+json"]
            assert content["schema"] == {"$ref": "#/components/schemas/Problem"}
            assert response["content"].keys() == {"application/problem+json"}
            for code, example in content["examples"].items():
                assert example["value"]["code"] == code
                assert str(example["value"]["status"]) == status


@pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS)
def test_an_operation_names_the_schema_of_its_answer(
    path: str, method: str, operation: dict[str, Any]
) -> None:
    good = {status: r for status, r in operation["responses"].items() if int(status) < 400}
    assert good
    for status, response in good.items():
        if status == "204":
            assert "content" not in response
        elif path != "/metrics":
            kind = "application/x-ndjson" if path.endswith("/export") else "application/json"
            assert "$ref" in response["content"][kind]["schema"], status


def test_bodies_and_answers_have_examples() -> None:
    parts = {
        *("EventFieldView", "ExecutionView", "NewKeyView", "NewEndpointView", "DecisionView"),
        *("DecidedThenView", "SimulatedCallView", "EffectCountsView", "TotalsView"),
        *("StreamThenView", "CallThenView"),
    }
    bodies = {
        operation.values[2]["requestBody"]["content"]["application/json"]["schema"]["$ref"].rsplit("/")[-1]  # type: ignore[index]
        for operation in OPERATIONS
        if "application/json" in operation.values[2].get("requestBody", {}).get("content", ())  # type: ignore[union-attr]
    }
    views = {name for name in SCHEMAS if name.endswith(("View", "Event"))} - {"Event"} - parts
    without = {
        name for name in bodies | views | {"Problem", "ExportLine"} if not SCHEMAS[name].get("examples")
    }
    assert without <= {"ReplaceModel", "NewKeyView"}


@pytest.mark.parametrize("name", sorted(name for name in SCHEMAS if SCHEMAS[name].get("examples")))
def test_an_example_fits_its_schema(name: str) -> None:
    validator = jsonschema_rs.Draft202012Validator(pointing_at(name))
    for example in SCHEMAS[name]["examples"]:
        faults = [f"{error.instance_path}: {error.message}" for error in validator.iter_errors(example)]
        assert faults == []


def test_an_event_is_told_from_others_by_its_type() -> None:
    validator = jsonschema_rs.Draft202012Validator(pointing_at("Event"))
    for kind, target in SCHEMAS["Event"]["discriminator"]["mapping"].items():
        (example,) = SCHEMAS[target.rsplit("/")[-1]]["examples"]
        assert validator.is_valid(example), kind
        assert not validator.is_valid({**example, "type": "NO_SUCH_TYPE"})
