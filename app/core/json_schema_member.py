"""A JSON Schema as a member of a request's body: whatever it is in place of one is refused as a schema."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from app.core.json_schema_faults import no_object

FAULT = "invalid_schema"
"""The type of pydantic's error, and the code of the field's."""


def _an_object(value: Any) -> Any:
    if not isinstance(value, dict):
        raise PydanticCustomError(FAULT, no_object(value))
    return value


SchemaMember = Annotated[dict[str, Any], BeforeValidator(_an_object)]
"""An object; whether it is a schema is found out by who compiles it."""
