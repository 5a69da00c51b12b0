"""The limits of models."""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.execute("ALTER TABLE models ADD COLUMN limits jsonb")


def downgrade() -> None:
    """Drop it."""
    op.execute("ALTER TABLE models DROP COLUMN limits")
