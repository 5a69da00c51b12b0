"""What attempts at models used and cost, and prices of models."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table, and the column for a model's price."""
    # No foreign keys to runs and branches: what was spent stays spent when they are deleted.
    op.execute(
        """
        CREATE TABLE attempts (
            run_id uuid NOT NULL,
            stream smallint NOT NULL,
            fallback_index smallint NOT NULL,
            attempt smallint NOT NULL,
            project_id uuid NOT NULL REFERENCES projects ON DELETE CASCADE,
            branch_id uuid,
            purpose text NOT NULL,
            model text,
            provider text,
            wire_model text,
            outcome text NOT NULL CHECK (outcome IN ('completed', 'failed', 'aborted', 'lost')),
            code text,
            input_tokens integer NOT NULL,
            output_tokens integer NOT NULL,
            cached_input_tokens integer,
            cache_write_tokens integer,
            reasoning_tokens integer,
            reported boolean NOT NULL,
            estimated boolean NOT NULL,
            cost numeric,
            started_at timestamptz NOT NULL,
            ended_at timestamptz NOT NULL,
            PRIMARY KEY (run_id, stream, fallback_index, attempt)
        )
        """
    )
    op.execute("CREATE INDEX attempts_by_time ON attempts (project_id, ended_at)")
    op.execute(
        "CREATE INDEX attempts_of_branch ON attempts (branch_id, ended_at) WHERE branch_id IS NOT NULL"
    )
    op.execute("ALTER TABLE models ADD COLUMN price json")


def downgrade() -> None:
    """Drop both, with what they hold."""
    op.execute("ALTER TABLE models DROP COLUMN price")
    op.execute("DROP TABLE attempts")
