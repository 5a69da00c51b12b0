"""Keep what runs are made of: projects, keys, models and branches. Every method is one short transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

from app.core.limits.quota import Quota
from app.ports.storage import StoredMessage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A stretch of a list."""

    items: Sequence[T]
    has_more: bool
    """Whether something follows the last item."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Which stretch of a list."""

    limit: int
    descending: bool
    after: Any = None
    """The sort key of the last item seen; None begins at the beginning."""


@dataclass(frozen=True, slots=True)
class Once:
    """A request that carries an Idempotency-Key: it is done once, and its answer kept."""

    scope: str
    """API key and route with its ids."""
    key: str
    fingerprint: bytes
    """Digest of method, path and body."""
    answer: Callable[[Any], tuple[int, bytes]]
    """Status and JSON body of the answer, from what was made; the answer is kept without secrets."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A row of `branches`."""

    id: UUID
    project_id: UUID
    name: str | None
    system: str | None
    chat_model: str | None
    parse_model: str | None
    tools: bool | list[str]
    lifecycle: Mapping[str, Any] | None
    gate: Mapping[str, Any] | None
    permissions: Mapping[str, Any] | None
    hooks: Sequence[Mapping[str, Any]] | None
    metadata: Mapping[str, Any]
    version: int
    """Grows with every change of the settings, and when a client appends messages."""
    parent_id: UUID | None
    forked_at: UUID | None
    """The parent's message up to which this branch was copied."""
    created_at: datetime
    updated_at: datetime
    forked_run_id: UUID | None = None
    """The run whose moment this branch begins with, if it is a fork of one."""
    forked_seq: int | None = None
    """The event after which that was."""
    legal_hold: bool = False
    """Whether nothing of it may be deleted, whatever its age."""


@dataclass(frozen=True, slots=True)
class NewBranch:
    """A branch to be made."""

    name: str | None = None
    system: str | None = None
    chat_model: str | None = None
    parse_model: str | None = None
    tools: bool | list[str] = True
    lifecycle: Mapping[str, Any] | None = None
    gate: Mapping[str, Any] | None = None
    permissions: Mapping[str, Any] | None = None
    hooks: Sequence[Mapping[str, Any]] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BranchFilter:
    """Which branches a list shows; None does not filter."""

    name: str | None = None
    metadata: Mapping[str, Any] | None = None
    """Members that the branch's metadata must hold."""
    metadata_texts: Mapping[str, str] = field(default_factory=dict)
    """Members by their text: "5" is also found as the number 5."""
    created_after: datetime | None = None
    created_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class SaidMessage:
    """A message that a client appends; `content` is JSON text."""

    kind: str
    content: str
    sender: str | None
    recipient: str | None


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """What of a conversation was there after an event of a run."""

    run_id: UUID
    branch_id: UUID
    seq: int
    position: int | None
    """Where the run begins in the conversation; None for a run of an older version, that did not say."""
    answered: bool
    """Whether its instruction and answer were there."""
    calls: Sequence[UUID]
    """Its calls that had their response, by `call_id`."""


class Branches(Protocol):
    """Conversations and their settings. A branch of another project raises NotFound everywhere.

    `by` is the key that asks, for the audit log, which has every change of a gate, of permissions and hooks.
    """

    async def create(
        self, project_id: UUID, new: NewBranch, once: Once | None = None, *, by: UUID | None = None
    ) -> Branch:
        """Make a branch, with its system message if it has a text. Raises AnsweredBefore, KeyReused."""

    async def page(self, project_id: UUID, which: BranchFilter, part: Slice) -> Page[Branch]:
        """Branches by id, so by age; `part.after` is an id."""

    async def get(self, project_id: UUID, branch_id: UUID) -> Branch:
        """One branch."""

    async def change(
        self,
        project_id: UUID,
        branch_id: UUID,
        changes: Mapping[str, Any],
        *,
        if_match: int | None,
        by: UUID | None = None,
    ) -> Branch:
        """Set fields of the branch, all but `metadata`, which is merged as RFC 7396 says.

        A changed `system` text changes the branch's one system message with it. Raises PreconditionFailed,
        and LegalHold where it would replace one.
        """

    async def delete(self, project_id: UUID, branch_id: UUID, *, if_match: int | None) -> None:
        """Remove the branch with its messages, runs, calls and events.

        Raises BranchBusy while a run is active or queued, LegalHold, PreconditionFailed.
        """

    async def purge(
        self, project_id: UUID, branch_id: UUID, *, by: UUID | None, once: Once | None = None
    ) -> Branch:
        """Remove everything that was said on the branch, and all its runs; its settings stay.

        The rows of their logs, which nobody can read any more, are left to `forget_purged`. Raises
        BranchBusy while a run is active or queued, LegalHold, AnsweredBefore, KeyReused.
        """

    async def forget_purged(self) -> int:
        """Remove the logs of some purged runs; how many runs, 0 when there is nothing left to remove."""

    async def fork(
        self,
        project_id: UUID,
        branch_id: UUID,
        *,
        at_message: UUID | None,
        name: str | None,
        once: Once | None = None,
        by: UUID | None = None,
    ) -> Branch:
        """Copy the branch up to and including a message (None: all).

        An action request is copied only with its response, and nothing of a run that was rolled back. Raises
        Invalid for a message that is not in the branch's conversation, AnsweredBefore, KeyReused.
        """

    async def fork_run(
        self,
        project_id: UUID,
        point: ForkPoint,
        *,
        name: str | None,
        once: Once | None = None,
        by: UUID | None = None,
    ) -> Branch:
        """Copy a run's branch as it was at a moment, with the settings that it has now; audited.

        What the run had said is copied although the run was rolled back later. Raises Conflict where nothing
        tells where the run begins, AnsweredBefore, KeyReused.
        """

    async def append(
        self, project_id: UUID, branch_id: UUID, said: Sequence[SaidMessage], once: Once | None = None
    ) -> Sequence[StoredMessage]:
        """Append messages; a system one replaces the branch's system text instead.

        Raises BranchBusy while a run is active or queued, LegalHold where a system text would be replaced,
        AnsweredBefore, KeyReused.
        """

    async def messages(
        self, project_id: UUID, branch_id: UUID, part: Slice, *, superseded: bool = False
    ) -> Page[StoredMessage]:
        """The conversation by position; `part.after` is one. With `superseded`, of runs rolled back too."""


@dataclass(frozen=True, slots=True)
class Project:
    """A row of `projects`."""

    id: UUID
    name: str
    lifecycle: Mapping[str, Any] | None
    gate: Mapping[str, Any] | None
    permissions: Mapping[str, Any] | None
    hooks: Sequence[Mapping[str, Any]] | None
    self_approval: bool
    """Whether a key may decide calls of runs that it has started itself."""
    created_at: datetime
    updated_at: datetime
    retention_days: int | None = None
    """How long the log of an ended run is kept; None as long as the settings say."""
    legal_hold: bool = False
    """Whether nothing of its branches and runs may be deleted, whatever its age."""


class Projects(Protocol):
    """Tenants. `by` is the key that asks, for the audit log."""

    async def create(
        self,
        name: str,
        lifecycle: Mapping[str, Any] | None,
        *,
        by: UUID | None,
        once: Once | None = None,
        once_in: UUID | None = None,
    ) -> Project:
        """Make a project; the idempotency record belongs to project `once_in`. Raises Conflict for a name in
        use, AnsweredBefore, KeyReused.
        """

    async def ensure(self, name: str) -> Project:
        """The project of this name, made when there is none."""

    async def get(self, project_id: UUID) -> Project:
        """One project. Raises NotFound."""

    async def page(self, part: Slice) -> Page[Project]:
        """All projects by id."""

    async def change(self, project_id: UUID, changes: Mapping[str, Any], *, by: UUID | None) -> Project:
        """Set fields of the project. Raises NotFound, Conflict for a name in use."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A row of `api_keys`; the key itself is nowhere."""

    id: UUID
    project_id: UUID
    name: str
    prefix: str
    """The first characters of the key, to tell it apart."""
    scopes: Sequence[str]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key, and what limits it and its project."""

    key: ApiKey
    quotas: tuple[Quota, ...]


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key to be stored."""

    name: str
    digest: bytes
    prefix: str
    scopes: Sequence[str]
    expires_at: datetime | None


class Keys(Protocol):
    """API keys. `by` is the key that asks, for the audit log."""

    async def any(self) -> bool:
        """Whether a key was ever made that is not revoked."""

    async def find(self, digest: bytes) -> KnownKey | None:
        """The key with this digest, whatever its state."""

    async def get(self, key_id: UUID) -> ApiKey | None:
        """The key of any project, whatever its state."""

    async def quotas(self, project_id: UUID) -> tuple[Quota, ...]:
        """What limits requests in a project that are made without a key."""

    async def create(
        self, project_id: UUID, new: NewKey, *, by: UUID | None, once: Once | None = None
    ) -> ApiKey:
        """Store a key. Raises NotFound for an unknown project, AnsweredBefore, KeyReused."""

    async def page(self, project_id: UUID, part: Slice) -> Page[ApiKey]:
        """Keys of a project by id. Raises NotFound."""

    async def revoke(self, project_id: UUID, key_id: UUID, *, by: UUID | None) -> ApiKey:
        """Make the key useless for good; a second time changes nothing. Raises NotFound."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What a client says of a model."""

    name: str
    provider: str
    model: str
    base_url: str | None = None
    api_key_env: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The provider's own; the values of their `headers` may be secrets."""
    lifecycle: Mapping[str, Any] | None = None
    limits: Mapping[str, Any] | None = None
    """`core.limits.options.ModelLimits` as JSON."""
    credential: str | None = None
    """The credential with its key, in place of `api_key_env`."""
    price: Mapping[str, Any] | None = None
    """`Price.wire` of what was said of it; None where the table of prices is to say it."""


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A row of `models`, or one of the operator's."""

    spec: ModelSpec
    id: UUID | None = None
    """None for the operator's models, and so are the times."""
    created_at: datetime | None = None
    updated_at: datetime | None = None


class Models(Protocol):
    """Models that projects registered. `by` is the key that asks, for the audit log."""

    async def all(self, project_id: UUID) -> Sequence[StoredModel]:
        """Every model of the project, by name."""

    async def find(self, project_id: UUID, name: str) -> StoredModel | None:
        """One of them."""

    async def create(
        self, project_id: UUID, spec: ModelSpec, *, by: UUID | None, once: Once | None = None
    ) -> StoredModel:
        """Store a model. Raises Conflict for a name in use, NoSealingKey, AnsweredBefore, KeyReused."""

    async def put(self, project_id: UUID, spec: ModelSpec, *, by: UUID | None) -> tuple[StoredModel, bool]:
        """Store or replace a model; whether it is new. Raises NoSealingKey."""

    async def delete(self, project_id: UUID, name: str, *, by: UUID | None) -> None:
        """Remove a model. Raises NotFound."""
