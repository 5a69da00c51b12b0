"""What the schemas of several resources share."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, TypeVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

T = TypeVar("T")


class View(BaseModel):
    """An answer. It is documented by its class and made by a function, which saves building objects."""

    model_config = ConfigDict(frozen=True)


class PageView(View, Generic[T]):
    """One page of a list."""

    data: list[T]
    has_more: bool = Field(description="Whether something follows the last item.")
    next: str | None = Field(description="`after` of the next page.")


def _refuse(value: Any) -> None:
    if value is not None:
        raise PydanticCustomError("unsupported_option", "not offered by this version; leave it out")


def _refuse_filled(value: Any) -> Any:
    if value:
        _refuse(value)
    return value


def _as_rfc_3339(value: Any) -> Any:
    # Left alone, numbers would be taken for seconds since the epoch.
    if not isinstance(value, str) or not _DATE.match(value):
        raise PydanticCustomError("date_time", "give a time as RFC 3339 has it, such as 2026-11-30T12:00:00Z")
    return value


_DATE = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}")


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise PydanticCustomError("date_time", "this time lies outside the years 1 to 9999") from None


Instant = Annotated[
    AwareDatetime, Field(strict=False), BeforeValidator(_as_rfc_3339), AfterValidator(_in_utc)
]
"""A time with its offset, as the same time in UTC."""

refuse_filled = BeforeValidator(_refuse_filled)
"""Only an empty list or object is taken."""


NotOffered = Annotated[None, BeforeValidator(_refuse), Field(description="Not offered by this version.")]
"""An option of the contract that this version refuses by name; null is taken."""

EmptyForNow = Annotated[dict[str, Any], refuse_filled, Field(description="Has to be empty in this version.")]
