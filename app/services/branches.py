"""Branches: conversations and their settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from app.core.access import Principal, Scope
from app.core.errors import FieldError, UnknownModel, UnknownTool
from app.core.governance.governance import POLICIES
from app.core.json_text import pointer
from app.core.metadata import check_metadata
from app.ports.catalog import Branch, BranchFilter, ForkPoint, NewBranch, Once, Page, SaidMessage, Slice
from app.ports.catalog import Branches as BranchStore
from app.ports.storage import StoredMessage
from app.ports.tool import ToolCatalog
from app.services.models import Models


class Branches:
    """What clients do to branches, beside running things on them."""

    def __init__(self, store: BranchStore, models: Models, tools: ToolCatalog) -> None:
        self._store = store
        self._models = models
        self._tools = tools

    async def create(self, who: Principal, new: NewBranch, once: Once | None = None) -> Branch:
        """A new branch. Raises UnknownModel, UnknownTool, Invalid."""
        check_metadata(new.metadata)
        named = {"chat_model": new.chat_model, "parse_model": new.parse_model}
        await self._check(who.project_id, named, new.tools, new.lifecycle)
        return await self._store.create(who.project_id, new, once, by=who.key_id)

    async def page(self, who: Principal, which: BranchFilter, part: Slice) -> Page[Branch]:
        """Branches of the project."""
        return await self._store.page(who.project_id, which, part)

    async def get(self, who: Principal, branch_id: UUID) -> Branch:
        """One branch. Raises NotFound."""
        return await self._store.get(who.project_id, branch_id)

    async def change(
        self, who: Principal, branch_id: UUID, changes: Mapping[str, Any], *, if_match: int | None
    ) -> Branch:
        """Set fields; `metadata` is merged.

        Whoever may run may govern a branch that is new, and only an admin one that is there: so no run gets
        rid of what it is governed by. Raises NotFound, Forbidden, PreconditionFailed, UnknownModel,
        UnknownTool.
        """
        if not changes.keys().isdisjoint((*POLICIES, "legal_hold")):
            who.need(Scope.ADMIN)
        named = {name: changes.get(name) for name in ("chat_model", "parse_model")}
        await self._check(who.project_id, named, changes.get("tools", True), changes.get("lifecycle"))
        return await self._store.change(who.project_id, branch_id, changes, if_match=if_match, by=who.key_id)

    async def delete(self, who: Principal, branch_id: UUID, *, if_match: int | None) -> None:
        """Remove a branch and all that happened on it.

        Raises NotFound, BranchBusy, LegalHold, PreconditionFailed.
        """
        await self._store.delete(who.project_id, branch_id, if_match=if_match)

    async def purge(self, who: Principal, branch_id: UUID, once: Once | None = None) -> Branch:
        """Remove all that happened on a branch, for good; its settings stay.

        What a lost process leaves of it is removed by the next housekeeping. Raises NotFound, BranchBusy,
        LegalHold.
        """
        purged = await self._store.purge(who.project_id, branch_id, by=who.key_id, once=once)
        while await self._store.forget_purged():
            pass
        return purged

    async def fork(
        self,
        who: Principal,
        branch_id: UUID,
        *,
        at_message: UUID | None,
        name: str | None,
        once: Once | None = None,
    ) -> Branch:
        """A copy of the branch up to a message. Raises NotFound, Invalid."""
        return await self._store.fork(
            who.project_id, branch_id, at_message=at_message, name=name, once=once, by=who.key_id
        )

    async def fork_run(
        self, who: Principal, point: ForkPoint, *, name: str | None, once: Once | None = None
    ) -> Branch:
        """A branch that begins with what was there at a moment of a run. Raises NotFound, Conflict."""
        return await self._store.fork_run(who.project_id, point, name=name, once=once, by=who.key_id)

    async def append(
        self, who: Principal, branch_id: UUID, said: Sequence[SaidMessage], once: Once | None = None
    ) -> Sequence[StoredMessage]:
        """Add messages to the conversation. Raises NotFound, BranchBusy."""
        return await self._store.append(who.project_id, branch_id, said, once)

    async def messages(
        self, who: Principal, branch_id: UUID, part: Slice, *, superseded: bool = False
    ) -> Page[StoredMessage]:
        """The conversation; with `superseded`, also what runs said that were rolled back. Raises NotFound."""
        return await self._store.messages(who.project_id, branch_id, part, superseded=superseded)

    async def _check(
        self,
        project_id: UUID,
        named: Mapping[str, str | None],
        tools: bool | Sequence[str],
        lifecycle: Mapping[str, Any] | None,
    ) -> None:
        wanted = {pointer(field): name for field, name in named.items() if name is not None}
        for index, name in enumerate((lifecycle or {}).get("fallbacks") or ()):
            wanted[pointer("lifecycle", "fallbacks", index)] = name
        unknown = [at for at, name in wanted.items() if not await self._models.exists(project_id, name)]
        if unknown:
            words = "no model of this name is registered in the project"
            raise UnknownModel(
                f"Register the model {wanted[unknown[0]]!r} first: POST /v1/models.",
                errors=[FieldError(at, words, UnknownModel.code) for at in unknown],
            )
        if isinstance(tools, bool) or not tools:
            return
        offered = await self._tools.tools(project_id)
        strangers = [index for index, name in enumerate(tools) if name not in offered]
        if strangers:
            words = "there is no tool of this name in the project"
            raise UnknownTool(
                f"The tool {tools[strangers[0]]!r} is unknown; GET /v1/tools lists those that exist.",
                errors=[FieldError(pointer("tools", i), words, UnknownTool.code) for i in strangers],
            )
