"""Credentials of projects, sealed; models that refer to one."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table, and the column that refers to it by name."""
    op.execute(
        """
        CREATE TABLE credentials (
            id uuid PRIMARY KEY,
            project_id uuid NOT NULL REFERENCES projects ON DELETE CASCADE,
            name text NOT NULL,
            kind text NOT NULL,
            secret text NOT NULL CHECK (secret LIKE 'sealed:%'),
            created_at timestamptz NOT NULL DEFAULT now(),
            updated_at timestamptz NOT NULL DEFAULT now(),
            rotated_at timestamptz NOT NULL DEFAULT now(),
            UNIQUE (project_id, name)
        )
        """
    )
    op.execute("ALTER TABLE models ADD COLUMN credential text")


def downgrade() -> None:
    """Drop them, with what they hold."""
    op.execute("ALTER TABLE models DROP COLUMN credential")
    op.execute("DROP TABLE credentials")
