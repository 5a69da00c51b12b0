"""The headers that a registration chose, with their values, and what must not be told of these."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from app.core.http_tool import ENV, names_variable

SHORTEST_SECRET: Final = 6
"""Characters of a header's value from which on it is taken out of errors; a shorter one may be any word."""


class Unsendable(ValueError):
    """A header's variable has no value that can be sent; the message names it."""


def sent_headers(chosen: Mapping[str, str], exposed: Mapping[str, str | None]) -> dict[str, str]:
    """The headers with the values of their variables, names in lower case. Raises Unsendable.

    `exposed` are the variables that may be named.
    """
    found = dict(chosen)
    for header, value in chosen.items():
        if not names_variable(value):
            continue
        variable = value.removeprefix(ENV)
        held = (exposed.get(variable) or "").strip()
        if not held or not (held.isascii() and held.isprintable()):
            raise Unsendable(f"the variable {variable!r} for {header!r} has no value here that can be sent")
        found[header] = held
    return {name.lower(): value for name, value in found.items()}


def secrets_in(headers: Mapping[str, str]) -> set[str]:
    """What must not be told of the values: each as it is, and without the word of its scheme."""
    parts = {part for value in headers.values() for part in (value, value.rpartition(" ")[2])}
    return {part for part in parts if len(part) >= SHORTEST_SECRET}


def without(secrets: Collection[str], text: str) -> str:
    """The text with `***` where one of the secrets stands."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
