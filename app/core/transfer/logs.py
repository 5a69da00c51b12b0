"""Hold a log that comes from outside to what every log of ours is: whole, in order, and fit to be shown."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final
from uuid import UUID

from app.core.callbacks import STORED
from app.core.events import by_code
from app.core.events.run import RunCancelled, RunCompleted, RunExpired, RunFailed
from app.core.json_text import dumps
from app.core.moments.moment import Moment
from app.core.partial.log import PartialLog
from app.core.partial.places import Place
from app.core.partial.wanted import place_wanted
from app.core.record import REFERRING, Entry, EventEntry, Reader, TokenBlock
from app.core.texts import references
from app.core.transfer.lines import MOST_GROWN, EventLine, RunLine, TokensLine

_STATUS: Final = {
    RunCompleted.code: "completed",
    RunFailed.code: "failed",
    RunCancelled.code: "cancelled",
    RunExpired.code: "expired",
}
_MOST_DIGITS: Final = 10


class LogCheck:
    """The log of one run, entry by entry. What is wrong is raised as ValueError, with words for a person."""

    def __init__(self, run: RunLine, branch_id: UUID | None) -> None:
        self._run = run
        context = None if run.context is None else dumps(run.context).decode()
        self._events, self._callbacks = (Reader(run.id, branch_id, context) for _ in range(2))
        self._partial = PartialLog(run.id, _place(run))
        self._moment = Moment()
        self._last = self._ts = 0
        self._ended = False

    def take(self, line: EventLine | TokensLine) -> Entry:
        """The next entry, if it is one that can come next."""
        if line.seq != self._last + 1:
            raise ValueError(f"the log goes on with number {self._last + 1}, not {line.seq}")
        if self._ended:
            raise ValueError("nothing comes after the event that ends a run")
        entry = _tokens(line) if isinstance(line, TokensLine) else _event(line)
        if entry.last_seq > self._run.last_seq:
            raise ValueError(f"the run says that its last event is number {self._run.last_seq}")
        if entry.ts < self._ts:
            raise ValueError("the times of a log never go back")
        self._ts = entry.ts + (sum(entry.delays) if isinstance(entry, TokenBlock) else 0)
        if isinstance(entry, EventEntry) and entry.code in _STATUS:
            self._ended = True
            if _STATUS[entry.code] != self._run.status:
                raise ValueError(f"the event ends the run otherwise than as {self._run.status}")
        self._show(entry)
        self._last = entry.last_seq
        return entry

    def end(self) -> None:
        """There is no more of it: a log is whole, or there is nothing of it."""
        if self._last and (self._last != self._run.last_seq or not self._ended):
            raise ValueError(
                f"the log ends with number {self._last}; it has to end with the run's last event"
            )
        for call in self._moment.calls:
            if call.call_id is not None and not _is_id(call.call_id):
                raise ValueError("the callId of a tool call is a UUID")

    def _show(self, entry: Entry) -> None:
        """Whatever a reader may ask for has to be there: what cannot be shown is not taken."""
        views: tuple[Iterable[object], ...] = (
            self._events.events([entry]),
            self._callbacks.callbacks([entry]),
            self._partial.frames([entry]),
        )
        try:
            for view in views:
                for _ in view:
                    pass
            self._moment.take([entry])
        except Exception as error:
            raise ValueError(f"the event cannot be shown: {type(error).__name__}") from error
        position = self._moment.position
        if position is not None and not (type(position) is int and 0 <= position <= MOST_GROWN):
            raise ValueError("the position of a RUN_STARTED is one of the conversation")


def _is_id(text: object) -> bool:
    try:
        return isinstance(text, str) and UUID(text) is not None
    except ValueError:
        return False


def _event(line: EventLine) -> EventEntry:
    if len({line.stream is None, line.attempt is None, line.fallback is None}) != 1:
        raise ValueError("stream, attempt and fallback go together")
    for callback in line.callbacks or ():
        if callback.keys() != {"name", "args"} or callback["name"] not in STORED:
            raise ValueError(f"a callback is a name and its args, the name one of {', '.join(STORED)}")
        if not isinstance(callback["args"], list):
            raise ValueError("the args of a callback are a list")
    try:
        entry = line.entry()
    except KeyError:
        raise ValueError(f"this version knows no event type {line.type[:100]!r}") from None
    if line.type == "TOKEN":
        raise ValueError("TOKEN events come in a line of tokens")
    lacking = [name for name in by_code(entry.code).required() if name not in (line.meta or {})]
    if lacking:
        raise ValueError(f"the meta of a {line.type} has a member {lacking[0]}")
    if entry.code in REFERRING:
        for text in (entry.meta or "", entry.callbacks or ""):
            for digits in references(text):
                if max(map(len, digits)) > _MOST_DIGITS or not int(digits[0]) <= int(digits[1]) < entry.seq:
                    raise ValueError("a reference leads to a text that does not come before it")
    return entry


def _tokens(line: TokensLine) -> TokenBlock:
    if len(line.delays) != len(line.texts) or line.delays[0]:
        raise ValueError("there is one delay for each text, and the first is 0")
    return line.entry()


def _place(run: RunLine) -> Place | None:
    """What a partial view of it goes by; none where the request is not one of this version."""
    if run.kind != "operate":
        return None
    with suppress(Exception):
        return place_wanted(run.request)
    return None
