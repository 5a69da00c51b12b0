"""Headers of tools, MCP servers and models: a value that is written out is sealed, for its own row only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from app.core.errors import CredentialUnreadable
from app.core.header_values import names_something
from app.core.sealing import Place, is_sealed
from app.ports.sealing import Vault

HEADERS: Final = "headers"
"""The member that holds them, in the settings of a tool or a server and in a model's options."""


def with_sealed_headers(vault: Vault, table: str, row_id: UUID, holder: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they are to be stored in a row. Raises NoSealingKey."""

    def seal(name: str, value: str) -> str:
        return value if names_something(value) else vault.seal(header_place(table, row_id, name), value)

    return _each(holder, seal)


def with_open_headers(vault: Vault, table: str, row_id: UUID, holder: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they are to be used; what does not open stays sealed, and fails where it is sent."""

    def open(name: str, value: str) -> str:
        if not is_sealed(value):
            return value
        try:
            return vault.open(header_place(table, row_id, name), value)
        except CredentialUnreadable:
            return value

    return _each(holder, open)


def header_place(table: str, row_id: UUID, name: str) -> Place:
    """Where a header's value is stored."""
    return Place(table, row_id, f"{HEADERS}/{name}")


def _each(holder: Mapping[str, Any], change: Callable[[str, str], str]) -> dict[str, Any]:
    made = dict(holder)
    headers = made.get(HEADERS)
    if isinstance(headers, dict):
        made[HEADERS] = {
            name: change(name, value) if isinstance(value, str) else value for name, value in headers.items()
        }
    return made
