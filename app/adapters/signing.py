"""Sign requests to the servers of clients, with secrets of the environment or of their project."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from app.core import webhooks
from app.core.errors import AppError
from app.core.signing import Signing
from app.ports.ambient import Clock, IdSource
from app.ports.credentials import Credentials
from app.ports.signing import NotSigned


class Signer:
    """Makes the headers of Standard Webhooks."""

    def __init__(
        self,
        clock: Clock,
        ids: IdSource,
        exposed: Mapping[str, str | None],
        credentials: Credentials | None = None,
    ) -> None:
        """`exposed` are the variables that may be named, None for those without a value."""
        self._clock = clock
        self._ids = ids
        self._exposed = exposed
        self._credentials = credentials

    async def headers(
        self, signing: Signing | None, project_id: UUID, body: bytes, *, id: str | None = None
    ) -> dict[str, str]:
        """The headers that sign `body` now; none where nothing is to be signed. Raises NotSigned.

        `id` names what is sent, the same whenever it is sent again; without one it is new.
        """
        if signing is None:
            return {}
        secret = await self._secret(signing, project_id)
        if not webhooks.is_secret(secret):
            form = "whsec_ and base64 of 24 bytes or more"
            raise NotSigned(f"what {signing.env or signing.credential!r} holds is no signing secret: {form}")
        at_s = self._clock.wall_ms() // 1000
        return webhooks.headers(id or str(self._ids.new()), at_s, body, [secret])

    async def _secret(self, signing: Signing, project_id: UUID) -> str:
        if signing.env is not None:
            value = (self._exposed.get(signing.env) or "").strip()
            if not value:
                raise NotSigned(f"the variable {signing.env!r} has no value here to sign with")
            return value
        name = signing.credential or ""
        if self._credentials is None:
            raise NotSigned(f"the credential {name!r} cannot be read: this server keeps none")
        try:
            return (await self._credentials.secret(project_id, name)).strip()
        except AppError as error:
            raise NotSigned(f"the credential {name!r} cannot be read: {error.detail}") from None
