"""Idempotency-Key: do a POST once, and give its repeats the first answer."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Request
from starlette.responses import Response

from app.api.replies import JSON, encode
from app.core.access import Principal
from app.core.errors import FieldError, Malformed
from app.core.json_text import canonical
from app.ports.catalog import Once
from app.ports.replies import AnsweredBefore, Replies

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
_FIT = re.compile(r"[\x21-\x7e]{1,255}")


class Asked:
    """What the request says about being done once."""

    def __init__(self, request: Request, key: str | None, replies: Replies) -> None:
        self._request = request
        self.key = key
        self._replies = replies

    async def once(
        self, who: Principal, status: int, view: Callable[[Any], Any], *, within: UUID | None = None
    ) -> Once | None:
        """The same for a repository, None without a key. To be called after the body was read, and before
        anything is looked up for the request: what it used may be gone by the time of its repeat.

        `view` makes the answer's JSON, without secrets; `within` is the project that is worked in, if not the
        caller's. Raises AnsweredBefore, KeyReused.
        """
        if self.key is None:
            return None
        once = Once(
            scope_of(self._request, who),
            self.key,
            fingerprint_of(self._request),
            lambda made: (status, encode(view(made))),
        )
        await self._replies.recall(within or who.project_id, once)
        return once


def scope_of(request: Request, who: Principal) -> str:
    """Within what a key means the same request: the API key and the address with its ids."""
    return f"{who.key_id or '-'} {request.method} {request.url.path}"


def fingerprint_of(request: Request) -> bytes:
    """Digest of method, path and canonical body; the body must have been read."""
    body = getattr(request.state, "body", None)
    text = f"{request.method} {request.url.path}\n".encode() + canonical(body)
    return hashlib.blake2b(text, digest_size=16).digest()


async def idempotency_key_of(request: Request) -> str | None:
    """The Idempotency-Key header. Raises Malformed for one that is no visible ASCII text."""
    key = request.headers.get(HEADER)
    if key is not None and not _FIT.fullmatch(key):
        words = "it has to be 1 to 255 visible ASCII characters without a blank"
        raise Malformed(
            f"The {HEADER} cannot be used: {words}.", errors=[FieldError("", words, "invalid", HEADER)]
        )
    return key


IdempotencyKey = Annotated[str | None, Depends(idempotency_key_of)]


async def asked_of(request: Request) -> Asked:
    """`asked: AskedOnce` in a route's signature."""
    replies: Replies = request.app.state.services.replies
    return Asked(request, await idempotency_key_of(request), replies)


AskedOnce = Annotated[Asked, Depends(asked_of)]


async def on_answered_before(request: Request, answered: Exception) -> Response:
    """The first answer again."""
    assert isinstance(answered, AnsweredBefore)
    return Response(answered.body, answered.status, {REPLAYED: "true"}, media_type=JSON)
