"""Count what is queued in a project by an index that serves nothing else."""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Let the index be of no use to whoever looks for the next of a branch.

    While nothing is queued all indexes of what is queued seem to cost the same, and a plan made then kept to
    the wrong one, which gives what is queued in all branches. That a queued run has a time at which it is
    over holds anyway.
    """
    # What takes the stronger lock comes first: a writer that is between its two statements would wait for us,
    # and we for it.
    op.execute("DROP INDEX runs_queued")
    op.execute(
        "CREATE INDEX runs_queued_in_project ON runs (project_id) "
        "WHERE status = 'queued' AND expires_at IS NOT NULL"
    )


def downgrade() -> None:
    """Put the former index back."""
    op.execute("DROP INDEX runs_queued_in_project")
    op.execute("CREATE INDEX runs_queued ON runs (project_id) WHERE status = 'queued'")
