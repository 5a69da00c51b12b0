"""How long logs are kept."""

from __future__ import annotations

from typing import Final

MOST_DAYS: Final = 36_500
"""The longest age that can be chosen; what is to stay for ever has none."""
