"""Hand a branch over to the next run in the statement that ends the last one."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the function."""
    # A statement in a volatile function sees what was committed until it begins: what was queued while the
    # caller waited for the branch is found. Seen again after waiting for the run's lock: somebody may have
    # cancelled it, or taken it; then it is the next one's turn.
    op.execute(
        """
        CREATE FUNCTION hand_over(freed uuid, next_owner uuid, lease interval, started timestamptz)
        RETURNS SETOF runs LANGUAGE plpgsql VOLATILE STRICT ROWS 1 AS $$
        DECLARE
            next_id uuid;
        BEGIN
            LOOP
                SELECT q.id INTO next_id FROM runs q WHERE q.branch_id = freed AND q.status = 'queued'
                ORDER BY q.id LIMIT 1;
                EXIT WHEN NOT FOUND;
                RETURN QUERY
                UPDATE runs r SET status = 'running', epoch = r.epoch + 1, owner = next_owner,
                       lease_until = now() + lease, started_at = started
                WHERE r.id = next_id AND r.status = 'queued'
                RETURNING r.*;
                EXIT WHEN FOUND;
            END LOOP;
        END $$
        """
    )


def downgrade() -> None:
    """Drop it."""
    op.execute("DROP FUNCTION hand_over")
