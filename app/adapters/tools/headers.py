"""The headers that a registration chose, with their values, and what must not be told of these."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from app.core.errors import AppError, CredentialUnreadable
from app.core.header_values import credentials_in, is_secret, sealed_in, variables_in

NOT_CONFIGURED: Final = "NOT_CONFIGURED"
SHORTEST_SECRET: Final = 6
"""Characters of a header's value from which on it is taken out of errors; a shorter one may be any word."""

SecretOf = Callable[[str], Awaitable[str]]
"""The secret of a credential, by its name. Raises AppError."""


class Unsendable(Exception):
    """A header has no value that can be sent; the message says which, and why."""

    def __init__(self, type: str, words: str, *, retryable: bool) -> None:
        """`type` is the one of a call's failure; `retryable` says whether the same may work later."""
        super().__init__(words)
        self.type = type
        self.retryable = retryable


async def sent_headers(
    chosen: Mapping[str, str], exposed: Mapping[str, str | None], secret_of: SecretOf
) -> dict[str, str]:
    """The headers with the values of what they name, names in lower case. Raises Unsendable.

    `exposed` are the variables that may be named, None for those without a value.
    """
    found = dict(chosen)
    for header in sealed_in(found):
        words = f"the stored value of {header!r} does not open with the operator's keys; register it anew"
        raise Unsendable(CredentialUnreadable.code.upper(), words, retryable=False)
    for header, name in credentials_in(chosen).items():
        try:
            found[header] = await secret_of(name)
        except AppError as fault:
            raise Unsendable(fault.code.upper(), fault.detail, retryable=fault.retryable) from None
    for header, variable in variables_in(chosen).items():
        value = (exposed.get(variable) or "").strip()
        if not value or not (value.isascii() and value.isprintable()):
            words = f"the variable {variable!r} for {header!r} has no value here that can be sent"
            raise Unsendable(NOT_CONFIGURED, words, retryable=False)
        found[header] = value
    return {name.lower(): value for name, value in found.items()}


def secrets_in(sent: Mapping[str, str]) -> set[str]:
    """What must not be told of the values: each as it is, and without the word of its scheme."""
    parts = {part for value in sent.values() for part in (value, value.rpartition(" ")[2])}
    return {part for part in parts if len(part) >= SHORTEST_SECRET}


def sure_secrets_in(sent: Mapping[str, str], chosen: Mapping[str, str]) -> set[str]:
    """The same of the headers alone that are secrets for sure, by their names or by what was chosen."""
    return secrets_in({name: value for name, value in sent.items() if is_secret(name, chosen)})
