"""Webhook endpoints, and what is owed to them: a row for each run and endpoint."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE webhook_endpoints (
        id uuid PRIMARY KEY,
        project_id uuid NOT NULL REFERENCES projects ON DELETE CASCADE,
        url text NOT NULL,
        description text,
        callbacks text[],
        event_types text[] NOT NULL DEFAULT '{}',
        active boolean NOT NULL DEFAULT true,
        disabled_at timestamptz,
        disabled_reason text,
        secret text NOT NULL,
        previous_secret text,
        previous_until timestamptz,
        created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz NOT NULL DEFAULT now(),
        CONSTRAINT webhook_endpoints_disabled CHECK (active = (disabled_at IS NULL))
    )
    """,
    "CREATE INDEX webhook_endpoints_project ON webhook_endpoints (project_id, id)",
    # Runs are accepted while endpoints are deleted, and an accept must neither wait for that nor fail by it:
    # so nothing here points at the endpoint, and a delivery without one is swept away later.
    """
    CREATE TABLE webhook_deliveries (
        endpoint_id uuid NOT NULL,
        run_id uuid NOT NULL REFERENCES runs ON DELETE CASCADE,
        project_id uuid NOT NULL,
        status text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'done', 'dead')),
        delivered_seq integer NOT NULL DEFAULT 0,
        post_seq integer,
        posts integer NOT NULL DEFAULT 0,
        failures integer NOT NULL DEFAULT 0,
        next_at timestamptz NOT NULL DEFAULT now(),
        epoch integer NOT NULL DEFAULT 0,
        lease_until timestamptz,
        news boolean NOT NULL DEFAULT false,
        last_status smallint,
        last_error text,
        last_attempt_at timestamptz,
        created_at timestamptz NOT NULL DEFAULT now(),
        ended_at timestamptz,
        PRIMARY KEY (endpoint_id, run_id),
        CONSTRAINT webhook_deliveries_ended CHECK ((status = 'pending') = (ended_at IS NULL))
    )
    """,
    """
    CREATE INDEX webhook_deliveries_due ON webhook_deliveries (endpoint_id, next_at) WHERE status = 'pending'
    """,
    "CREATE INDEX webhook_deliveries_run ON webhook_deliveries (run_id)",
    "CREATE INDEX webhook_deliveries_age ON webhook_deliveries (created_at)",
)


def upgrade() -> None:
    """Make the tables."""
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    """Drop them, with what they hold."""
    for table in ("webhook_deliveries", "webhook_endpoints"):
        op.execute(f"DROP TABLE {table}")
