"""Idempotency-Key: do a POST once, and give its repeats the first answer."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.responses import Response

from app.api.replies import JSON, encode
from app.core.access import Principal
from app.core.errors import FieldError, Malformed
from app.core.json_text import canonical
from app.ports.catalog import AnsweredBefore, Once

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
_FIT = re.compile(r"[\x21-\x7e]{1,255}")


class Asked:
    """What the request says about being done once."""

    def __init__(self, request: Request, key: str | None) -> None:
        self._request = request
        self.key = key

    def once(self, who: Principal, status: int, view: Callable[[Any], Any]) -> Once | None:
        """The same for a repository, None without a key. To be called after the body was read.

        `view` makes the answer's JSON, without secrets.
        """
        if self.key is None:
            return None
        return Once(
            scope_of(self._request, who),
            self.key,
            fingerprint_of(self._request),
            lambda made: (status, encode(view(made))),
        )


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
    return Asked(request, await idempotency_key_of(request))


AskedOnce = Annotated[Asked, Depends(asked_of)]


async def on_answered_before(request: Request, answered: Exception) -> Response:
    """The first answer again."""
    assert isinstance(answered, AnsweredBefore)
    return Response(answered.body, answered.status, {REPLAYED: "true"}, media_type=JSON)
