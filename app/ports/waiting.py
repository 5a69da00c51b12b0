"""What runs wait for: a person's word, or the result of a call that a client carries out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID


@dataclass(slots=True)
class NewApproval:
    """A question to a person: whether a `pending` call may run."""

    id: UUID
    function_call_id: UUID
    function: str
    arguments: str
    arguments_digest: str
    asked_by: str
    reason: str | None
    expires_at: datetime


@dataclass(slots=True)
class NewClientCall:
    """A call whose result a client is to bring; its row is `pending` from then on."""

    function_call_id: UUID
    call_id: UUID
    attempt: int
    function: str
    arguments: str
    arguments_digest: str
    lease_s: float
    """For how long a worker has it that does not say."""
    created_at: datetime
    expires_at: datetime


@dataclass(slots=True)
class WaitClosed:
    """Nobody is waited for any more: the call ends otherwise."""

    function_call_id: UUID
    at: datetime


@dataclass(frozen=True, slots=True)
class ApprovalRecord:
    """A row of `approvals`. JSON payloads are JSON text."""

    id: UUID
    run_id: UUID
    function_call_id: UUID
    function: str
    arguments: str
    arguments_digest: str
    asked_by: str
    reason: str | None
    status: str
    edited: str | None
    edited_digest: str | None
    comment: str | None
    decided_by: UUID | None
    decided_at: datetime | None
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class ClientCallRecord:
    """A row of `client_calls`. JSON payloads are JSON text."""

    function_call_id: UUID
    run_id: UUID
    branch_id: UUID | None
    call_id: UUID
    attempt: int
    function: str
    arguments: str
    arguments_digest: str
    status: str
    """`waiting`, `answered`, `expired` or `cancelled`."""
    lease_s: float
    lease_token: UUID | None
    """Of the last lease that was given, over or not."""
    lease_until: datetime | None
    leased_by: UUID | None
    """The key of the worker that has, or had, it."""
    output: str | None
    output_truncated: bool
    """Whether `output` is the beginning of a longer one."""
    error: str | None
    """`{"type", "message", "retryable"}`."""
    result_digest: str | None
    """Of what was brought, before anything was cut off."""
    answered_by: UUID | None
    created_at: datetime
    expires_at: datetime
    ended_at: datetime | None

    def leased(self, at: datetime) -> bool:
        """Whether a worker has it at this time."""
        return self.lease_until is not None and self.lease_until > at


@dataclass(frozen=True, slots=True)
class Waits:
    """All that a run waits for, or waited for."""

    approvals: Sequence[ApprovalRecord] = ()
    client_calls: Sequence[ClientCallRecord] = ()


class WaitStore(Protocol):
    """What runs that wait go on from."""

    async def settled_waits(self, run_id: UUID, epoch: int, *, close: bool = False) -> Waits:
        """What the run waits for, with what is late marked as expired: no word on that counts after this.

        `close` does the same with every call that still waits for a client: it is cancelled. Only the holder
        of the run's lease, `epoch`, can close anything.
        """
