"""Put characters together that a server cut into two halves of a surrogate pair.

Servers that count UTF-16 units cut there and write each half as an escape of its own, which strict JSON
parsers refuse.
"""

from __future__ import annotations


class Halves:
    """Keeps, per channel, the first half that ended a piece until the second comes."""

    def __init__(self) -> None:
        self._waiting: dict[object, str] = {}

    def whole(self, channel: object, piece: str) -> str:
        """`piece` with the half that was waiting, without one that must wait; a half alone becomes U+FFFD."""
        piece = self._waiting.pop(channel, "") + piece
        if "\ud800" <= piece[-1:] <= "\udbff":
            self._waiting[channel] = piece[-1]
            piece = piece[:-1]
        return piece.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
