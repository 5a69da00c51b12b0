"""Options that the contract names and this version does not carry out: refused by name, never ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.core.errors import FieldError, UnsupportedOption
from app.core.json_text import pointer
from app.core.operate.middle import MIDDLE_NAMES

Accepted = Mapping[tuple[str, ...], tuple[Any, ...]]
"""Path of an option -> the values of it that ask for nothing we do not do."""

OPERATE: Final[Accepted] = {
    ("middle",): (None, *MIDDLE_NAMES),
}


def refuse_unsupported(body: Mapping[str, Any], accepted: Accepted, *, at: str = "") -> None:
    """Raise `UnsupportedOption` naming every option of `body` that asks for what is not offered.

    `body` holds what the client sent and nothing else (`model_dump(exclude_unset=True)`).
    """
    faults = [
        FieldError(at + pointer(*path), _told(values), "unsupported_option")
        for path, values in accepted.items()
        if _asks(body, path, values)
    ]
    if faults:
        names = ", ".join(fault.pointer.removeprefix("/").replace("/", ".") for fault in faults)
        raise UnsupportedOption(f"not offered by this version: {names}", errors=faults)


def _asks(body: Any, path: tuple[str, ...], values: tuple[Any, ...]) -> bool:
    for step in path:
        if not isinstance(body, Mapping) or step not in body:
            return False
        body = body[step]
    return body not in values


def _told(values: tuple[Any, ...]) -> str:
    rest = " or ".join(_as_json(value) for value in values if value is not None)
    instead = f"only {rest} can be given" if rest else "leave it out"
    return f"asks for what this version does not do; {instead}"


def _as_json(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
