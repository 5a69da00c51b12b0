"""How long logs are kept, what is under a legal hold, and logs of purged runs that are still to go."""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns and the table."""
    op.execute(
        "ALTER TABLE projects ADD COLUMN retention_days integer CHECK (retention_days > 0), "
        "ADD COLUMN legal_hold boolean NOT NULL DEFAULT false"
    )
    op.execute("ALTER TABLE branches ADD COLUMN legal_hold boolean NOT NULL DEFAULT false")
    # The runs themselves are gone by then, so this is all that is left to say whose logs these are.
    op.execute("CREATE TABLE purged_logs (run_id uuid PRIMARY KEY, project_id uuid NOT NULL)")


def downgrade() -> None:
    """Drop them: what a purge had not finished stays as rows that nobody can read."""
    op.execute("ALTER TABLE projects DROP COLUMN retention_days, DROP COLUMN legal_hold")
    op.execute("ALTER TABLE branches DROP COLUMN legal_hold")
    op.execute("DROP TABLE purged_logs")
