"""Put together what seals secrets, from the keys that the operator has set, and look after what is sealed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from app.adapters.db.resealing import Found, inspect, reseal
from app.adapters.db.session import Database
from app.adapters.sealing import AesGcmVault, BadKey, keys_in
from app.adapters.secret_file import lines_of, sealing_keys_in
from app.core.errors import Unavailable
from app.settings import PREFIX, BadSettings, Settings

PLAIN_AFTER_S = 3600.0
"""How long after the start secrets are sealed that an earlier version stored as they were: when an upgrade is
over, during which processes of that version run beside this one, and could not read them."""
AWAY_S = 5.0
"""Pause before another try, while the database is away."""

log = structlog.get_logger("sealing")


def vault_of(settings: Settings, *, make: bool = False) -> AesGcmVault:
    """The vault with the keys of the settings, else with those kept in the data directory.

    `make` says whether a key is made there when there is none, as in development. Raises BadSettings.
    """
    try:
        return AesGcmVault(keys_in(_lines(settings, make=make)))
    except BadKey as bad:
        raise BadSettings(f"sealing keys: {bad}") from None


def _lines(settings: Settings, *, make: bool) -> list[str]:
    file = settings.sealing_key_file
    if settings.sealing_keys:
        if file is not None:
            raise BadSettings(f"set {PREFIX}SEALING_KEYS or {PREFIX}SEALING_KEY_FILE, not both")
        return [key.get_secret_value() for key in settings.sealing_keys]
    if file is None:
        return sealing_keys_in(settings.data_dir, make=make)
    try:
        lines = lines_of(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"sealing_key_file: {file} cannot be read ({type(error).__name__})") from None
    if not lines:
        raise BadSettings(f"sealing_key_file: there is no key in {file}")
    return lines


async def keep_sealed(
    database: Database, vault: AesGcmVault, *, plain_after_s: float = PLAIN_AFTER_S, away_s: float = AWAY_S
) -> None:
    """Say in the log which secrets cannot be used, and after a while seal those that are not sealed.

    A database that is away is waited for, by tries `away_s` seconds apart.
    """
    found = await _once_there(lambda: inspect(database, vault, only_stale=True), away_s)
    if found.unreadable:
        log.warning(
            "stored secrets do not open with the configured sealing keys; what uses them will fail",
            secrets=found.unreadable,
            keys=list(vault.key_ids),
        )
    if not vault.key_ids or not found.stale:
        return
    await asyncio.sleep(plain_after_s)
    if sealed := (await _once_there(lambda: reseal(database, vault, only_plain=True), away_s)).sealed:
        log.info("secrets were sealed that had been stored as they were", secrets=sealed)


async def _once_there(work: Callable[[], Awaitable[Found]], away_s: float) -> Found:
    while True:
        try:
            return await work()
        except Unavailable:
            await asyncio.sleep(away_s)
