"""Hooks of a project or a branch: which address is told of calls, and when."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from app.core.governance.permissions import Pattern
from app.core.governance.remote import PolicyBody, Remote

MAX_HOOKS: Final = 32


class Hook(PolicyBody):
    """One address, told of the calls of some tools at one point."""

    point: Literal["TOOL_PRE", "TOOL_POST", "TOOL_ERROR"]
    tool: Pattern = Field("*", description="A pattern of names.")
    http: Remote


Hooks = Annotated[list[Hook], Field(max_length=MAX_HOOKS)]
