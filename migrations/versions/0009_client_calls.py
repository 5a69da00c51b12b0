"""Client calls: tool calls that a client carries out, and the results that it brings."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE client_calls (
        function_call_id uuid PRIMARY KEY REFERENCES function_calls ON DELETE CASCADE,
        project_id uuid NOT NULL REFERENCES projects ON DELETE CASCADE,
        run_id uuid NOT NULL REFERENCES runs ON DELETE CASCADE,
        branch_id uuid REFERENCES branches ON DELETE CASCADE,
        call_id uuid NOT NULL,
        attempt smallint NOT NULL,
        function text NOT NULL,
        arguments json NOT NULL,
        arguments_digest text NOT NULL,
        status text NOT NULL CHECK (status IN ('waiting', 'answered', 'expired', 'cancelled')),
        lease_s float8 NOT NULL,
        lease_token uuid,
        lease_until timestamptz,
        leased_by uuid,
        output json,
        output_truncated boolean NOT NULL DEFAULT false,
        error json,
        result_digest text,
        answered_by uuid,
        created_at timestamptz NOT NULL,
        expires_at timestamptz NOT NULL,
        ended_at timestamptz,
        CONSTRAINT client_calls_ended CHECK ((status = 'waiting') = (ended_at IS NULL)),
        CONSTRAINT client_calls_answered CHECK ((status = 'answered') = (result_digest IS NOT NULL)),
        CONSTRAINT client_calls_one_result CHECK (num_nonnulls(output, error) = (status = 'answered')::int),
        CONSTRAINT client_calls_leased CHECK ((lease_token IS NULL) = (lease_until IS NULL))
    )
    """,
    "CREATE INDEX client_calls_project ON client_calls (project_id, function_call_id)",
    """
    CREATE INDEX client_calls_waiting ON client_calls (project_id, function_call_id) WHERE status = 'waiting'
    """,
    "CREATE INDEX client_calls_run ON client_calls (run_id)",
    "CREATE INDEX client_calls_branch ON client_calls (branch_id, function_call_id)",
)


def upgrade() -> None:
    """Make the table."""
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    """Drop it; runs that wait for a client are ended first, since nothing could take them up."""
    op.execute(
        "UPDATE runs SET status = 'failed', ended_at = now(), error = "
        """'{"code": "INTERNAL", "message": "The service was taken back to a version that cannot wait for """
        """clients.", "category": "internal", "retryable": false}' WHERE status = 'waiting' """
        "AND id IN (SELECT run_id FROM client_calls WHERE status = 'waiting')"
    )
    op.execute("DROP TABLE client_calls")
