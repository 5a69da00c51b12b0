"""How credentials are named, and what in a setting refers to one."""

from __future__ import annotations

import base64
import binascii
from typing import Final, Literal, get_args

from app.core.webhooks import SECRET_PREFIX

REFERENCE: Final = "credential:"
"""A header's value that begins so names a credential, whose secret is sent."""

Kind = Literal["token", "signing_secret"]
"""A text that is sent as a key or a header, or a secret of Standard Webhooks that signs."""
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

MOST_CHARS: Final = 4_096
LEAST_CHARS: Final = 8
"""A shorter secret could not be told from other words where it has to be hidden."""
SIGNING_BYTES: Final = range(24, 65)
"""How many a signing secret may have, as Standard Webhooks says."""


def reference_in(value: str) -> str | None:
    """The name of the credential that a header's value refers to."""
    return value.removeprefix(REFERENCE) if value.startswith(REFERENCE) else None


def secret_fault(kind: Kind, secret: str) -> str | None:
    """What is wrong with a secret; never says anything of it."""
    if not LEAST_CHARS <= len(secret) <= MOST_CHARS:
        return f"a secret has {LEAST_CHARS} to {MOST_CHARS} characters"
    if not (secret.isascii() and secret.isprintable()) or secret != secret.strip():
        return "a secret has printable ASCII characters only, and no blank at its ends"
    if kind == "signing_secret" and not _signs(secret):
        few, many = SIGNING_BYTES[0], SIGNING_BYTES[-1]
        return f"a signing secret is {SECRET_PREFIX} and the base64 of {few} to {many} bytes"
    return None


def _signs(secret: str) -> bool:
    if not secret.startswith(SECRET_PREFIX):
        return False
    try:
        return len(base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)) in SIGNING_BYTES
    except binascii.Error:
        return False
