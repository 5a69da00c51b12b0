"""An answer that begins with the wrapping instead of the content."""

from __future__ import annotations

import re
from typing import Final

from app.core.drift.base import HeadDetector

CONFIDENCE: Final = 0.8

_WRAPPING: Final = re.compile(
    r"""\s*(?:
    # What chat templates put around a turn, leaked.
      <\|\s*(?:im_start|im_end|assistant|user|system|start_header_id|end_header_id|eot_id|endoftext)\s*\|>
    | \[/?inst\]
    | <</?sys>>
    | \#{2,3}\ (?:response|assistant)\s*:
    | assistant[ \t]*\r?\n
    # Delivery spoken of, with or without agreement before it.
    | (?:(?:sure|certainly|of\ course|absolutely)[!,.]\s+)?
      here(?:['’]s|\ is|\ are)\ (?:the|your|an?)\ [^.!?:\n]{1,60}?\ (?:that\ |which\ )?
      you(?:['’]ve|\ have)?\ (?:requested|asked(?:\ me)?\ for|wanted|ordered)\s*[.!:\n]
    | as\ (?:you\ )?requested,\ (?:here|below)\ (?:is|are)\b
    )""",
    re.VERBOSE,
)


class FormatCollapse(HeadDetector):
    """Looks at the very beginning; "Here is how …" and other openings that already say something pass."""

    kind = "format_collapse"

    def read(self, head: str) -> float:
        """Whether the answer begins with leaked markers or with an announcement of itself."""
        return CONFIDENCE if _WRAPPING.match(head.lower()) else 0.0


DETECTOR = FormatCollapse
