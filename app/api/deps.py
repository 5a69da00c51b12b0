"""What routes are given: the services, the one who asks, and what the headers say."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request
from prometheus_client import CollectorRegistry

from app.api.problems import STANDINGS
from app.core.access import Principal, Scope
from app.ports.ambient import IdSource
from app.ports.replies import Replies
from app.services.approvals import Approvals
from app.services.branches import Branches
from app.services.client_calls import ClientCalls
from app.services.credentials import Credentials
from app.services.decisions import Choices
from app.services.keys import Gatekeeper, Keys
from app.services.limits import Limits
from app.services.mcp_servers import McpServers
from app.services.models import Models
from app.services.projects import Projects
from app.services.tools import Tools
from app.services.webhooks import Webhooks

Check = Callable[[], Awaitable[str | None]]
"""Tells what is wrong, or None."""


@dataclass(frozen=True, slots=True)
class Edge:
    """How the server faces the network."""

    development: bool = False
    """Requests need no key, and only pages of this machine may make them."""
    cors_origins: tuple[str, ...] = ()
    body_bytes: int = 4 * 1024 * 1024
    json_depth: int = 64
    version: str = "0"


@dataclass(slots=True)
class Services:
    """Everything that routes call."""

    ids: IdSource
    gatekeeper: Gatekeeper
    keys: Keys
    projects: Projects
    branches: Branches
    models: Models
    tools: Tools
    mcp_servers: McpServers
    webhooks: Webhooks
    approvals: Approvals
    client_calls: ClientCalls
    credentials: Credentials
    limits: Limits
    replies: Replies
    choices: Choices | None = None
    """What lifecycles may choose; None checks their form alone."""
    guardrails: Mapping[str, str] = field(default_factory=dict)
    """What the guardrails of plug-ins are for, by name."""
    edge: Edge = field(default_factory=Edge)
    readiness: Mapping[str, Check] = field(default_factory=dict)
    """What has to hold for /readyz, by name."""
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    """What /metrics shows."""


async def services_of(request: Request) -> Services:
    """The services of the application."""
    found: Services = request.app.state.services
    return found


async def principal_of(request: Request) -> Principal:
    """Who asks. Raises Unauthenticated."""
    found: Services = request.app.state.services
    return await found.gatekeeper.principal(request.headers.get("authorization"))


class Requires:
    """A dependency that gives the principal if its key has the scope."""

    def __init__(self, scope: Scope | None, *, counted: bool = True) -> None:
        """`counted` requests are held to the limits of the key and its project."""
        self.scope = scope
        self.counted = counted

    async def __call__(self, request: Request) -> Principal:
        """Raises Unauthenticated, Forbidden, RequestLimitReached."""
        who = await principal_of(request)
        if who.quotas and self.counted:
            await _count(request, who)
        if self.scope is not None:
            who.need(self.scope)
        return who


async def _count(request: Request, who: Principal) -> None:
    limits: Limits = request.app.state.services.limits
    # The answer tells where they stand, whatever becomes of the request.
    request.scope[STANDINGS] = await limits.admit(who)


def requires(scope: Scope | None, *, counted: bool = True) -> Any:
    """`who: Annotated[Principal, requires(Scope.RUN)]`; None asks for any valid key."""
    return Depends(Requires(scope, counted=counted))


Serving = Annotated[Services, Depends(services_of)]
Anyone = Annotated[Principal, requires(None)]
Uncounted = Annotated[Principal, requires(None, counted=False)]
"""Anyone, even when the requests of the minute are used up."""
Reader = Annotated[Principal, requires(Scope.READ)]
Runner = Annotated[Principal, requires(Scope.RUN)]
Approver = Annotated[Principal, requires(Scope.APPROVE)]
Admin = Annotated[Principal, requires(Scope.ADMIN)]

_ETAG = re.compile(r'"([0-9]{1,9})"')
_NO_VERSION = 0
"""Versions begin with 1."""


async def if_match_of(request: Request) -> int | None:
    """The branch version that If-Match names; None when any will do.

    A header that is no ETag of ours names a version that no branch has: so it fails where an old one would,
    after everything else about the request was found to be right.
    """
    header = request.headers.get("if-match")
    if header is None or header.strip() == "*":
        return None
    found = _ETAG.fullmatch(header.strip())
    return int(found[1]) if found else _NO_VERSION


IfMatch = Annotated[int | None, Depends(if_match_of)]


def etag(version: int) -> str:
    """The ETag of a version."""
    return f'"{version}"'
