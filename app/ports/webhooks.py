"""Keep webhook endpoints and what is owed to them, and post it there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from app.core.webhooks import Answer
from app.ports.catalog import Once, Page, Slice


@dataclass(frozen=True, slots=True)
class NewEndpoint:
    """An endpoint to be stored."""

    url: str
    description: str | None = None
    callbacks: Sequence[str] | None = None
    """Names of the callbacks that are sent; None for all that are stored."""
    event_types: Sequence[str] = ()
    """Types of the events that are sent beside them."""
    active: bool = True


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A row of `webhook_endpoints`, without its secrets."""

    id: UUID
    project_id: UUID
    url: str
    description: str | None
    callbacks: Sequence[str] | None
    event_types: Sequence[str]
    active: bool
    disabled_at: datetime | None
    disabled_reason: str | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Delivery:
    """A row of `webhook_deliveries`: how far an endpoint has been told of a run."""

    endpoint_id: UUID
    run_id: UUID
    status: str
    """pending, done or dead."""
    delivered_seq: int
    """Number of the last event up to which everything has been told, or was none of the endpoint's."""
    posts: int
    """How many the receiver took."""
    failures: int
    """Failed tries of the present post."""
    next_at: datetime
    """When a pending delivery is looked at again, at the latest."""
    last_status: int | None
    """The HTTP status of the last try; None when no answer came."""
    last_error: str | None
    last_attempt_at: datetime | None
    created_at: datetime
    ended_at: datetime | None


class WebhookEndpoints(Protocol):
    """Endpoints of projects, and their deliveries as their owners see them.

    `by` is the key that asks, for the audit log. What is another project's raises NotFound.
    """

    async def create(
        self, project_id: UUID, new: NewEndpoint, secret: str, *, by: UUID | None, once: Once | None = None
    ) -> Endpoint:
        """Store an endpoint.

        Raises Conflict when the project has too many, NoSealingKey, AnsweredBefore, KeyReused.
        """

    async def page(self, project_id: UUID, part: Slice) -> Page[Endpoint]:
        """Endpoints by id, so by age."""

    async def get(self, project_id: UUID, endpoint_id: UUID) -> Endpoint:
        """One endpoint."""

    async def change(
        self, project_id: UUID, endpoint_id: UUID, changes: Mapping[str, Any], *, by: UUID | None
    ) -> Endpoint:
        """Set fields of the endpoint; one that becomes active is no longer disabled."""

    async def rotate(
        self, project_id: UUID, endpoint_id: UUID, secret: str, *, by: UUID | None, once: Once | None = None
    ) -> Endpoint:
        """Give it a new secret; the old one counts for a day more.

        Raises NoSealingKey, AnsweredBefore, KeyReused.
        """

    async def delete(self, project_id: UUID, endpoint_id: UUID, *, by: UUID | None) -> None:
        """Remove the endpoint with its deliveries."""

    async def deliveries(
        self, project_id: UUID, endpoint_id: UUID, status: str | None, part: Slice
    ) -> Page[Delivery]:
        """Its deliveries by the id of their run."""

    async def redrive(
        self,
        project_id: UUID,
        endpoint_id: UUID,
        run_id: UUID,
        *,
        by: UUID | None,
        once: Once | None = None,
    ) -> Delivery:
        """Have a dead or waiting delivery tried at once, all its tries before it again.

        Raises Conflict for one that is done, AnsweredBefore, KeyReused.
        """


@dataclass(frozen=True, slots=True)
class Due:
    """A delivery that this process has to see to, until its lease ends."""

    endpoint_id: UUID
    run_id: UUID
    project_id: UUID
    epoch: int
    """The fencing number of the lease."""
    delivered_seq: int
    post_seq: int | None
    """The last event of a post whose fate is unknown or was bad: it is sent again as it was."""
    posts: int
    failures: int
    url: str
    secrets: Sequence[str] = field(repr=False)
    """Empty when none of them can be opened: nothing is posted without a signature."""
    callbacks: Sequence[str] | None
    event_types: Sequence[str]
    age_s: float
    """How long ago the run was accepted."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """How a delivery stands after it was seen to."""

    status: str
    delivered_seq: int
    posts: int
    failures: int = 0
    pause_s: float = 0.0
    """Until a pending one is looked at again."""
    answer: Answer | None = None
    """What the try gave, if there was one."""
    disable: str | None = None
    """Why the endpoint is to be disabled."""


class Outbox(Protocol):
    """What is owed to endpoints: one row for each run and endpoint, made when the run was accepted.

    All times are the database's.
    """

    async def interests(self) -> Mapping[UUID, bool]:
        """Projects with active endpoints, and whether one of these wants more than stored callbacks."""

    async def touch(self, runs: Collection[UUID]) -> None:
        """Let it be the time for the deliveries of runs that have news, but for those after a failure."""

    async def claim(self, *, room: Mapping[UUID, int], each: int, limit: int) -> Sequence[Due]:
        """Take deliveries whose time has come: `room` of an endpoint's, `each` where it has no entry."""

    async def fix(self, due: Due, last_seq: int) -> bool:
        """Note where the post ends that is about to be sent; False when the lease is another's."""

    async def settle(self, due: Due, settlement: Settlement) -> bool:
        """Store how it stands, and give the lease back; False when it was another's by then."""


class WebhookSender(Protocol):
    """Makes the requests."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Send one post. Never raises: what goes wrong is an answer too."""
