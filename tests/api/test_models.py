"""Models over HTTP, and what a model's name resolves to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.core.addresses import AddressRule
from app.core.errors import Unavailable, UnknownModel
from app.ports.catalog import ModelSpec
from app.ports.provider import ModelEndpoint
from app.services.models import REMEMBERED_MS, OperatorModels
from tests.support.api import Api, serving

pytestmark = pytest.mark.anyio

BODY: dict[str, Any] = {
    "provider": "openai",
    "model": "wire-name",
    "base_url": "https://models.example/v1",
    "api_key_env": "MODEL_KEY",
    "options": {"seed": 12345678901234567890123, "temperature": 0.5},
    "lifecycle": {"timeout": None},
}


async def test_a_model_is_registered_read_replaced_and_removed(api: Api) -> None:
    answer = await api.client.post("/v1/models", json={"name": "m", **BODY})
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert {name: made[name] for name in BODY} == BODY
    assert (made["name"], made["object"], made["source"], made["limits"]) == ("m", "model", "project", None)
    assert answer.headers["location"] == "/v1/models/m"
    assert (await api.client.get("/v1/models/m")).json() == made
    answer = await api.client.put("/v1/models/m", json={"name": "m", "provider": "scripted", "model": "x"})
    assert answer.status_code == 200
    replaced = answer.json()
    assert (replaced["base_url"], replaced["options"], replaced["lifecycle"]) == (None, {}, None)
    assert (await api.client.put("/v1/models/n", json=BODY)).status_code == 201
    assert (await api.client.delete("/v1/models/m")).status_code == 204
    assert (await api.client.get("/v1/models/m")).status_code == 404
    assert (await api.client.delete("/v1/models/m")).status_code == 404


@pytest.mark.parametrize(
    ("price", "shown"),
    [
        ({"input": 0.15, "output": "0.60"}, {"input": "0.15", "output": "0.6"}),
        ({"input": 0, "output": 1e-9}, {"input": "0", "output": "0.000000001"}),
        (
            {"input": 1, "output": 2, "cached_input": "0.5", "cache_write": "1.25", "reasoning": 3},
            {"input": "1", "output": "2", "cached_input": "0.5", "cache_write": "1.25", "reasoning": "3"},
        ),
    ],
)
async def test_a_price_is_kept_as_the_decimals_that_were_sent(
    api: Api, price: dict[str, Any], shown: dict[str, Any]
) -> None:
    made = await api.client.post("/v1/models", json={"name": "m", **BODY, "price": price})
    assert made.status_code == 201, made.text
    whole = {"cached_input": None, "cache_write": None, "reasoning": None, **shown}
    assert made.json()["price"] == (await api.client.get("/v1/models/m")).json()["price"] == whole
    found = (await api.services.models.resolve(api.home, "m")).endpoint.price
    assert found is not None
    assert found.wire() == whole
    await api.client.put("/v1/models/m", json=BODY)
    assert (await api.client.get("/v1/models/m")).json()["price"] is None
    changes = await api.rows(
        "SELECT digest_before, digest_after FROM audit_log WHERE action = 'model.replace'"
    )
    assert changes[0]["digest_before"] != changes[0]["digest_after"]


@pytest.mark.parametrize(
    ("price", "pointer"),
    [
        ({"input": 1}, "/price/output"),
        ({"input": -1, "output": 1}, "/price/input"),
        ({"input": True, "output": 1}, "/price/input"),
        ({"input": "cheap", "output": 1}, "/price/input"),
        ({"input": 1, "output": "0.0000000001"}, "/price/output"),
        ({"input": 1, "output": 1, "currency": "EUR"}, "/price/currency"),
        (1, "/price"),
    ],
)
async def test_what_is_no_price_is_refused(api: Api, price: Any, pointer: str) -> None:
    answer = await api.client.post("/v1/models", json={"name": "m", **BODY, "price": price})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)


async def test_no_answer_ever_holds_a_key(api: Api) -> None:
    answers = [
        await api.client.post("/v1/models", json={"name": "m", **BODY}),
        await api.client.get("/v1/models"),
        await api.client.get("/v1/models/m"),
    ]
    assert all("the value of the variable" not in answer.text for answer in answers)


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"provider": "nobody"}, "/provider", "unknown_provider"),
        ({"provider": None}, "/provider", "wrong_type"),
        ({"model": ""}, "/model", "invalid"),
        ({"api_key": "sk-secret"}, "/api_key", "unsupported_option"),
        ({"limits": {"requests": 1}}, "/limits/requests", "unknown_field"),
        ({"api_key_env": "PATH"}, "/api_key_env", "not_exposed"),
        ({"options": {"bad": 1}}, "/options/bad", "unknown_field"),
        ({"name": "a/b"}, "/name", "invalid"),
        ({"name": "a b"}, "/name", "invalid"),
        ({"name": ""}, "/name", "invalid"),
        ({"name": "m\n"}, "/name", "invalid"),
        ({"lifecycle": {"nothing": 1}}, "/lifecycle/nothing", "unknown_field"),
        ({"base_url": "ftp://models.example"}, "/base_url", "address_not_allowed"),
        ({"base_url": "file:///etc/passwd"}, "/base_url", "address_not_allowed"),
        ({"base_url": "https://"}, "/base_url", "address_not_allowed"),
        ({"base_url": "https://user:pass@models.example"}, "/base_url", "address_not_allowed"),
        ({"base_url": "https://models.example/?key=1"}, "/base_url", "address_not_allowed"),
        ({"base_url": "https://models.example:port/"}, "/base_url", "address_not_allowed"),
        ({"base_url": "http://localhost:11434"}, "/base_url", "address_not_allowed"),
        ({"base_url": "http://127.0.0.1"}, "/base_url", "address_not_allowed"),
        ({"base_url": "http://2130706433"}, "/base_url", "address_not_allowed"),
        ({"base_url": "http://[::ffff:10.0.0.1]/"}, "/base_url", "address_not_allowed"),
        ({"base_url": "http://169.254.169.254/latest"}, "/base_url", "address_not_allowed"),
        ({"base_url": "http://db.internal/"}, "/base_url", "address_not_allowed"),
        ({"base_url": "http://postgres/"}, "/base_url", "address_not_allowed"),
    ],
)
async def test_bad_models_are_refused(api: Api, change: dict[str, Any], pointer: str, code: str) -> None:
    answer = await api.client.post("/v1/models", json={"name": "m", **BODY, **change})
    problem = answer.json()
    assert answer.status_code == 422, problem
    assert [(e["pointer"], e["code"]) for e in problem["errors"]] == [(pointer, code)]
    assert "sk-secret" not in answer.text
    assert await api.rows("SELECT id FROM models") == []


@pytest.mark.parametrize("name", ["a%20b", "-x", "%C3%BC", "x" * 129])
async def test_bad_names_in_the_address_are_refused(api: Api, name: str) -> None:
    assert (await api.client.put(f"/v1/models/{name}", json=BODY)).status_code == 422
    assert (await api.client.get(f"/v1/models/{name}")).status_code == 404
    answer = await api.client.put("/v1/models/m", json={**BODY, "name": "n"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/name")


async def test_listed_private_hosts_may_be_reached(empty_database_url: str) -> None:
    rule = AddressRule(allowed=("ollama", "10.1.0.0/16"))
    async with serving(empty_database_url, addresses=rule) as api:
        for url, status in [
            ("http://ollama:11434", 200),
            ("http://10.1.2.3/v1", 200),
            ("http://10.2.2.3/v1", 422),
            ("http://localhost/v1", 422),
        ]:
            await api.client.put("/v1/models/m", json=BODY)
            answer = await api.client.put("/v1/models/m", json={**BODY, "base_url": url})
            assert answer.status_code == status, url
    async with serving(empty_database_url, addresses=AddressRule(private=True)) as api:
        answer = await api.client.put("/v1/models/m", json={**BODY, "base_url": "http://localhost:1"})
        assert answer.status_code == 200


async def test_a_name_is_registered_once(api: Api) -> None:
    assert (await api.client.post("/v1/models", json={"name": "m", **BODY})).status_code == 201
    answer = await api.client.post("/v1/models", json={"name": "m", **BODY})
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (409, "name_taken")


async def test_the_operators_models_are_seen_but_not_touched(api: Api) -> None:
    shown = (await api.client.get("/v1/models/local")).json()
    assert (shown["source"], shown["created_at"]) == ("operator", None)
    answer = await api.client.delete("/v1/models/local")
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    await api.client.post("/v1/models", json={"name": "another", **BODY})
    names = [model["name"] for model in (await api.client.get("/v1/models")).json()["data"]]
    assert names == ["another", "local"]
    # A model of the project takes the name over, until it is removed.
    assert (await api.client.post("/v1/models", json={"name": "local", **BODY})).status_code == 201
    assert (await api.client.get("/v1/models/local")).json()["source"] == "project"
    assert [m["source"] for m in (await api.client.get("/v1/models")).json()["data"]] == ["project"] * 2
    assert (await api.client.delete("/v1/models/local")).status_code == 204
    assert (await api.client.get("/v1/models/local")).json()["source"] == "operator"


async def test_a_name_resolves_to_the_projects_model_then_to_the_operators(api: Api) -> None:
    models = api.services.models
    assert (await models.resolve(api.home, "local")).endpoint.model == "tiny"
    with pytest.raises(UnknownModel):
        await models.resolve(api.home, "m")
    await api.client.put("/v1/models/m", json=BODY)
    found = await models.resolve(api.home, "m")
    assert replace(found.endpoint, id=None) == ModelEndpoint(
        "m", "openai", "wire-name", BODY["base_url"], "the value of the variable", BODY["options"]
    )
    assert found.lifecycle == {"timeout": None}
    await api.client.put("/v1/models/local", json=BODY)
    assert (await models.resolve(api.home, "local")).endpoint.model == "wire-name"
    await api.client.delete("/v1/models/local")
    assert (await models.resolve(api.home, "local")).endpoint.model == "tiny"


async def test_a_change_elsewhere_is_noticed_within_two_seconds(api: Api) -> None:
    models = api.services.models
    await api.client.put("/v1/models/m", json=BODY)
    assert (await models.resolve(api.home, "m")).endpoint.model == "wire-name"
    await api.rows("UPDATE models SET model = 'elsewhere'")
    assert (await models.resolve(api.home, "m")).endpoint.model == "wire-name"
    api.clock.now_ms += REMEMBERED_MS
    assert (await models.resolve(api.home, "m")).endpoint.model == "elsewhere"


async def test_a_model_whose_variable_is_not_set_cannot_be_called(empty_database_url: str) -> None:
    async with serving(empty_database_url, exposed={"MODEL_KEY": None}) as api:
        assert (await api.client.put("/v1/models/m", json=BODY)).status_code == 201
        with pytest.raises(Unavailable, match="MODEL_KEY"):
            await api.services.models.resolve(api.home, "m")


async def test_an_endpoint_may_move_or_be_away() -> None:
    where: list[ModelEndpoint | None] = [None]
    models = OperatorModels()
    models.add("local", lambda: where[0], spec=ModelSpec("local", "openai", "tiny"))
    with pytest.raises(Unavailable, match="starting"):
        models.resolve("local")
    where[0] = ModelEndpoint("local", "openai", "tiny", "http://127.0.0.1:5")
    resolved = models.resolve("local")
    assert resolved is not None
    assert resolved.endpoint is where[0]
    assert models.resolve("nobody") is None
    with pytest.raises(TypeError):
        models.add("other", lambda: None)
