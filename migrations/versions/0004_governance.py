"""Gates, permissions and hooks, what was decided about calls, and what changes were about."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

COLUMNS = {
    "projects": {
        "gate": "json",
        "permissions": "json",
        "hooks": "json",
        "self_approval": "boolean NOT NULL DEFAULT false",
    },
    "branches": {"gate": "json", "permissions": "json", "hooks": "json"},
    "function_calls": {"gate": "json"},
    "audit_log": {"detail": "json"},
}


def upgrade() -> None:
    """Add the columns."""
    for table, columns in COLUMNS.items():
        for name, kind in columns.items():
            op.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}")


def downgrade() -> None:
    """Drop them, with what they hold."""
    for table, columns in COLUMNS.items():
        for name in columns:
            op.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
