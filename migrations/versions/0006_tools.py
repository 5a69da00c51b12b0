"""Tools that projects registered."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.execute(
        """
        CREATE TABLE tools (
            id uuid PRIMARY KEY,
            project_id uuid NOT NULL REFERENCES projects ON DELETE CASCADE,
            name text NOT NULL,
            kind text NOT NULL,
            description text NOT NULL,
            parameters json NOT NULL,
            strict boolean NOT NULL,
            idempotent boolean NOT NULL,
            settings json NOT NULL,
            created_at timestamptz NOT NULL DEFAULT now(),
            updated_at timestamptz NOT NULL DEFAULT now(),
            UNIQUE (project_id, name)
        )
        """
    )


def downgrade() -> None:
    """Drop it, with what it holds."""
    op.execute("DROP TABLE tools")
