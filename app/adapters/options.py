"""Check the options of a registered thing against a typed model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from app.core.errors import FieldError, Invalid
from app.core.json_text import pointer

_CODES = {"missing": "missing", "extra_forbidden": "unknown_field"}


class Options(BaseModel):
    """Options as they are stored: nothing unknown, nothing converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Checked = TypeVar("Checked", bound=Options)


def checked(options: Mapping[str, Any], model: type[Checked], *, at: str = "/options") -> Checked:
    """The options as a `model`. Raises `Invalid` with one pointer below `at` for each fault."""
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
    raise Invalid(
        "the options make no sense",
        errors=[
            FieldError(
                at + pointer(*(step for step in fault["loc"] if step != "[key]")),
                fault["msg"].removeprefix("Value error, "),
                _CODES.get(fault["type"], "invalid"),
            )
            for fault in faults
        ],
    )
