"""A client's own words about a branch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.core.errors import FieldError, Invalid
from app.core.json_text import canonical
from app.core.merge_patch import merge_patch

MAX_BYTES = 64 * 1024
"""Size of a branch's metadata as compact JSON."""


def merged_metadata(present: Mapping[str, Any], patch: Mapping[str, Any] | None) -> dict[str, Any]:
    """`present` with the patch applied (RFC 7396); null clears all. Raises Invalid when that is too large."""
    merged: dict[str, Any] = {} if patch is None else merge_patch(present, patch)
    check_metadata(merged)
    return merged


def check_metadata(metadata: Mapping[str, Any]) -> None:
    """Raise Invalid when it is too large."""
    size = len(canonical(metadata))
    if size > MAX_BYTES:
        words = f"the metadata has {size} bytes of JSON, at most {MAX_BYTES} are kept"
        raise Invalid(
            f"The branch cannot be kept: {words}.", errors=[FieldError("/metadata", words, "too_large")]
        )
