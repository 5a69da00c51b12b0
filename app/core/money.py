"""Amounts of money as programs and people write them: exact, and in one way."""

from __future__ import annotations

import re
from typing import Any, Final

_PLAIN: Final = re.compile(r"[0-9]+(\.[0-9]+)?")
"""Not taken: exponents, signs, separators, other scripts' digits, by which one amount has many texts."""


def as_written(value: Any) -> Any:
    """A number of JSON or TOML as the decimal that was written, for pydantic to go on with.

    Raises ValueError for a flag, and for text that is no plain decimal.
    """
    if isinstance(value, bool) or (isinstance(value, str) and not _PLAIN.fullmatch(value)):
        raise ValueError("give a plain decimal, such as 12.50")
    return str(value) if isinstance(value, float) else value
