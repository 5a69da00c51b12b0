"""What can go wrong between a server and us, so that it can be told what may be done about it."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """What happened to a request."""

    DOWN = "down"
    """The server did not answer a moment ago, so it was not asked."""
    BLOCKED = "blocked"
    """Its address may not be reached."""
    NOT_CONFIGURED = "not_configured"
    """A header's variable has no value, or the program cannot be started."""
    NO_CREDENTIAL = "no_credential"
    """A header refers to a credential that is not stored."""
    UNREADABLE = "unreadable"
    """A header's value, or its credential, does not open with the operator's keys."""
    NOT_SENT = "not_sent"
    """No connection; nothing was sent."""
    SESSION_LOST = "session_lost"
    """The server does not know our session any more, and so has done nothing."""
    UNAVAILABLE = "unavailable"
    """A status that says that the same may work later."""
    LOST = "lost"
    """The connection, or the process, ended without an answer; whether the tool took effect is unknown."""
    TOO_LARGE = "too_large"
    """The answer has more bytes than are taken."""
    INVALID = "invalid"
    """The answer is none that the protocol allows."""
    REFUSED = "refused"
    """The server says no, in its own words."""


ENDING = frozenset({Kind.NOT_SENT, Kind.SESSION_LOST, Kind.UNAVAILABLE, Kind.BLOCKED})
"""After these a new session has to be made."""


class Trouble(Exception):
    """A request without a result."""

    def __init__(self, kind: Kind, words: str) -> None:
        super().__init__(words)
        self.kind = kind
        self.words = words
