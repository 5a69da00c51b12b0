"""What a header's value may name instead of being written out: a variable of the server, or a credential."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from app.core.credentials import REFERENCE, reference_in
from app.core.sealing import is_sealed

ENV: Final = "env:"
"""A header's value that begins so names a variable of the server, whose value is sent."""

_SECRET_NAMES: Final = re.compile(r"auth|cookie|key|token|secret|passw", re.IGNORECASE)


def names_variable(value: str) -> bool:
    """Whether a header's value is the name of a variable."""
    return value.startswith(ENV)


def names_something(value: str) -> bool:
    """Whether a header's value is the name of something, and so no secret itself."""
    return value.startswith((ENV, REFERENCE))


def variables_in(headers: Mapping[str, str]) -> dict[str, str]:
    """The variables that headers name, by header."""
    return {name: value.removeprefix(ENV) for name, value in headers.items() if names_variable(value)}


def credentials_in(headers: Mapping[str, str]) -> dict[str, str]:
    """The credentials that headers refer to, by header."""
    named = {name: reference_in(value) for name, value in headers.items()}
    return {name: reference for name, reference in named.items() if reference is not None}


def sealed_in(headers: Mapping[str, str]) -> list[str]:
    """The headers whose stored value could not be opened; no client may give such a value."""
    return [name for name, value in headers.items() if is_sealed(value)]


def is_secret(name: str, headers: Mapping[str, str]) -> bool:
    """Whether a header's value is a secret for sure: by its name, or because it is only named."""
    if _SECRET_NAMES.search(name):
        return True
    return any(names_something(value) for header, value in headers.items() if header.lower() == name.lower())


def shown(headers: Mapping[str, Any]) -> dict[str, str | None]:
    """Headers as they may be shown: what was written out is null."""
    return {
        name: value if isinstance(value, str) and names_something(value) else None
        for name, value in headers.items()
    }
