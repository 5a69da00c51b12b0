"""Newline-delimited JSON in and out; what comes in is kept in a file until it is there, and read from it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Final

from starlette.requests import Request
from starlette.responses import StreamingResponse

from app.core.errors import BodyTooLarge, Invalid, UnsupportedMedia

MEDIA_TYPE: Final = "application/x-ndjson"
IN_MEMORY: Final = 1024 * 1024
"""Bytes above which a body goes to a file."""

CONTENT: dict[str, Any] = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ExportLine"}}}
"""The content of an export, for the OpenAPI document; a schema is that of one line."""


def streamed(lines: AsyncIterator[bytes], name: str) -> StreamingResponse:
    """An answer that is made while it is sent, as fast as the client reads."""
    disposition = f'attachment; filename="{name}.ndjson"'
    return StreamingResponse(lines, media_type=MEDIA_TYPE, headers={"Content-Disposition": disposition})


@asynccontextmanager
async def body_lines(request: Request, *, most: int, longest: int) -> AsyncIterator[Iterator[bytes]]:
    """The lines of the body, each of `longest` bytes at most, once all `most` bytes or fewer are there.

    Raises UnsupportedMedia, BodyTooLarge; the lines raise Invalid.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != MEDIA_TYPE:
        raise UnsupportedMedia(f"An export is sent as it came: with Content-Type: {MEDIA_TYPE}.")
    with SpooledTemporaryFile(IN_MEMORY) as file:
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
            if size > most:
                raise BodyTooLarge(f"The body has more than {most} bytes.", extra={"limit": most})
            file.write(chunk)
        file.seek(0)
        yield _lines(file, longest)


def _lines(file: IO[bytes], longest: int) -> Iterator[bytes]:
    while line := file.readline(longest + 1):
        if len(line) > longest:
            raise Invalid(f"the line has more than {longest} bytes")
        yield line.rstrip(b"\n")
