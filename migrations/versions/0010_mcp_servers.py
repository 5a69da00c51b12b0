"""MCP servers that projects registered."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.execute(
        """
        CREATE TABLE mcp_servers (
            id uuid PRIMARY KEY,
            project_id uuid NOT NULL REFERENCES projects ON DELETE CASCADE,
            name text NOT NULL,
            settings json NOT NULL,
            created_at timestamptz NOT NULL DEFAULT now(),
            updated_at timestamptz NOT NULL DEFAULT now(),
            UNIQUE (project_id, name)
        )
        """
    )


def downgrade() -> None:
    """Drop it, with what it holds."""
    op.execute("DROP TABLE mcp_servers")
