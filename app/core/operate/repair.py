"""Ask a model to mend an answer that cannot be used, and tell it what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.core.json_text import dumps, storable
from app.core.operate.read_output import PARSE, SCHEMA_VALIDATION, Reading
from app.core.prompt import Prompt, PromptMessage

MAX_REPAIRS: Final = 3
"""Streams that try to mend one answer."""

_SHOWN: Final = 20_000
"""Code points of the answer that are shown; mending a longer one costs more than asking again."""

_RULE: Final = (
    "The text below was meant to be one JSON value that satisfies the schema, and is not. Write that value: "
    "keep what the text says, mend only what is wrong, invent nothing. Write the JSON alone, without a word "
    "or a code fence around it."
)

_TRIED: Final = (
    "{} of the tries to mend it failed, and {} are left, this one included. The text is what the last try "
    "wrote; it is still wrong, so write something else."
)


def can_be_mended(reading: Reading) -> bool:
    """Whether there is something to mend; what was cut off or never said cannot be."""
    failure = reading.failure
    return failure is not None and failure.code in (PARSE, SCHEMA_VALIDATION) and len(reading.text) <= _SHOWN


def repair_prompt(
    reading: Reading,
    problems: Sequence[str],
    schema: Mapping[str, Any],
    *,
    enforced: Mapping[str, Any] | None,
    tried: int = 0,
) -> Prompt:
    """What the model is asked; `enforced` is the schema that its endpoint enforces, if it does.

    No two of the tries, of which `tried` came before, ask the same: a model that made the same mistake again
    would only make it once more.
    """
    told = "\n".join(f"- {problem}" for problem in problems)
    parts = [
        _RULE,
        *([f"## Tried before\n{_TRIED.format(tried, MAX_REPAIRS - tried)}"] if tried else []),
        f"## Wrong with it\n{told}",
        f"## Schema\n{dumps(dict(schema)).decode()}",
        f"## Text\n{storable(reading.text)}",
    ]
    return Prompt(
        messages=[PromptMessage("user", "\n\n".join(parts))],
        response_schema=enforced,
        schema_name="Repaired",
    )
