"""Approvals: calls that wait for a person, and the runs that wait with them."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

STATEMENTS = (
    # What a waiting run needs to go on from, when it is to be looked at again at the latest, and whether
    # something has happened that it waits for.
    """
    ALTER TABLE runs ADD COLUMN resume json, ADD COLUMN wake_at timestamptz, ADD COLUMN ready_at timestamptz
    """,
    "CREATE INDEX runs_waiting ON runs (ready_at, wake_at) WHERE status = 'waiting'",
    """
    CREATE TABLE approvals (
        id uuid PRIMARY KEY,
        project_id uuid NOT NULL REFERENCES projects ON DELETE CASCADE,
        run_id uuid NOT NULL REFERENCES runs ON DELETE CASCADE,
        function_call_id uuid NOT NULL UNIQUE REFERENCES function_calls ON DELETE CASCADE,
        function text NOT NULL,
        arguments json NOT NULL,
        arguments_digest text NOT NULL,
        asked_by text NOT NULL,
        reason text,
        status text NOT NULL CHECK (status IN ('pending', 'approved', 'denied', 'expired', 'cancelled')),
        edited json,
        edited_digest text,
        comment text,
        decided_by uuid,
        decided_at timestamptz,
        created_at timestamptz NOT NULL,
        expires_at timestamptz NOT NULL,
        CONSTRAINT approvals_decided CHECK ((status = 'pending') = (decided_at IS NULL)),
        CONSTRAINT approvals_edited CHECK ((edited IS NULL) = (edited_digest IS NULL))
    )
    """,
    "CREATE INDEX approvals_project ON approvals (project_id, id)",
    "CREATE INDEX approvals_run ON approvals (run_id)",
)


def upgrade() -> None:
    """Make the table and the columns."""
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    """Drop them; runs that wait are ended first, since nothing could take them up."""
    op.execute("DROP TABLE approvals")
    op.execute(
        "UPDATE runs SET status = 'failed', ended_at = now(), error = "
        """'{"code": "INTERNAL", "message": "The service was taken back to a version that cannot wait.", """
        """"category": "internal", "retryable": false}' WHERE status = 'waiting'"""
    )
    op.execute("ALTER TABLE runs DROP COLUMN resume, DROP COLUMN wake_at, DROP COLUMN ready_at")
