"""The first tables: projects, branches, messages, runs, calls and the event log."""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Payloads that must come back as they were written (arguments, results, event metas) are `json`: it keeps
# digits, key order and text. Settings that are searched or merged are `jsonb`.
STATEMENTS = (
    """
    CREATE TABLE projects (
        id uuid PRIMARY KEY,
        name text NOT NULL UNIQUE,
        lifecycle jsonb,
        created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz NOT NULL DEFAULT now()
    )
    """,
    """
    CREATE TABLE api_keys (
        id uuid PRIMARY KEY,
        project_id uuid NOT NULL REFERENCES projects ON DELETE CASCADE,
        name text NOT NULL,
        digest bytea NOT NULL UNIQUE,
        prefix text NOT NULL,
        scopes text[] NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now(),
        expires_at timestamptz,
        revoked_at timestamptz
    )
    """,
    "CREATE INDEX api_keys_project ON api_keys (project_id, id)",
    """
    CREATE TABLE models (
        id uuid PRIMARY KEY,
        project_id uuid NOT NULL REFERENCES projects ON DELETE CASCADE,
        name text NOT NULL,
        provider text NOT NULL,
        model text NOT NULL,
        base_url text,
        api_key_env text,
        options json NOT NULL,
        lifecycle jsonb,
        created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz NOT NULL DEFAULT now(),
        UNIQUE (project_id, name)
    )
    """,
    """
    CREATE TABLE branches (
        id uuid PRIMARY KEY,
        project_id uuid NOT NULL REFERENCES projects ON DELETE CASCADE,
        name text,
        system text,
        chat_model text,
        parse_model text,
        tools jsonb NOT NULL DEFAULT 'true',
        lifecycle jsonb,
        metadata jsonb NOT NULL DEFAULT '{}',
        version integer NOT NULL DEFAULT 1,
        next_position integer NOT NULL DEFAULT 0,
        parent_id uuid,
        forked_at uuid,
        created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz NOT NULL DEFAULT now()
    )
    """,
    "CREATE INDEX branches_project ON branches (project_id, id)",
    "CREATE INDEX branches_metadata ON branches USING gin (metadata jsonb_path_ops)",
    # Every run of a branch is one row; who may write for it is the holder of (lease, epoch).
    """
    CREATE TABLE runs (
        id uuid PRIMARY KEY,
        project_id uuid NOT NULL REFERENCES projects ON DELETE CASCADE,
        branch_id uuid REFERENCES branches ON DELETE CASCADE,
        kind text NOT NULL CHECK (kind IN ('operate', 'act', 'consensus')),
        status text NOT NULL CHECK (status IN
            ('queued', 'running', 'waiting', 'completed', 'failed', 'cancelled', 'expired')),
        request json NOT NULL,
        context json,
        key_id uuid,
        request_id text,
        traceparent text,
        epoch integer NOT NULL DEFAULT 0,
        owner uuid,
        lease_until timestamptz,
        cancel_requested_at timestamptz,
        expires_at timestamptz,
        result json,
        error json,
        validation json,
        finish_reason text,
        finish_reason_raw text,
        partial_text text,
        model text,
        usage json,
        attempts integer NOT NULL DEFAULT 0,
        fallback_index integer NOT NULL DEFAULT 0,
        last_seq integer NOT NULL DEFAULT 0,
        created_at timestamptz NOT NULL,
        started_at timestamptz,
        ended_at timestamptz,
        CONSTRAINT runs_ended CHECK (
            (status IN ('completed', 'failed', 'cancelled', 'expired')) = (ended_at IS NOT NULL))
    )
    """,
    "CREATE UNIQUE INDEX runs_one_active ON runs (branch_id) WHERE status IN ('running', 'waiting')",
    "CREATE INDEX runs_queue ON runs (branch_id, id) WHERE status = 'queued'",
    "CREATE INDEX runs_leases ON runs (lease_until) WHERE status = 'running'",
    "CREATE INDEX runs_project ON runs (project_id, id)",
    "CREATE INDEX runs_branch ON runs (branch_id, id)",
    # The link between a request and its response is this one column, so the two can never disagree.
    """
    CREATE TABLE messages (
        id uuid PRIMARY KEY,
        project_id uuid NOT NULL REFERENCES projects ON DELETE CASCADE,
        branch_id uuid NOT NULL REFERENCES branches ON DELETE CASCADE,
        position integer NOT NULL,
        kind text NOT NULL CHECK (kind IN
            ('system', 'instruction', 'assistant_response', 'action_request', 'action_response')),
        sender text,
        recipient text,
        content json NOT NULL,
        run_id uuid,
        action_request_id uuid UNIQUE REFERENCES messages ON DELETE CASCADE,
        created_at timestamptz NOT NULL,
        UNIQUE (branch_id, position),
        CONSTRAINT messages_response_linked CHECK (
            (kind = 'action_response') = (action_request_id IS NOT NULL))
    )
    """,
    "CREATE INDEX messages_run ON messages (run_id) WHERE run_id IS NOT NULL",
    """
    CREATE TABLE function_calls (
        id uuid PRIMARY KEY,
        project_id uuid NOT NULL REFERENCES projects ON DELETE CASCADE,
        run_id uuid NOT NULL REFERENCES runs ON DELETE CASCADE,
        branch_id uuid REFERENCES branches ON DELETE CASCADE,
        call_id uuid NOT NULL,
        attempt smallint NOT NULL,
        batch integer NOT NULL,
        index integer NOT NULL,
        function text NOT NULL,
        arguments json,
        raw_arguments json,
        arguments_digest text,
        provider_call_id text,
        action_request_id uuid NOT NULL REFERENCES messages ON DELETE CASCADE,
        status text NOT NULL CHECK (status IN
            ('pending', 'processing', 'completed', 'failed', 'skipped', 'cancelled', 'aborted')),
        duration double precision,
        response json,
        error json,
        retryable boolean,
        created_at timestamptz NOT NULL,
        started_at timestamptz,
        ended_at timestamptz,
        UNIQUE (run_id, batch, index, attempt),
        UNIQUE (call_id, attempt),
        CONSTRAINT function_calls_ended CHECK (
            (status IN ('pending', 'processing')) = (ended_at IS NULL))
    )
    """,
    "CREATE INDEX function_calls_project ON function_calls (project_id, id)",
    "CREATE INDEX function_calls_branch ON function_calls (branch_id, id)",
    # The log. Both tables are partitioned by the week in which the run was created (run ids are UUIDv7), and
    # nothing points at them, so that a partition can be dropped whole.
    """
    CREATE TABLE events (
        run_id uuid NOT NULL,
        ts bigint NOT NULL,
        seq integer NOT NULL,
        type smallint NOT NULL,
        stream smallint,
        attempt smallint,
        fallback smallint,
        meta json,
        callbacks json,
        PRIMARY KEY (run_id, seq)
    ) PARTITION BY RANGE (run_id)
    """,
    """
    CREATE TABLE token_blocks (
        run_id uuid NOT NULL,
        ts bigint NOT NULL,
        seq integer NOT NULL,
        count integer NOT NULL,
        stream smallint NOT NULL,
        attempt smallint NOT NULL,
        fallback smallint NOT NULL,
        text text NOT NULL,
        lengths bytea NOT NULL,
        delays bytea NOT NULL,
        PRIMARY KEY (run_id, seq)
    ) PARTITION BY RANGE (run_id)
    """,
    """
    CREATE TABLE idempotency_keys (
        project_id uuid NOT NULL REFERENCES projects ON DELETE CASCADE,
        scope text NOT NULL,
        key text NOT NULL,
        fingerprint bytea NOT NULL,
        run_id uuid,
        status smallint,
        body json,
        created_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (project_id, scope, key)
    )
    """,
    "CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at)",
    """
    CREATE TABLE audit_log (
        id uuid PRIMARY KEY,
        project_id uuid,
        at timestamptz NOT NULL DEFAULT now(),
        key_id uuid,
        action text NOT NULL,
        subject text NOT NULL,
        digest_before text,
        digest_after text
    )
    """,
    "CREATE INDEX audit_log_project ON audit_log (project_id, id)",
)

TABLES = (
    "audit_log",
    "idempotency_keys",
    "token_blocks",
    "events",
    "function_calls",
    "messages",
    "runs",
    "branches",
    "models",
    "api_keys",
    "projects",
)


def upgrade() -> None:
    """Make the tables."""
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    """Drop them all, with what they hold."""
    for table in TABLES:
        op.execute(f"DROP TABLE {table}")
