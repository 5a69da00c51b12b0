"""What is posted to a webhook endpoint: its text, its signature, and what follows from the answer to it.

A post is the content of one request, which is tried until it is taken or given up.

Signatures are those of the Standard Webhooks specification, version 1.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

SECRET_PREFIX: Final = "whsec_"
SECRET_BYTES: Final = 32
LEAST_SECRET_BYTES: Final = 24
"""A shorter secret is refused where others choose it."""

PAUSES_S: Final = (5.0, 30.0, 120.0, 900.0, 3_600.0, 21_600.0, 86_400.0, 86_400.0)
"""How long to wait after each failed try of a post, in seconds; after one try more it is given up."""
MAX_RETRY_AFTER_S: Final = 86_400.0
"""Up to which pause a receiver's `Retry-After` is honoured."""
JITTER: Final = 0.1
"""By which part of itself a pause may be longer, so that what failed together does not come back together."""

GONE: Final = 410
"""The status by which a receiver says that it wants nothing more."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one try."""

    status: int | None
    """The HTTP status; None when no answer came."""
    error: str | None = None
    """Why no answer came, or what is wrong with it, for people."""
    retry_after_ms: int | None = None
    """The pause that the receiver asks for."""

    @property
    def delivered(self) -> bool:
        """Whether the receiver took the post."""
        return self.status is not None and 200 <= self.status < 300


def pause_s(answer: Answer, failures: int, draw: float, pauses_s: Sequence[float] = PAUSES_S) -> float | None:
    """How long to wait after the `failures`-th failed try of a post (from 1); None when it is given up.

    `draw` is a random number from 0 to 1.
    """
    if answer.status == GONE or failures > len(pauses_s):
        return None
    asked_s = min((answer.retry_after_ms or 0) / 1000, MAX_RETRY_AFTER_S)
    return max(pauses_s[failures - 1], asked_s) * (1 + JITTER * draw)


def post_id(endpoint_id: UUID, run_id: UUID, first_seq: int) -> str:
    """The id of the post that begins with an event: the same for every try, and after a crash."""
    seed = endpoint_id.bytes + run_id.bytes + first_seq.to_bytes(4, "big")
    digest = hashlib.blake2s(seed, digest_size=15).digest()
    return "msg_" + base64.b32encode(digest).decode().lower()


def post_body(
    run_id: UUID,
    branch_id: UUID | None,
    *,
    callbacks: Iterable[str],
    events: Iterable[str],
    last_seq: int,
    ended: bool,
    at_ms: int,
) -> bytes:
    """The body; `callbacks` and `events` are JSON texts, `at_ms` is when the last of it happened."""
    moment = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    branch = f'"{branch_id}"' if branch_id else "null"
    return (
        f'{{"type":"run.callbacks","timestamp":"{moment.replace("+00:00", "Z")}","data":{{'
        f'"run_id":"{run_id}","branch_id":{branch},"callbacks":[{",".join(callbacks)}],'
        f'"events":[{",".join(events)}],"last_seq":{last_seq},"ended":{"true" if ended else "false"}}}}}'
    ).encode()


def headers(id: str, at_s: int, body: bytes, secrets: Iterable[str]) -> dict[str, str]:
    """The headers that name and sign a post; with several secrets, a receiver may know any of them."""
    signed = f"{id}.{at_s}.".encode() + body
    return {
        "webhook-id": id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": " ".join(f"v1,{_signature(secret, signed)}" for secret in secrets),
    }


def secret_of(random: bytes) -> str:
    """A secret as endpoints' owners are told it."""
    return SECRET_PREFIX + base64.b64encode(random).decode()


def is_secret(text: str) -> bool:
    """Whether a text is a secret that can be signed with; the prefix may be left out."""
    try:
        return len(_key(text)) >= LEAST_SECRET_BYTES
    except ValueError:
        return False


def _signature(secret: str, signed: bytes) -> str:
    return base64.b64encode(hmac.digest(_key(secret), signed, hashlib.sha256)).decode()


def _key(secret: str) -> bytes:
    return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
