"""Calls to be judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from app.core.action.normalize import digest
from app.core.governance.decision import BranchFacts, CallContext, KeyFacts, ProjectFacts

ID = UUID("019a0000-0000-7000-8000-000000000001")


def call(function: str = "rm", arguments: Mapping[str, Any] | None = None, **facts: Any) -> CallContext:
    """A call of `function`; `facts` take the place of the context's others."""
    arguments = arguments or {}
    given: dict[str, Any] = {
        "digest": digest(arguments),
        "call_id": ID,
        "branch": BranchFacts(ID, "support", {"tier": "gold"}),
        "project": ProjectFacts(ID, "shop"),
        "key": KeyFacts(ID, "web", ["read", "run"]),
        **facts,
    }
    return CallContext(function, arguments, **given)
