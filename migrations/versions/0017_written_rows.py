"""What runs write, as types: the rows of one kind are one value."""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_END = "status text, duration float8, response json, error json, retryable bool, ended_at timestamptz"

TYPES = {
    "new_run": "id uuid, project_id uuid, branch_id uuid, kind text, request json, context json, "
    "key_id uuid, request_id text, traceparent text, model text, version int, position int, if_match int, "
    "created_at timestamptz",
    "new_key": "project_id uuid, scope text, key text, fingerprint bytea, run_id uuid",
    "held_run": "id uuid, epoch int",
    "new_event": "run_id uuid, ts bigint, seq int, type smallint, stream smallint, attempt smallint, "
    "fallback smallint, meta json, callbacks json",
    "new_block": "run_id uuid, ts bigint, seq int, count int, stream smallint, attempt smallint, "
    "fallback smallint, text text, lengths bytea, delays bytea",
    "new_message": "id uuid, project_id uuid, branch_id uuid, run_id uuid, kind text, sender text, "
    "recipient text, content json, action_request_id uuid, created_at timestamptz, nr int",
    "new_call": "id uuid, project_id uuid, run_id uuid, branch_id uuid, call_id uuid, attempt smallint, "
    "batch int, index int, function text, action_request_id uuid, arguments json, raw_arguments json, "
    "arguments_digest text, provider_call_id text, created_at timestamptz, started_at timestamptz, "
    f"gate json, {_END}",
    "ended_call": f"id uuid, run_id uuid, {_END}",
    "new_attempt": "run_id uuid, project_id uuid, branch_id uuid, stream smallint, fallback_index smallint, "
    "attempt smallint, purpose text, model text, provider text, wire_model text, outcome text, code text, "
    "input_tokens int, output_tokens int, cached_input_tokens int, cache_write_tokens int, "
    "reasoning_tokens int, reported bool, estimated bool, cost numeric, started_at timestamptz, "
    "ended_at timestamptz",
    "ended_run": "run_id uuid, branch_id uuid, status text, result json, error json, validation json, "
    "finish_reason text, finish_reason_raw text, partial_text text, model text, usage json, attempts int, "
    "fallback_index int, last_seq int, ended_at timestamptz",
}


def upgrade() -> None:
    """Make the types. They are never altered: what has more columns is given another one."""
    for name, columns in TYPES.items():
        op.execute(f"CREATE TYPE {name} AS ({columns})")


def downgrade() -> None:
    """Drop them."""
    for name in TYPES:
        op.execute(f"DROP TYPE {name}")
