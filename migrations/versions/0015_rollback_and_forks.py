"""Runs that take another's place, messages that do not count any more, and forks of a moment."""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

# In a function of the database, so that processes of the version before hand over in the same order.
HAND_OVER = """
CREATE OR REPLACE FUNCTION hand_over(freed uuid, next_owner uuid, lease interval, started timestamptz)
RETURNS SETOF runs LANGUAGE plpgsql VOLATILE STRICT ROWS 1 AS $$
DECLARE
    next_id uuid;
BEGIN
    LOOP
        SELECT q.id INTO next_id FROM runs q WHERE q.branch_id = freed AND q.status = 'queued'
        ORDER BY {order} LIMIT 1;
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

# At the end of the statement that ends a run: what the run says in it is there by then, whoever wrote the
# statement. The position tells who has prepared a run on the conversation as it was that it is another now.
LEAVE_OUT = """
CREATE FUNCTION leave_out() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE messages SET superseded = true WHERE run_id = NEW.id AND branch_id = NEW.branch_id;
    UPDATE branches SET next_position = next_position + 1 WHERE id = NEW.branch_id;
    RETURN NULL;
END $$
"""
ROLLED_BACK = """
CREATE TRIGGER runs_rolled_back AFTER UPDATE OF status ON runs
FOR EACH ROW WHEN (NEW.superseded AND NEW.ended_at IS NOT NULL AND OLD.ended_at IS NULL)
EXECUTE FUNCTION leave_out()
"""


def upgrade() -> None:
    """Add the columns, and hand over to what takes another's place first."""
    # The run whose place it takes.
    op.execute("ALTER TABLE runs ADD COLUMN replaces uuid")
    # Whether it was rolled back, so that its messages do not count from its end on.
    op.execute("ALTER TABLE runs ADD COLUMN superseded boolean NOT NULL DEFAULT false")
    op.execute("ALTER TABLE messages ADD COLUMN superseded boolean NOT NULL DEFAULT false")
    # The moment that it is a fork of.
    op.execute("ALTER TABLE branches ADD COLUMN forked_run_id uuid")
    op.execute("ALTER TABLE branches ADD COLUMN forked_seq integer")
    op.execute("CREATE INDEX runs_line ON runs (branch_id, (replaces IS NULL), id) WHERE status = 'queued'")
    op.execute("CREATE INDEX runs_queued ON runs (project_id) WHERE status = 'queued'")
    op.execute(HAND_OVER.format(order="(q.replaces IS NULL), q.id"))
    op.execute(LEAVE_OUT)
    op.execute(ROLLED_BACK)


def downgrade() -> None:
    """Drop the columns, and hand over in the order of acceptance."""
    op.execute("DROP TRIGGER runs_rolled_back ON runs")
    op.execute("DROP FUNCTION leave_out")
    op.execute(HAND_OVER.format(order="q.id"))
    op.execute("DROP INDEX runs_queued")
    op.execute("DROP INDEX runs_line")
    op.execute("ALTER TABLE branches DROP COLUMN forked_seq, DROP COLUMN forked_run_id")
    op.execute("ALTER TABLE messages DROP COLUMN superseded")
    op.execute("ALTER TABLE runs DROP COLUMN superseded, DROP COLUMN replaces")
