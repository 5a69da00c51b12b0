"""How one answer is had of a model: as it comes, or collected from all the messages that it takes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from typing import Any, Final, Protocol

from app.core.chunks import Chunk, KeepAlive, MessageBreak, TextDelta
from app.core.operate.middle import MiddleName
from app.ports.provider import Held, Opening, Provider

BETWEEN: Final = "\n\n"
"""What stands between two messages of one answer: a blank line."""


class Middle(Protocol):
    """One logical exchange with a model, whatever happens below it.

    It gives one answer: one text, and one end. What follows from the answer is not its business: it runs no
    tool, keeps no message and asks no model twice. `tests/contracts/test_middle.py` holds what every one of
    them has to keep.
    """

    name: MiddleName
    """What `middle` of a request says."""

    def open(
        self, provider: Provider, opening: Opening
    ) -> AbstractAsyncContextManager[AsyncIterator[Sequence[Chunk]]]:
        """Ask, and give the answer as it comes; the contract is that of `ports.provider.Provider.open`."""


class Communicate:
    """A request and its answer, which is one message."""

    name: MiddleName = "communicate"

    def open(
        self, provider: Provider, opening: Opening
    ) -> AbstractAsyncContextManager[AsyncIterator[Sequence[Chunk]]]:
        """See `Middle.open`; nothing stands between the provider and its reader."""
        return provider.open(opening)


class RunAndCollect:
    """A model that works by itself until it is done: the texts of all its messages are the answer."""

    name: MiddleName = "run_and_collect"

    def open(
        self, provider: Provider, opening: Opening
    ) -> AbstractAsyncContextManager[AsyncIterator[Sequence[Chunk]]]:
        """See `Middle.open`; a blank line stands between two messages that have a text."""
        return _Collecting(provider.open(opening))


class _Collecting(AbstractAsyncContextManager[AsyncIterator[Sequence[Chunk]]], Held):
    """A stream whose messages are made one; it has to be let in where the stream has (`Held`)."""

    def __init__(self, stream: AbstractAsyncContextManager[AsyncIterator[Sequence[Chunk]]]) -> None:
        self._stream = stream
        self._open = AsyncExitStack()

    async def admitted(self) -> None:
        """See `ports.provider.Held`."""
        if isinstance(self._stream, Held):
            await self._stream.admitted()

    async def __aenter__(self) -> AsyncIterator[Sequence[Chunk]]:
        batches = await self._open.enter_async_context(self._stream)
        return await self._open.enter_async_context(aclosing(_collected(batches)))

    async def __aexit__(self, *failure: Any) -> bool | None:
        return await self._open.__aexit__(*failure)


async def _collected(batches: AsyncIterator[Sequence[Chunk]]) -> AsyncGenerator[Sequence[Chunk], None]:
    texts = _Texts()
    async for batch in batches:
        yield list(texts.take(batch))


class _Texts:
    """Makes one text of several."""

    def __init__(self) -> None:
        self._said = False
        """Whether there is a text already."""
        self._owed = False
        """Whether another message has begun since."""

    def take(self, batch: Sequence[Chunk]) -> Iterator[Chunk]:
        """The same, without breaks."""
        for chunk in batch:
            if type(chunk) is MessageBreak:
                self._owed = self._said
                yield KeepAlive()
            elif type(chunk) is TextDelta and chunk.text:
                yield TextDelta(BETWEEN + chunk.text) if self._owed else chunk
                self._said, self._owed = True, False
            else:
                yield chunk


_ALL: Final[tuple[Middle, ...]] = (Communicate(), RunAndCollect())

MIDDLES: Final[Mapping[MiddleName, Middle]] = {middle.name: middle for middle in _ALL}
"""Every middle by name; which of them a model is asked by is decided in `core/operate/middle.py`."""
