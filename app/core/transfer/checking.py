"""Hold the lines of an export, section by section, to what they have to be before anything is stored."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Final
from uuid import UUID

from pydantic_core import to_jsonable_python

from app.core.json_text import dumps
from app.core.messages import MessageKind, read_content
from app.core.operate.history import History, RawMessage
from app.core.record import Entry
from app.core.transfer.lines import (
    ApprovalLine,
    AttemptLine,
    BranchLine,
    CallLine,
    ClientCallLine,
    EndLine,
    EventLine,
    Line,
    MessageLine,
    RunLine,
    TokensLine,
)
from app.core.transfer.logs import LogCheck
from app.core.usage.totals import Totals

YEAR_MS: Final = 365 * 24 * 3600 * 1000
OLDEST_MS: Final = 10 * YEAR_MS
AHEAD_MS: Final = 24 * 3600 * 1000
"""How old a run may be, and how far ahead of our clock: each week of runs has tables of its own."""


class Broken(ValueError):
    """A line cannot be taken; `member` is where it is wrong, None for the line as a whole."""

    def __init__(self, words: str, member: str | None = None) -> None:
        super().__init__(words)
        self.words = words
        self.member = member


class SectionCheck:
    """One branch with everything on it, or one run without a branch.

    Of what has passed, ids are remembered, and nothing else.
    """

    def __init__(self, first: BranchLine | RunLine, *, now_ms: int) -> None:
        self._between = now_ms - OLDEST_MS, now_ms + AHEAD_MS
        self._branch = first if isinstance(first, BranchLine) else None
        self._lines = 0
        self._ids: set[UUID] = set()
        self._open: dict[UUID, bool] = {}
        """Action requests that no response has come for yet, and whether they are superseded."""
        self._requests: set[UUID] = set()
        self._position = -2
        self._system: str | None = None
        self._calls: set[UUID] = set()
        """Function calls of the run that is being read."""
        self._log: LogCheck | None = None

    def take(self, line: Line) -> Entry | None:
        """The next line; of one of the log its entry. Raises Broken."""
        self._lines += 1
        match line:
            case BranchLine() if self._lines == 1:
                return None
            case MessageLine() if self._branch is not None and self._log is None:
                self._message(line)
            case RunLine() if self._branch is not None or self._lines == 1:
                self._run(line)
            case CallLine() if self._log is not None:
                self._call(line)
            case ApprovalLine() | ClientCallLine() if self._log is not None:
                if line.function_call_id not in self._calls:
                    raise Broken("the run has no such function call", "function_call_id")
            case AttemptLine() if self._log is not None:
                pass
            case EventLine() | TokensLine() if self._log is not None:
                try:
                    return self._log.take(line)
                except ValueError as error:
                    raise Broken(str(error)) from error
            case _:
                raise Broken("a line of this kind cannot come here", "object")
        return None

    def end(self, line: EndLine) -> None:
        """The section is over. Raises Broken."""
        self._end_log()
        if line.lines != self._lines:
            raise Broken(f"the section has {self._lines} lines, not {line.lines}: some are missing", "lines")
        if self._open:
            raise Broken("an action request has no response")
        if self._branch is not None:
            if self._branch.next_position <= self._position:
                raise Broken("the branch's next position is taken")
            if self._branch.system != self._system:
                raise Broken("the branch's system text and its system message differ")

    def _new(self, id: UUID) -> None:
        if id in self._ids:
            raise Broken("the id stands twice", "id")
        self._ids.add(id)

    def _message(self, line: MessageLine) -> None:
        self._new(line.id)
        if line.position <= self._position:
            raise Broken("messages come in the order of their positions", "position")
        self._position = line.position
        _check_standing(line)
        _check_content(line)
        request = line.action_request_id
        kind = MessageKind(line.kind)
        if (request is not None) != (kind is MessageKind.ACTION_RESPONSE):
            raise Broken("a response names its request, and nothing else does", "action_request_id")
        if kind is MessageKind.ACTION_REQUEST:
            self._open[line.id] = line.superseded
            self._requests.add(line.id)
        elif request is not None:
            if request not in self._open:
                raise Broken("no action request before it waits for a response", "action_request_id")
            if line.content["action_request_id"] != str(request):
                raise Broken("the content names another request", "content")
            if self._open.pop(request) is not line.superseded:
                raise Broken("a response is superseded with its request, or neither is", "superseded")
        elif kind is MessageKind.SYSTEM:
            if self._system is not None:
                raise Broken("a branch has one system message at most", "kind")
            self._system = line.content["text"]

    def _run(self, line: RunLine) -> None:
        self._end_log()
        self._new(line.id)
        if line.id.version != 7 or not self._between[0] <= line.id.int >> 80 <= self._between[1]:
            raise Broken("the id of a run is a UUIDv7 of the time at which it was created", "id")
        try:
            totals = Totals.of(line.usage)
            dumps([totals.counts(), totals.cost(), totals.attempts + totals.unpriced])
        except Exception:
            raise Broken("it is no usage of a run", "usage") from None
        if line.error is not None and not isinstance(line.error.get("code"), str):
            raise Broken("an error has a code", "error")
        self._calls = set()
        self._log = LogCheck(line, self._branch.id if self._branch else None)

    def _call(self, line: CallLine) -> None:
        self._new(line.id)
        if line.action_request_id not in self._requests:
            raise Broken("the branch has no such action request", "action_request_id")
        self._calls.add(line.id)

    def _end_log(self) -> None:
        if self._log is not None:
            try:
                self._log.end()
            except ValueError as error:
                raise Broken(str(error)) from error


_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    **dict.fromkeys(("text", "function", "action_request_id", "image_detail"), str),
    **dict.fromkeys(("reasoning", "error", "provider_call_id"), (str, NoneType)),
    **dict.fromkeys(("images", "tool_calls"), list),
    **dict.fromkeys(("begins", "output_truncated"), bool),
    **dict.fromkeys(("provided", "opaque"), dict),
    "response_format": (dict, NoneType),
}
"""What members of contents are; those that are not listed are any JSON."""


def _check_standing(line: MessageLine) -> None:
    """Where it stands in the conversation, and whether it still does."""
    system = MessageKind(line.kind) is MessageKind.SYSTEM
    if line.position < 0 and not system:
        raise Broken("only a system message comes before position 0", "position")
    if line.superseded and (system or line.run_id is None):
        raise Broken("only what a run said is superseded", "superseded")


def _check_content(line: MessageLine) -> None:
    """What prompts are made of is read once here, and has to come out as it went in."""
    try:
        stored = dumps(line.content)
        content = read_content(line.kind, line.content)
        wire = to_jsonable_python(content.wire())
        if MessageKind(line.kind) is MessageKind.ACTION_REQUEST:
            wire.pop("action_response_id")
        fits = all(
            wire[name] == value and isinstance(value, _TYPES.get(name, object))
            for name, value in line.content.items()
        )
        History([RawMessage(line.id, line.kind, stored)]).transcript(native=False)
    except Exception:
        fits = False
    if not fits:
        raise Broken(f"it is no content of a message of the kind {line.kind}", "content")
