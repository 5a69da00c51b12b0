"""How large one answer of a model may be, whatever it comes by."""

from __future__ import annotations

from typing import Final

from app.core.faults import Fault, FaultKind, ProviderError

MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024
"""The most of one answer that is read, stream or whole: it is held in memory, and stored as one value."""


class AnswerSize:
    """Counts the bytes of one answer."""

    def __init__(self, most: int) -> None:
        """`most` is in bytes."""
        self._most = self._left = most

    def counted(self, piece: bytes) -> bytes:
        """The piece. Raises `ProviderError` once more has come than is taken."""
        self._left -= len(piece)
        if self._left < 0:
            words = f"the answer is longer than {self._most} bytes"
            raise ProviderError(Fault(FaultKind.MALFORMED, words, type="too_large"))
        return piece
