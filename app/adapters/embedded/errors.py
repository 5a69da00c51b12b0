"""What can keep the embedded database or model from running; each message says what to do."""

from __future__ import annotations


class EmbeddedError(RuntimeError):
    """The embedded part cannot run here; the message is written for the operator."""


class PostgresMissing(EmbeddedError):
    """No usable Postgres binaries are installed."""


class PostgresUnusable(EmbeddedError):
    """The data directory or the account does not allow the database to run."""


class PostgresFailed(EmbeddedError):
    """The database was started and did not come up; the message ends with what its log says."""


class LocalModelMissing(EmbeddedError):
    """The package that runs the local model, or its weights, is not installed."""


class LocalModelFailed(EmbeddedError):
    """The local model's process was started and did not come up."""
