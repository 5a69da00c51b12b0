"""The list of everything that can go wrong for a caller, read from the classes themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from app.api import routes
from app.api.problems import STATUS
from app.core.discovery import discover
from app.core.errors import AppError


@dataclass(frozen=True, slots=True)
class ErrorEntry:
    """One code."""

    code: str
    category: str
    status: int
    retryable: bool
    description: str
    """The class's docstring in one line."""


_OURS = (
    ErrorEntry(
        "internal", "internal", 500, False, "Something went wrong on the server's side; its log has more."
    ),
    ErrorEntry(
        "method_not_allowed",
        "malformed",
        405,
        False,
        "The address does not take this method; Allow lists others.",
    ),
)
"""What no class stands for."""


def known_errors() -> list[ErrorEntry]:
    """Every error of the service, by status and code; a code stands for one class."""
    discover(routes, "router")  # Whatever can be raised is declared somewhere below the routes.
    found = {entry.code: entry for entry in _OURS}
    for error in _below(AppError):
        if not error.__module__.startswith("app."):
            continue
        entry = ErrorEntry(
            error.code,
            error.category.value,
            STATUS[error.category],
            error.retryable,
            " ".join((error.__doc__ or "").split()),
        )
        # A subclass without a code of its own is not told apart.
        found.setdefault(error.code, entry)
    return sorted(found.values(), key=lambda entry: (entry.status, entry.code))


def _below(base: type[AppError]) -> Iterator[type[AppError]]:
    for error in base.__subclasses__():
        yield error
        yield from _below(error)


def as_markdown() -> str:
    """The list as docs/errors.md has it."""
    lines = [
        "# Problems",
        "",
        "Every refusal is `application/problem+json`; `code` is stable, and `type` leads to its explanation.",
        "",
        "| Status | Code | Again? | Meaning |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {entry.status} | `{entry.code}` | {'yes' if entry.retryable else 'no'} | {entry.description} |"
        for entry in known_errors()
    ]
    return "\n".join(lines) + "\n"
