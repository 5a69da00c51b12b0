"""Decode `application/vnd.amazon.eventstream`, in whatever pieces it comes.

A frame is its length, the length of its headers, a checksum of these eight bytes, headers, payload, and a
checksum of everything before it; all numbers are big-endian, both checksums CRC-32.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from zlib import crc32

_PRELUDE: Final = struct.Struct(">III")
_CHECKSUM: Final = struct.Struct(">I")
_LEAST: Final = _PRELUDE.size + _CHECKSUM.size

_SIZES: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Bytes of a header's value, by its type: true, false, integers, a time, a UUID."""
_OF_ITS_OWN_SIZE: Final = (6, 7)
"""Bytes and strings, which two bytes of length go before."""


class BadFrame(Exception):
    """The bytes are no frames, or were changed on their way."""


class FrameTooLarge(Exception):
    """A frame is longer than is taken."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message of the stream."""

    headers: Mapping[str, str]
    """Those that are strings, by their names."""
    payload: bytes


class FrameDecoder:
    """Takes bytes, and gives the frames that are whole; costs what comes, whatever waits."""

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes` bounds a frame."""
        self._max = max_bytes
        self._buffer = bytearray()

    @property
    def waiting(self) -> bool:
        """Whether a frame has begun that is not whole."""
        return bool(self._buffer)

    def feed(self, piece: bytes) -> Iterator[Frame]:
        """The frames that end in this piece. Raises `BadFrame` and `FrameTooLarge`, after those before."""
        self._buffer += piece
        start = 0
        try:
            while (end := self._end(start)) is not None:
                yield _frame(bytes(self._buffer[start:end]))
                start = end
        finally:
            del self._buffer[:start]

    def _end(self, start: int) -> int | None:
        """Where the frame that begins at `start` ends; None while it is not whole."""
        if len(self._buffer) - start < _PRELUDE.size:
            return None
        length, headers, checksum = _PRELUDE.unpack_from(self._buffer, start)
        if crc32(self._buffer[start : start + 8]) != checksum:
            raise BadFrame("the checksum of a frame's beginning is wrong")
        if not _LEAST + headers <= length:
            raise BadFrame("the lengths of a frame contradict each other")
        if length > self._max:
            raise FrameTooLarge(f"an event is longer than {self._max} bytes")
        return start + length if len(self._buffer) - start >= length else None


def _frame(raw: bytes) -> Frame:
    (checksum,) = _CHECKSUM.unpack(raw[-_CHECKSUM.size :])
    if crc32(raw[: -_CHECKSUM.size]) != checksum:
        raise BadFrame("the checksum of a frame is wrong")
    (size,) = _CHECKSUM.unpack_from(raw, 4)
    end = _PRELUDE.size + size
    return Frame(_headers(raw[_PRELUDE.size : end]), raw[end : -_CHECKSUM.size])


def _headers(raw: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    try:
        while at < len(raw):
            name = raw[at + 1 : at + 1 + raw[at]].decode()
            at += 1 + raw[at]
            kind = raw[at]
            at += 1
            if kind in _OF_ITS_OWN_SIZE:
                size = int.from_bytes(raw[at : at + 2])
                at += 2
            else:
                size = _SIZES[kind]
            if at + size > len(raw):
                raise BadFrame("a header is longer than the headers")
            if kind == 7:
                found[name] = raw[at : at + size].decode()
            at += size
    except (KeyError, IndexError, UnicodeDecodeError):
        raise BadFrame("the headers of a frame cannot be read") from None
    return found
