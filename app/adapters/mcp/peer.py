"""One MCP server as this process knows it: a session that is made when needed, and the list of its tools."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol
from uuid import UUID

import structlog

from app.adapters.mcp.answer import Answer
from app.adapters.mcp.headers import ServerHeaders
from app.adapters.mcp.listing import ListedTool, ListRefused, Page, specs_of, whole_list
from app.adapters.mcp.trouble import ENDING, Kind, Trouble
from app.core.mcp_server import McpServer
from app.ports.ambient import Clock
from app.ports.mcp import Standing, State
from app.ports.tool import ToolSpec

MOST_CALLS: Final = 100
"""Calls of one server that are under way at the same time; others wait for their turn."""
PAUSE_MS: Final = 1_000.0
MOST_PAUSE_MS: Final = 30_000.0
"""Pauses after a greeting or a reading that failed, each twice the one before, without another."""
GATHER_S: Final = 0.05
"""How long notices of a changed list are gathered before it is read once for all of them."""
LIST_EVERY_MS: Final = 1_000.0
"""A list is not read more often than this, whatever the server says of it."""
STALE_MS: Final = 300_000.0
"""After this a list is read again though nobody spoke of a change: a notice may have been lost."""
REFUSED_MS: Final = 30_000.0
"""The same of a list that could not be taken."""
READ_S: Final = 60.0
"""How long a list may take with all its pages."""
WAIT_S: Final = 10.0
"""How long whoever asks for the tools waits for a list that is being read."""

_LASTING: Final = frozenset({Kind.BLOCKED, Kind.NOT_CONFIGURED, Kind.NO_CREDENTIAL, Kind.UNREADABLE})
"""What does not pass by itself is told as it is, also while nobody is asked."""

_NO_LIST: Final = frozenset({Kind.INVALID, Kind.TOO_LARGE})
"""An answer came, and it is no list."""

log = structlog.get_logger("mcp")


class Link(Protocol):
    """What a peer needs of a session."""

    protocol: str

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""

    async def page(self, cursor: str | None) -> Page:
        """A page of the list. Raises Trouble."""

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Answer:
        """What a tool answers. Raises Trouble."""

    def retire(self) -> None:
        """End when nothing is under way any more."""

    async def aclose(self) -> None:
        """End now."""


Open = Callable[[McpServer, Callable[[], None]], Awaitable[Link]]
"""Opens a session; the second argument is to be told of changes of the list. Raises Trouble."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """The last greeting that came to nothing."""

    trouble: Trouble
    times: int
    """How many have failed in a row."""
    until_ms: float
    """Until then nobody is greeted."""


class Peer:
    """Calls a server's tools, and tells which there are."""

    def __init__(
        self, owner: UUID | None, server: McpServer, open: Open, headers: ServerHeaders, clock: Clock
    ) -> None:
        """`headers` are those that the sessions send, whose values nobody may read."""
        self._owner = owner
        self._server = server
        self._open = open
        self._headers = headers
        self._clock = clock
        self._room = asyncio.Semaphore(MOST_CALLS)
        self._link: Link | None = None
        self._retired: set[Link] = set()
        """Sessions that end with what is under way in them."""
        self._opening: asyncio.Task[Link] | None = None
        self._failure: _Failure | None = None
        self._specs: Mapping[str, ToolSpec] = {}
        self._standing = Standing()
        self._changed = True
        """Whether the list has to be read."""
        self._listed_ms: float | None = None
        self._reading: asyncio.Task[None] | None = None
        self._read_ms = -LIST_EVERY_MS
        """When it was tried to read the list."""
        self._unread = 0
        """How many readings have failed in a row."""

    @property
    def standing(self) -> Standing:
        """What is known now."""
        return self._standing

    async def aclose(self) -> None:
        """End the session, and what is under way in it."""
        for task in (self._reading, self._opening):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])
        links = self._retired | ({self._link} if self._link is not None else set())
        await asyncio.gather(*(link.aclose() for link in links))

    def retire(self) -> None:
        """End the session when nothing is under way in it any more."""
        if self._link is not None:
            self._lost(self._link)

    # Calls

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Answer:
        """What the tool answers, within the server's time for calls. Raises Trouble, TimeoutError.

        A call is made again, once, where the server has refused it for a session that it does not know. There
        is no secret in what it answers or raises that was sent as a header.
        """
        try:
            answer = await self._answer(tool, arguments)
        except Trouble as trouble:
            raise Trouble(trouble.kind, self._headers.told(trouble.words)) from None
        return self._headers.shown(answer)

    async def _answer(self, tool: str, arguments: Mapping[str, Any]) -> Answer:
        async with asyncio.timeout(self._server.call_ms / 1000), self._room:
            link = await self._linked()
            try:
                return await self._asked(link, tool, arguments)
            except Trouble as trouble:
                if trouble.kind is not Kind.SESSION_LOST:
                    raise
            return await self._asked(await self._linked(), tool, arguments)

    async def _asked(self, link: Link, tool: str, arguments: Mapping[str, Any]) -> Answer:
        try:
            return await link.call(tool, arguments)
        except Trouble as trouble:
            if trouble.kind in ENDING:
                self._lost(link)
            raise

    # The session

    async def _linked(self) -> Link:
        """The session, made if there is none; all who need one wait for the same. Raises Trouble."""
        if self._link is not None and self._link.alive:
            return self._link
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._opened())
        return await asyncio.shield(self._opening)

    async def _opened(self) -> Link:
        failure = self._failure
        if failure is not None and (left_ms := failure.until_ms - self._clock.mono_ms()) > 0:
            words = f"the server is not asked for another {left_ms / 1000:.1f} s: {failure.trouble.words}"
            raise Trouble(failure.trouble.kind if failure.trouble.kind in _LASTING else Kind.DOWN, words)
        try:
            link = await self._open(self._server, self._told_of_change)
        except Trouble as trouble:
            times = 1 if failure is None else failure.times + 1
            self._failure = _Failure(trouble, times, self._clock.mono_ms() + _pause_ms(times))
            self._changed = True  # Whoever comes next asks for the list, and so finds out that it is back.
            self._stands("unavailable", trouble.words)
            raise
        self._failure, self._link, self._unread = None, link, 0
        self._told_of_change()  # Another session may be one with another list.
        return link

    def _lost(self, link: Link) -> None:
        """A session that is no good any more; those who are in the middle of a call keep it."""
        link.retire()
        self._retired = {each for each in self._retired if each.alive} | {link}
        if self._link is link:
            self._link = None

    # The list

    async def tools(self) -> Mapping[str, ToolSpec]:
        """What is offered, the same object until that changes.

        Waits for a list that is known to be old, but for no server that was away the last time.
        """
        reading = self._reading is not None and not self._reading.done()
        if not (self._changed or reading):
            if self._is_stale:
                self._told_of_change()
            return self._specs
        if reading or self._clock.mono_ms() >= self._read_ms + _pause_ms(self._unread):
            self._read_soon()
            if self._failure is None and not self._unread and self._reading is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(WAIT_S):
                        await asyncio.wait([self._reading])
        return self._specs

    @property
    def _is_stale(self) -> bool:
        limit_ms = REFUSED_MS if self._standing.state == "refused" else STALE_MS
        return self._clock.mono_ms() - (self._listed_ms or 0.0) > limit_ms

    def _told_of_change(self) -> None:
        self._changed = True
        self._read_soon()

    def _read_soon(self) -> None:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        """Read the list once for all that was said of it until now."""
        since_ms = self._clock.mono_ms() - self._read_ms
        if self._listed_ms is not None:
            await asyncio.sleep(max(GATHER_S, (LIST_EVERY_MS - since_ms) / 1000))
        try:
            async with asyncio.timeout(READ_S):
                specs = specs_of(self._owner, self._server, await self._whole_list())
        except ListRefused as refused:
            self._takes({}, "refused", str(refused))
        except (Trouble, TimeoutError) as trouble:
            if isinstance(trouble, Trouble) and trouble.kind in _NO_LIST:
                self._takes({}, "refused", trouble.words)
                return
            self._changed = True
            self._unread += 1
            if self._failure is None:  # Else it is known since the greeting.
                self._stands("unavailable", str(trouble) or "the list did not come in time")
        else:
            self._takes(specs, "ready", None)
        finally:
            self._read_ms = self._clock.mono_ms()

    async def _whole_list(self) -> Sequence[ListedTool]:
        link = await self._linked()
        self._changed = False  # What changes from here on may be in this list, or not.
        try:
            return await whole_list(link.page)
        except Trouble as trouble:
            if trouble.kind in ENDING:
                self._lost(link)
            if trouble.kind is not Kind.SESSION_LOST:
                raise
        return await whole_list((await self._linked()).page)

    def _takes(self, specs: Mapping[str, ToolSpec], state: State, reason: str | None) -> None:
        self._specs, self._unread = specs, 0
        self._listed_ms = self._clock.mono_ms()
        self._stands(state, reason)

    def _stands(self, state: State, reason: str | None) -> None:
        if reason is not None:
            reason = self._headers.told(reason)
            log.warning("an MCP server cannot be used", server=self._server.name, state=state, reason=reason)
        names: dict[str, str] | None = None
        listed_at_ms: float | None = None
        if self._listed_ms is not None:
            names = {name: spec.origin["tool"] for name, spec in self._specs.items() if spec.origin}
            listed_at_ms = self._clock.wall_ms() - (self._clock.mono_ms() - self._listed_ms)
        protocol = None if self._link is None else self._link.protocol
        self._standing = Standing(state, reason, names, protocol, listed_at_ms)


def _pause_ms(times: int) -> float:
    return min(PAUSE_MS * 2 ** (min(times, 10) - 1), MOST_PAUSE_MS) if times else 0.0
