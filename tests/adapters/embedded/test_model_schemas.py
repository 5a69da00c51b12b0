"""The engine takes every fitted schema, and the guards keep it working."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from app.adapters.embedded.errors import LocalModelMissing
from app.adapters.embedded.model import EmbeddedModel, find_weights
from app.core.operate.project_schema import MAX_DEPTH, MAX_ENUM_VALUES, MAX_REPEATS, fit_schema
from tests.adapters.embedded.test_model import ask
from tests.core.operate.test_project_schema import CHANGED, KEPT, STRING, field, nested

pytestmark = [pytest.mark.embedded, pytest.mark.slow]

LARGEST: dict[str, dict[str, Any]] = {
    "as deep as allowed": nested(MAX_DEPTH),
    "as many values as allowed": field({"enum": [f"value {i:040}" for i in range(MAX_ENUM_VALUES)]}),
    "as many items as allowed": {"type": "array", "items": STRING, "minItems": 1, "maxItems": MAX_REPEATS},
    "as long as allowed": {"type": "string", "minLength": 1, "maxLength": MAX_REPEATS},
    "a free definition": {**field({"$ref": "#/$defs/a"}), "$defs": {"a": {}}},
    "a pattern of classes": {"type": "string", "pattern": r"^[\w.-]{3}@\d{2}$"},
    "many properties": {"type": "object", "properties": {f"p{i}": STRING for i in range(300)}},
}
SCHEMAS = {**KEPT, **{name: schema for name, (schema, _) in CHANGED.items()}, **LARGEST}


@pytest.fixture(scope="module")
def model() -> Iterator[EmbeddedModel]:
    try:
        find_weights()
    except LocalModelMissing as missing:
        pytest.skip(str(missing))
    with EmbeddedModel() as started:
        yield started


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_engine_takes_it(model: EmbeddedModel, name: str) -> None:
    fitted = fit_schema(SCHEMAS[name])
    assert fitted is not None
    form = {"type": "json_schema", "json_schema": {"name": "form", "schema": fitted}}
    answer = ask(model, response_format=form, max_tokens=4)
    assert answer.status_code == 200, answer.text
    assert model.is_ready()


def test_a_base_and_its_extension_come_out_together(model: EmbeddedModel) -> None:
    schema = {
        "allOf": [{"$ref": "#/$defs/base"}],
        "properties": {"colour": {"enum": ["red", "blue"]}},
        "required": ["colour"],
        "$defs": {
            "base": {
                "type": "object",
                "properties": {"certain": {"type": "boolean"}},
                "required": ["certain"],
            }
        },
    }
    form = {"type": "json_schema", "json_schema": {"name": "form", "schema": fit_schema(schema)}}
    content = json.loads(ask(model, response_format=form).json()["choices"][0]["message"]["content"])
    assert set(content) == {"colour", "certain"}
