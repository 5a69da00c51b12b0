"""A branch's conversation as prompts need it; what was retold once is not retold in the next turn."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple
from uuid import UUID

from pydantic_core import from_json

from app.core.messages import ROLES, Message, MessageKind, read_content
from app.core.operate.transcript import Retold, Transcript

MESSAGE_BYTES = 500
"""What a message takes beside its text: objects of ours, of the prompt's and of the wire's."""
TEXTS = 4
"""How often its text is kept at most: as stored, in the prompt (twice what is not ASCII), and as sent."""


class RawMessage(NamedTuple):
    """A message as it is stored, read when a prompt needs it."""

    id: UUID
    kind: str
    content: bytes
    """JSON text."""

    @property
    def begins(self) -> bool:
        """Whether models are shown the conversation from here on only."""
        # Looked for before it is read: few instructions have it, and all are asked.
        return (
            self.kind == MessageKind.INSTRUCTION
            and b'"begins"' in self.content
            and bool(from_json(self.content).get("begins"))
        )

    @property
    def is_action(self) -> bool:
        """Whether it is a tool call or the end of one."""
        return ROLES[MessageKind(self.kind)] == "action"

    def read(self) -> Message:
        """The message itself. Raises ValueError or KeyError for what is none."""
        return Message(self.id, read_content(self.kind, from_json(self.content)))


class History:
    """A conversation up to some point: it never changes, and a longer one is made of it.

    What its prompts have in common with all later ones is kept, and handed on to the longer one.
    """

    __slots__ = ("_retold", "_size", "_start", "said")

    def __init__(self, said: Sequence[RawMessage] = ()) -> None:
        """`said` is the conversation in order, without the branch's system message."""
        self.said: Sequence[RawMessage] = tuple(said)
        self._start = _last_begin(self.said)
        self._size = _size(self.said)
        self._retold: dict[bool, tuple[int, Retold]] = {}

    @property
    def size(self) -> int:
        """Bytes of memory that it takes, about, once a prompt was made of it."""
        return self._size * max(1, len(self._retold))

    def grown(self, said: Sequence[RawMessage]) -> History:
        """The conversation with more at its end."""
        longer = History()
        longer.said = (*self.said, *said)
        longer._size = self._size + _size(said)
        longer._start = self._start
        if start := _last_begin(said, len(self.said)):
            longer._start = start
        else:
            longer._retold = dict(self._retold)
        return longer

    def only(self, ids: Collection[UUID]) -> History:
        """These messages alone, in the order of the conversation, wherever it last began anew."""
        chosen = History()
        chosen.said = tuple(raw for raw in self.said if raw.id in ids)
        chosen._size = _size(chosen.said)
        return chosen

    def pairs(self) -> dict[UUID, UUID]:
        """From each half of a tool call to the other."""
        found: dict[UUID, UUID] = {}
        for raw in self.said:
            if raw.kind == MessageKind.ACTION_RESPONSE:
                request = UUID(from_json(raw.content)["action_request_id"])
                found[raw.id], found[request] = request, raw.id
        return found

    def transcript(self, *, native: bool) -> Transcript:
        """All of it since it last began anew, for something to be said after it."""
        count, retold = self._retold.get(native, (self._start, Retold()))
        fast = self._standing_fast()
        if fast > count:
            transcript = Transcript(native=native, after=retold)
            transcript.replay([raw.read() for raw in self.said[count:fast]])
            count, retold = self._retold[native] = fast, transcript.so_far()
        transcript = Transcript(native=native, after=retold)
        transcript.replay([raw.read() for raw in self.said[count:]])
        return transcript

    def _standing_fast(self) -> int:
        """How many messages are shown alike whatever follows; calls may still join the last answer's."""
        end = len(self.said)
        while end and self.said[end - 1].is_action:
            end -= 1
        if end and self.said[end - 1].kind == MessageKind.ASSISTANT_RESPONSE:
            end -= 1
        return end


def _last_begin(said: Sequence[RawMessage], first: int = 0) -> int:
    """Where the conversation last began anew, counted from `first` on; 0 if it did not."""
    for place in range(len(said) - 1, -1, -1):
        if said[place].begins:
            return first + place
    return 0


def _size(said: Sequence[RawMessage]) -> int:
    return sum(TEXTS * len(raw.content) + MESSAGE_BYTES for raw in said)
