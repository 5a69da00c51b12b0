"""Identifiers: UUIDv7 everywhere, and the stream ids that follow from a run's id."""

from __future__ import annotations

import hashlib
from typing import NewType
from uuid import UUID

ProjectId = NewType("ProjectId", UUID)
KeyId = NewType("KeyId", UUID)
BranchId = NewType("BranchId", UUID)
MessageId = NewType("MessageId", UUID)
RunId = NewType("RunId", UUID)
CallId = NewType("CallId", UUID)
StreamId = NewType("StreamId", UUID)

_RANDOM_BITS = (1 << 74) - 1


def stream_id(run_id: UUID, index: int) -> StreamId:
    """The id of the run's `index`-th stream (0-based): a UUIDv7 with the run's timestamp.

    It is computed, not stored, so that an event row needs only a small number to name its stream.
    """
    seed = hashlib.blake2s(run_id.bytes + index.to_bytes(4, "big"), digest_size=16).digest()
    noise = int.from_bytes(seed, "big") & _RANDOM_BITS
    rand_a, rand_b = noise >> 62, noise & ((1 << 62) - 1)
    stamp = run_id.int >> 80
    return StreamId(UUID(int=stamp << 80 | 7 << 76 | rand_a << 64 | 2 << 62 | rand_b))
