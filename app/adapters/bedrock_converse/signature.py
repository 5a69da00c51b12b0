"""Sign a request by AWS Signature Version 4."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Self
from urllib.parse import quote

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_STAMP: Final = "%Y%m%dT%H%M%SZ"
_KEY: Final = re.compile(r"([A-Z0-9]{16,128}):([^:\s]{16,256})(?::(\S+))?")


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key of AWS."""

    id: str
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    """Only with keys that are good for a session."""

    @classmethod
    def of(cls, key: str) -> Self | None:
        """Read `ID:SECRET` or `ID:SECRET:TOKEN`; None for a key of another kind."""
        found = _KEY.fullmatch(key)
        return None if found is None else cls(*found.groups())


@dataclass(frozen=True, slots=True)
class Scope:
    """What a signature is good for."""

    region: str
    service: str


def signed(
    credentials: Credentials,
    scope: Scope,
    now: datetime,
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes,
) -> dict[str, str]:
    """The headers to be sent besides `headers`, all of which are signed; they need a `Host`.

    `path` is as it is sent, and there is no query; `now` is in UTC.
    """
    stamp = now.strftime(_STAMP)
    more = {"X-Amz-Date": stamp}
    if credentials.token is not None:
        more["X-Amz-Security-Token"] = credentials.token
    spoken = sorted((name.lower(), " ".join(value.split())) for name, value in {**headers, **more}.items())
    names = ";".join(name for name, _ in spoken)
    request = "\n".join(
        [
            method,
            # What is sent is encoded already, and encoded once more to be signed.
            quote(path, safe="/-_.~"),
            "",
            *(f"{name}:{value}" for name, value in spoken),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        ]
    )
    reach = f"{stamp[:8]}/{scope.region}/{scope.service}/aws4_request"
    to_sign = "\n".join([_ALGORITHM, stamp, reach, hashlib.sha256(request.encode()).hexdigest()])
    key = f"AWS4{credentials.secret}".encode()
    for step in reach.split("/"):
        key = hmac.digest(key, step.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    more["Authorization"] = (
        f"{_ALGORITHM} Credential={credentials.id}/{reach}, SignedHeaders={names}, Signature={signature}"
    )
    return more
