"""Sign what is sent to the servers of clients."""

from __future__ import annotations


class NotSigned(Exception):
    """There is no secret to sign with; the message says why and holds nothing of it."""
