"""Whether a value that was shown is the beginning of another one."""

from __future__ import annotations

from typing import Any, Final

from app.core.json_text import NotJson, read

_DEEPEST: Final = 500


def is_beginning_of(shown: Any, whole: str) -> bool:
    """Whether the value in a JSON text only adds to what was shown: members, items, more of a text."""
    try:
        pairs = [(shown, read(whole, max_depth=_DEEPEST, unique_keys=False))]
    except NotJson:
        return False
    while pairs:
        part, of = pairs.pop()
        match part, of:
            case dict(), dict() if part.keys() <= of.keys():
                pairs += [(member, of[name]) for name, member in part.items()]
            case list(), list() if len(part) <= len(of):
                pairs += zip(part, of, strict=False)
            case str(), str() if of.startswith(part):
                pass
            case _ if type(part) is not type(of) or isinstance(part, dict | list | str) or part != of:
                return False
    return True
