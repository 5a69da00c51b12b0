"""API keys: make them, recognize them, revoke them."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

from app.core.access import ALL_SCOPES, Principal, Scope
from app.core.errors import Forbidden, NotFound, Unauthenticated
from app.core.governance.decision import KeyFacts
from app.core.limits.quota import Quota
from app.ports.ambient import Clock
from app.ports.catalog import ApiKey, KnownKey, NewKey, Once, Page, Slice
from app.ports.catalog import Keys as KeyStore
from app.services.memory import Memory

PREFIX = "bl_"
SHOWN = len(PREFIX) + 6
"""Characters of a key that are kept to tell it apart."""

REMEMBERED_MS = 5_000
"""How long a key that was looked up is not looked up again: a revocation, and another limit, is felt by every
process within this time."""


class Keys:
    """The keys of all projects."""

    def __init__(self, store: KeyStore, clock: Clock, *, pepper: str) -> None:
        self._store = store
        self._clock = clock
        self._pepper = pepper.encode()
        self._known: Memory[bytes, KnownKey | None] = Memory(clock, REMEMBERED_MS, most=10_000)
        self._quotas: Memory[UUID, tuple[Quota, ...]] = Memory(clock, REMEMBERED_MS, most=1_000)
        self._facts: Memory[UUID, KeyFacts | None] = Memory(clock, REMEMBERED_MS, most=10_000)

    async def create(
        self,
        who: Principal,
        project_id: UUID,
        *,
        name: str,
        scopes: Collection[Scope],
        expires_at: datetime | None,
        once: Once | None = None,
    ) -> tuple[ApiKey, str]:
        """A new key and its text, which is nowhere kept. Raises NotFound, Forbidden."""
        _check_reach(who, project_id)
        if Scope.OPERATOR in scopes and Scope.OPERATOR not in who.scopes:
            raise Forbidden("Only a key with the scope 'operator' can make another one with it.")
        text = PREFIX + secrets.token_urlsafe(32)
        new = NewKey(name, self.digest(text), text[:SHOWN], sorted(scopes), expires_at)
        return await self._store.create(project_id, new, by=who.key_id, once=once), text

    async def page(self, who: Principal, project_id: UUID, part: Slice) -> Page[ApiKey]:
        """The keys of a project, the revoked ones too. Raises NotFound, Forbidden."""
        _check_reach(who, project_id)
        return await self._store.page(project_id, part)

    async def revoke(self, who: Principal, project_id: UUID, key_id: UUID) -> ApiKey:
        """Make a key useless. Raises NotFound, Forbidden."""
        _check_reach(who, project_id)
        revoked = await self._store.revoke(project_id, key_id, by=who.key_id)
        self.forget()
        return revoked

    def forget(self) -> None:
        """Look up again what keys there are, and what limits them: something was changed."""
        self._known.forget_all()
        self._quotas.forget_all()

    async def without_key(self, anyone: Principal) -> Principal:
        """Whoever may work in a project without one of its keys, with what limits the project."""
        project_id = anyone.project_id
        quotas = await self._quotas.find(project_id, lambda: self._store.quotas(project_id))
        return replace(anyone, quotas=quotas) if quotas else anyone

    async def authenticate(self, text: str) -> Principal:
        """Whose key this is. Raises Unauthenticated."""
        digest = self.digest(text)
        # Unknown ones are remembered too: guessing must not reach the database each time.
        known = await self._known.find(digest, lambda: self._store.find(digest))
        if known is None or known.key.revoked_at is not None or self._expired(known.key):
            raise Unauthenticated("The API key is unknown, expired or revoked.")
        key = known.key
        scopes = frozenset(Scope(scope) for scope in key.scopes)
        return Principal(key.project_id, key.id, scopes, known.quotas)

    async def facts(self, key_id: UUID | None) -> KeyFacts | None:
        """What gates are told of the key that started a run, remembered for a while; None without one."""
        if key_id is None:
            return None

        async def search() -> KeyFacts | None:
            key = await self._store.get(key_id)
            return None if key is None else KeyFacts(key.id, key.name, key.scopes)

        return await self._facts.find(key_id, search)

    def digest(self, text: str) -> bytes:
        """What is stored of a key: without the pepper a stolen table does not even tell a guess right."""
        return hmac.digest(self._pepper, text.encode(), hashlib.sha256)

    def _expired(self, key: ApiKey) -> bool:
        now = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)
        return key.expires_at is not None and key.expires_at <= now


class Gatekeeper:
    """Decides in whose name a request is served."""

    def __init__(self, keys: Keys, *, home: UUID, development: bool, bootstrap_key: str | None) -> None:
        """`home` is the project of requests without a key (in development) and of the bootstrap key."""
        self._keys = keys
        self._anyone = Principal(home, None, ALL_SCOPES)
        self._development = development
        self._bootstrap = None if bootstrap_key is None else keys.digest(bootstrap_key)
        self._digest = keys.digest

    async def principal(self, authorization: str | None) -> Principal:
        """Who sends this Authorization header. Raises Unauthenticated."""
        if authorization is None:
            if self._development:
                return await self._keys.without_key(self._anyone)
            raise Unauthenticated("Send an API key: Authorization: Bearer bl_…")
        scheme, _, text = authorization.partition(" ")
        text = text.strip()
        if scheme.lower() != "bearer" or not text or len(text) > 200:
            raise Unauthenticated("The Authorization header has to be: Bearer bl_…")
        if self._bootstrap is not None and hmac.compare_digest(self._digest(text), self._bootstrap):
            return await self._keys.without_key(self._anyone)
        return await self._keys.authenticate(text)


def _check_reach(who: Principal, project_id: UUID) -> None:
    if who.administers(project_id):
        return
    if project_id != who.project_id:
        raise NotFound("There is no such project.")
    who.need(Scope.ADMIN, Scope.OPERATOR)
