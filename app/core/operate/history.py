"""A branch's conversation as prompts need it; what was retold once is not retold in the next turn."""

from __future__ import annotations

from collections.abc import Sequence
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

    __slots__ = ("_retold", "_size", "said")

    def __init__(self, said: Sequence[RawMessage] = ()) -> None:
        """`said` is the conversation in order, without the branch's system message."""
        self.said: Sequence[RawMessage] = tuple(said)
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
        longer._retold = dict(self._retold)
        return longer

    def transcript(self, *, native: bool) -> Transcript:
        """All of it, for something to be said after it."""
        count, retold = self._retold.get(native, (0, Retold()))
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


def _size(said: Sequence[RawMessage]) -> int:
    return sum(TEXTS * len(raw.content) + MESSAGE_BYTES for raw in said)
