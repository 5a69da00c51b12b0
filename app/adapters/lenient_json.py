"""Read the JSON of an answer that strict and fast parsers refuse or round."""

from __future__ import annotations

import json
from typing import Any


def lenient_loads(raw: bytes) -> Any:
    """The value, exact, also with lone surrogates, NaN, bare control characters and bad UTF-8.

    Raises ValueError.
    """
    try:
        return json.loads(raw.decode("utf-8", "replace"), strict=False)
    except RecursionError:
        raise ValueError("nested too deeply") from None
