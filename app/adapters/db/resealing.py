"""Go through everything that is stored sealed: seal it anew under the first key, or see whether it opens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.adapters.db.sealed_headers import HEADERS, header_place
from app.adapters.db.session import Database
from app.adapters.db.tables import credentials, mcp_servers, models, tools, webhook_endpoints
from app.core.credentials import REFERENCE
from app.core.errors import CredentialUnreadable
from app.core.header_values import ENV, names_something
from app.core.sealing import MARK, Place, is_sealed, stored_under
from app.ports.sealing import Vault

BATCH: Final = 200
"""Rows that are locked and changed in one transaction."""


@dataclass(slots=True)
class Found:
    """What became of the secrets that were gone through."""

    fine: int = 0
    """They open, and are stored under the first key."""
    sealed: int = 0
    """They were sealed anew, or for the first time."""
    stale: int = 0
    """They are stored under another key, or as they are, and would be sealed."""
    unreadable: int = 0
    """None of the operator's keys opens them: nothing was changed."""


@dataclass(frozen=True, slots=True)
class _Texts:
    """A table whose columns hold a secret each; they share a place, so that one can be handed on."""

    table: sa.Table
    columns: tuple[str, ...]
    place: str
    stamps: tuple[str, ...] = ()

    def secrets(self, row: Any) -> Iterator[tuple[str, Place, str]]:
        for column in self.columns:
            if (text := row._mapping[column]) is not None:
                yield column, Place(self.table.name, row.id, self.place), text

    def values(self, row: Any, changed: Mapping[str, str]) -> dict[str, Any]:
        return {**changed, **{stamp: sa.func.now() for stamp in self.stamps}}

    def stale(self, fresh: str) -> sa.ColumnElement[bool]:
        return sa.or_(*(sa.not_(_begins(self.table.c[name], fresh)) for name in self.columns))


@dataclass(frozen=True, slots=True)
class _Headers:
    """A table with a JSON column among whose members are headers."""

    table: sa.Table
    column: str

    def secrets(self, row: Any) -> Iterator[tuple[str, Place, str]]:
        headers = row._mapping[self.column].get(HEADERS)
        for name, value in headers.items() if isinstance(headers, dict) else ():
            if isinstance(value, str) and not names_something(value):
                yield name, header_place(self.table.name, row.id, name), value

    def values(self, row: Any, changed: Mapping[str, str]) -> dict[str, Any]:
        holder = row._mapping[self.column]
        return {self.column: {**holder, HEADERS: {**holder[HEADERS], **changed}}}

    def stale(self, fresh: str) -> sa.ColumnElement[bool]:
        headers = self.table.c[self.column][HEADERS]
        each = sa.func.json_each_text(
            sa.case((sa.func.json_typeof(headers) == "object", headers), else_=sa.cast({}, sa.JSON))
        ).table_valued("key", "value")
        other = (
            sa.select(sa.true())
            .select_from(each)
            .where(sa.not_(_begins(each.c.value, fresh, ENV, REFERENCE)))
        )
        return sa.exists(other)


_STORED: Final = (
    _Texts(credentials, ("secret",), "secret", ("rotated_at",)),
    _Texts(webhook_endpoints, ("secret", "previous_secret"), "secret"),
    _Headers(tools, "settings"),
    _Headers(mcp_servers, "settings"),
    _Headers(models, "options"),
)
"""Every place where secrets are stored."""


async def reseal(database: Database, vault: Vault, *, only_plain: bool = False) -> Found:
    """Have every secret sealed under the vault's first key, batch by batch, beside running services.

    `only_plain` leaves alone what is sealed under any key. It can be stopped at any time and begun again:
    what is done is passed over. Raises NoSealingKey when there is something to seal and no key.
    """
    fresh = MARK if only_plain or not vault.key_ids else stored_under(vault.key_ids[0])
    found = Found()
    for stored in _STORED:
        after = UUID(int=0)
        while True:
            async with database.writing() as connection:
                query = sa.select(stored.table).where(stored.stale(fresh), stored.table.c.id > after)
                query = query.order_by(stored.table.c.id).limit(BATCH).with_for_update(key_share=True)
                rows = (await connection.execute(query)).all()
                for row in rows:
                    await _reseal(connection, stored, row, vault, fresh, found)
            if len(rows) < BATCH:
                break
            after = rows[-1].id
    return found


async def _reseal(
    connection: AsyncConnection,
    stored: _Texts | _Headers,
    row: Any,
    vault: Vault,
    fresh: str,
    found: Found,
) -> None:
    changed: dict[str, str] = {}
    for name, place, text in stored.secrets(row):
        if text.startswith(fresh):
            continue
        try:
            changed[name] = vault.seal(place, vault.open(place, text) if is_sealed(text) else text)
        except CredentialUnreadable:
            found.unreadable += 1
    if changed:
        found.sealed += len(changed)
        statement = sa.update(stored.table).where(stored.table.c.id == row.id)
        await connection.execute(statement.values(**stored.values(row, changed)))


async def inspect(database: Database, vault: Vault, *, only_stale: bool = False) -> Found:
    """Open every secret to see whether it does; nothing is changed.

    `only_stale` passes over what is stored under the vault's first key.
    """
    first = stored_under(vault.key_ids[0]) if vault.key_ids else None
    found = Found()
    for stored in _STORED:
        chosen = stored.stale(first) if only_stale and first is not None else sa.true()
        after = UUID(int=0)
        while True:
            query = sa.select(stored.table).where(chosen, stored.table.c.id > after)
            async with database.reading() as connection:
                rows = (await connection.execute(query.order_by(stored.table.c.id).limit(BATCH))).all()
            for row in rows:
                for _, place, text in stored.secrets(row):
                    _look(vault, place, text, first, found)
            if len(rows) < BATCH:
                break
            after = rows[-1].id
    return found


def _look(vault: Vault, place: Place, text: str, first: str | None, found: Found) -> None:
    try:
        if is_sealed(text):
            vault.open(place, text)
    except CredentialUnreadable:
        found.unreadable += 1
        return
    if first is not None and text.startswith(first):
        found.fine += 1
    else:
        found.stale += 1


def _begins(column: sa.ColumnElement[Any], *texts: str) -> sa.ColumnElement[bool]:
    return sa.or_(*(sa.func.starts_with(column, text) for text in texts))
