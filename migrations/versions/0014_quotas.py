"""The limits of keys and projects, and what is used of them."""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE quotas (
        id uuid PRIMARY KEY,
        project_id uuid NOT NULL REFERENCES projects ON DELETE CASCADE,
        key_id uuid REFERENCES api_keys ON DELETE CASCADE,
        requests_per_minute integer CHECK (requests_per_minute > 0),
        concurrent_runs integer CHECK (concurrent_runs >= 0),
        tokens_per_day bigint CHECK (tokens_per_day >= 0),
        cost_per_day numeric CHECK (cost_per_day >= 0),
        updated_at timestamptz NOT NULL DEFAULT now(),
        CONSTRAINT quotas_of_one CHECK (id = coalesce(key_id, project_id))
    )
    """,
    "CREATE INDEX quotas_key ON quotas (key_id)",
    # Nothing of what follows points at the limits: runs are accepted and recorded while these are taken away,
    # and must neither wait for that nor fail by it. What is left over is swept away later.
    #
    # What processes were given of the requests of the latest minute, counted from the epoch.
    """
    CREATE TABLE quota_minutes (
        quota_id uuid PRIMARY KEY,
        minute bigint NOT NULL,
        quota integer NOT NULL,
        taken integer NOT NULL,
        granted integer NOT NULL
    )
    """,
    # Runs that were accepted under a limit. Their own rows tell which have ended: ends cost nothing here.
    """
    CREATE TABLE quota_runs (
        quota_id uuid NOT NULL,
        run_id uuid NOT NULL,
        PRIMARY KEY (quota_id, run_id)
    )
    """,
    # A row for each process, so that none waits for another's commit.
    """
    CREATE TABLE quota_days (
        quota_id uuid NOT NULL,
        day date NOT NULL,
        writer uuid NOT NULL,
        tokens bigint NOT NULL,
        cost numeric NOT NULL,
        PRIMARY KEY (quota_id, day, writer)
    )
    """,
)


def upgrade() -> None:
    """Make the tables."""
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    """Drop them, with the limits that were set."""
    for table in ("quota_days", "quota_runs", "quota_minutes", "quotas"):
        op.execute(f"DROP TABLE {table}")
