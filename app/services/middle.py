"""How one answer is had of a model: as it comes, or collected from all the messages that it takes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from types import TracebackType
from typing import Final, Protocol

from app.core.chunks import Chunk, KeepAlive, MessageBreak, TextDelta
from app.core.operate.middle import MiddleName
from app.ports.provider import Held, Opening, Provider

BETWEEN: Final = "\n\n"
"""What stands between two messages of one answer: a blank line."""

_Stream = AbstractAsyncContextManager[AsyncIterator[Sequence[Chunk]]]


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
        stream = provider.open(opening)
        collecting = _collecting(stream)
        return _HeldCollecting(stream, collecting) if isinstance(stream, Held) else collecting


@asynccontextmanager
async def _collecting(stream: _Stream) -> AsyncIterator[AsyncIterator[Sequence[Chunk]]]:
    async with stream as batches, aclosing(_collected(batches)) as answer:
        yield answer


class _HeldCollecting(AbstractAsyncContextManager[AsyncIterator[Sequence[Chunk]]]):
    """What is collected from a stream that has to be let in, which is to be seen from outside too."""

    def __init__(self, stream: Held, collecting: _Stream) -> None:
        self.admitted = stream.admitted
        self._collecting = collecting

    async def __aenter__(self) -> AsyncIterator[Sequence[Chunk]]:
        return await self._collecting.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._collecting.__aexit__(kind, failure, trace)


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
