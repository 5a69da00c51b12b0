"""Lists in pages: `limit`, `after` and `order` in, `{"data", "has_more", "next"}` and a Link out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from app.api.problems import short
from app.api.replies import reply
from app.core.errors import FieldError, InvalidCursor
from app.ports.catalog import Page, Slice

T = TypeVar("T")

DEFAULT_LIMIT = 100
MAX_LIMIT = 1_000

Order = Literal["asc", "desc"]


class PageQuery(BaseModel):
    """The parameters of every list; a parameter that is none of a list is refused."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(
        DEFAULT_LIMIT, ge=1, description=f"Items of one page; {MAX_LIMIT} at most, more is cut."
    )
    after: str | None = Field(None, description="The `next` of the page before.")
    order: Order | None = Field(
        None, description="By age; lists begin with the newest, logs with the oldest."
    )

    def part(self, read: Callable[[str], Any], *, newest_first: bool = True) -> Slice:
        """The stretch that is asked for; `read` turns a cursor into a sort key. Raises InvalidCursor."""
        descending = newest_first if self.order is None else self.order == "desc"
        after = None
        if self.after is not None:
            try:
                after = read(self.after)
            except ValueError:
                words = f"{short(self.after)!r} is no `next` of a page of this list"
                raise InvalidCursor(
                    f"The list cannot be continued: {words}.",
                    errors=[FieldError("", words, "invalid", "after")],
                ) from None
        return Slice(min(self.limit, MAX_LIMIT), descending, after)


def id_cursor(text: str) -> UUID:
    """The cursor of a list in the order of ids."""
    return UUID(text)


class Places:
    """Cursors of a list in the order of a 32-bit number, each good for the list that gave it out alone."""

    def __init__(self, of: UUID) -> None:
        """`of` is what the list belongs to."""
        self._of = of

    def at(self, number: int) -> str:
        """The cursor after an item."""
        check = hashlib.blake2s(f"{self._of}:{number}".encode(), digest_size=6).hexdigest()
        return f"{number}-{check}"

    def read(self, text: str) -> int:
        """The item's number. Raises ValueError for a cursor of another list, and for what is none."""
        number = int(text.rpartition("-")[0])
        if not -(2**31) <= number < 2**31 or text != self.at(number):
            raise ValueError(text)
        return number


def paged(
    request: Request, page: Page[T], view: Callable[[T], Any], cursor: Callable[[T], object]
) -> Response:
    """The answer to a list request; `cursor` gives the sort key of an item."""
    following = str(cursor(page.items[-1])) if page.has_more else None
    headers = {}
    if following is not None:
        url = request.url.include_query_params(after=following)
        # A path, not a whole address: what a proxy calls us is not for us to know.
        headers["Link"] = f'<{url.path}?{url.query}>; rel="next"'
    body = {"data": [view(item) for item in page.items], "has_more": page.has_more, "next": following}
    return reply(body, headers=headers)
