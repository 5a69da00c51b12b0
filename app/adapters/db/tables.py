"""The tables as SQLAlchemy sees them; a test holds them equal to what the migrations make.

Constraints that only Postgres cares about (checks, partial indexes) are told in the migrations alone. Those
of what a project has registered stand in `registered_tables`.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Column, ForeignKey, Table
from sqlalchemy.dialects.postgresql import ARRAY, JSON, JSONB

from app.adapters.db.registered_tables import api_keys as api_keys
from app.adapters.db.registered_tables import credentials as credentials
from app.adapters.db.registered_tables import mcp_servers as mcp_servers
from app.adapters.db.registered_tables import models as models
from app.adapters.db.registered_tables import tools as tools
from app.adapters.db.table_columns import hold_column as _hold
from app.adapters.db.table_columns import id_column as _id
from app.adapters.db.table_columns import metadata as metadata
from app.adapters.db.table_columns import policy_columns as _policies
from app.adapters.db.table_columns import project_column as _project
from app.adapters.db.table_columns import stamp_column as _stamp
from app.adapters.db.table_columns import text_column as _text

projects = Table(
    "projects",
    metadata,
    _id(),
    _text("name", null=False, unique=True),
    Column("lifecycle", JSONB),
    *_policies(),
    Column("self_approval", sa.Boolean, nullable=False, server_default="false"),
    _stamp("created_at", default=True),
    _stamp("updated_at", default=True),
    Column("retention_days", sa.Integer),
    _hold(),
)

branches = Table(
    "branches",
    metadata,
    _id(),
    _project(),
    _text("name"),
    _text("system"),
    _text("chat_model"),
    _text("parse_model"),
    Column("tools", JSONB, nullable=False, server_default="true"),
    Column("lifecycle", JSONB),
    *_policies(),
    Column("metadata", JSONB, nullable=False, server_default="{}"),
    Column("version", sa.Integer, nullable=False, server_default="1"),
    Column("next_position", sa.Integer, nullable=False, server_default="0"),
    Column("parent_id", sa.Uuid),
    Column("forked_at", sa.Uuid),
    _stamp("created_at", default=True),
    _stamp("updated_at", default=True),
    Column("forked_run_id", sa.Uuid),
    Column("forked_seq", sa.Integer),
    _hold(),
)

runs = Table(
    "runs",
    metadata,
    _id(),
    _project(),
    Column("branch_id", sa.Uuid, ForeignKey("branches.id", ondelete="CASCADE")),
    _text("kind", null=False),
    _text("status", null=False),
    Column("request", JSON, nullable=False),
    Column("context", JSON),
    Column("key_id", sa.Uuid),
    _text("request_id"),
    _text("traceparent"),
    Column("epoch", sa.Integer, nullable=False, server_default="0"),
    Column("owner", sa.Uuid),
    _stamp("lease_until", null=True),
    _stamp("cancel_requested_at", null=True),
    _stamp("expires_at", null=True),
    Column("result", JSON),
    Column("error", JSON),
    Column("validation", JSON),
    _text("finish_reason"),
    _text("finish_reason_raw"),
    _text("partial_text"),
    _text("model"),
    Column("usage", JSON),
    Column("attempts", sa.Integer, nullable=False, server_default="0"),
    Column("fallback_index", sa.Integer, nullable=False, server_default="0"),
    Column("last_seq", sa.Integer, nullable=False, server_default="0"),
    _stamp("created_at"),
    _stamp("started_at", null=True),
    _stamp("ended_at", null=True),
    Column("resume", JSON),
    _stamp("wake_at", null=True),
    _stamp("ready_at", null=True),
    Column("replaces", sa.Uuid),
    Column("superseded", sa.Boolean, nullable=False, server_default="false"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("run_id", sa.Uuid, primary_key=True),
    Column("stream", sa.SmallInteger, primary_key=True),
    Column("fallback_index", sa.SmallInteger, primary_key=True),
    Column("attempt", sa.SmallInteger, primary_key=True),
    _project(),
    Column("branch_id", sa.Uuid),
    _text("purpose", null=False),
    _text("model"),
    _text("provider"),
    _text("wire_model"),
    _text("outcome", null=False),
    _text("code"),
    Column("input_tokens", sa.Integer, nullable=False),
    Column("output_tokens", sa.Integer, nullable=False),
    Column("cached_input_tokens", sa.Integer),
    Column("cache_write_tokens", sa.Integer),
    Column("reasoning_tokens", sa.Integer),
    Column("reported", sa.Boolean, nullable=False),
    Column("estimated", sa.Boolean, nullable=False),
    Column("cost", sa.Numeric),
    _stamp("started_at"),
    _stamp("ended_at"),
)

messages = Table(
    "messages",
    metadata,
    _id(),
    _project(),
    Column("branch_id", sa.Uuid, ForeignKey("branches.id", ondelete="CASCADE"), nullable=False),
    Column("position", sa.Integer, nullable=False),
    _text("kind", null=False),
    _text("sender"),
    _text("recipient"),
    Column("content", JSON, nullable=False),
    Column("run_id", sa.Uuid),
    Column("action_request_id", sa.Uuid, ForeignKey("messages.id", ondelete="CASCADE"), unique=True),
    _stamp("created_at"),
    Column("superseded", sa.Boolean, nullable=False, server_default="false"),
    sa.UniqueConstraint("branch_id", "position"),
)

function_calls = Table(
    "function_calls",
    metadata,
    _id(),
    _project(),
    Column("run_id", sa.Uuid, ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("branch_id", sa.Uuid, ForeignKey("branches.id", ondelete="CASCADE")),
    Column("call_id", sa.Uuid, nullable=False),
    Column("attempt", sa.SmallInteger, nullable=False),
    Column("batch", sa.Integer, nullable=False),
    Column("index", sa.Integer, nullable=False),
    _text("function", null=False),
    Column("arguments", JSON),
    Column("raw_arguments", JSON),
    _text("arguments_digest"),
    _text("provider_call_id"),
    Column("action_request_id", sa.Uuid, ForeignKey("messages.id", ondelete="CASCADE"), nullable=False),
    _text("status", null=False),
    Column("duration", sa.Double),
    Column("response", JSON),
    Column("error", JSON),
    Column("retryable", sa.Boolean),
    Column("gate", JSON),
    _stamp("created_at"),
    _stamp("started_at", null=True),
    _stamp("ended_at", null=True),
    sa.UniqueConstraint("run_id", "batch", "index", "attempt"),
    sa.UniqueConstraint("call_id", "attempt"),
)

approvals = Table(
    "approvals",
    metadata,
    _id(),
    _project(),
    Column("run_id", sa.Uuid, ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column(
        "function_call_id",
        sa.Uuid,
        ForeignKey("function_calls.id", ondelete="CASCADE"),
        nullable=False,
        unique=True,
    ),
    _text("function", null=False),
    Column("arguments", JSON, nullable=False),
    _text("arguments_digest", null=False),
    _text("asked_by", null=False),
    _text("reason"),
    _text("status", null=False),
    Column("edited", JSON),
    _text("edited_digest"),
    _text("comment"),
    Column("decided_by", sa.Uuid),
    _stamp("decided_at", null=True),
    _stamp("created_at"),
    _stamp("expires_at"),
)

client_calls = Table(
    "client_calls",
    metadata,
    Column(
        "function_call_id",
        sa.Uuid,
        ForeignKey("function_calls.id", ondelete="CASCADE"),
        primary_key=True,
    ),
    _project(),
    Column("run_id", sa.Uuid, ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("branch_id", sa.Uuid, ForeignKey("branches.id", ondelete="CASCADE")),
    Column("call_id", sa.Uuid, nullable=False),
    Column("attempt", sa.SmallInteger, nullable=False),
    _text("function", null=False),
    Column("arguments", JSON, nullable=False),
    _text("arguments_digest", null=False),
    _text("status", null=False),
    Column("lease_s", sa.Double, nullable=False),
    Column("lease_token", sa.Uuid),
    _stamp("lease_until", null=True),
    Column("leased_by", sa.Uuid),
    Column("output", JSON),
    Column("output_truncated", sa.Boolean, nullable=False, server_default="false"),
    Column("error", JSON),
    _text("result_digest"),
    Column("answered_by", sa.Uuid),
    _stamp("created_at"),
    _stamp("expires_at"),
    _stamp("ended_at", null=True),
)

events = Table(
    "events",
    metadata,
    Column("run_id", sa.Uuid, primary_key=True),
    Column("ts", sa.BigInteger, nullable=False),
    Column("seq", sa.Integer, primary_key=True),
    Column("type", sa.SmallInteger, nullable=False),
    Column("stream", sa.SmallInteger),
    Column("attempt", sa.SmallInteger),
    Column("fallback", sa.SmallInteger),
    Column("meta", JSON),
    Column("callbacks", JSON),
    postgresql_partition_by="RANGE (run_id)",
)

token_blocks = Table(
    "token_blocks",
    metadata,
    Column("run_id", sa.Uuid, primary_key=True),
    Column("ts", sa.BigInteger, nullable=False),
    Column("seq", sa.Integer, primary_key=True),
    Column("count", sa.Integer, nullable=False),
    Column("stream", sa.SmallInteger, nullable=False),
    Column("attempt", sa.SmallInteger, nullable=False),
    Column("fallback", sa.SmallInteger, nullable=False),
    _text("text", null=False),
    Column("lengths", sa.LargeBinary, nullable=False),
    Column("delays", sa.LargeBinary, nullable=False),
    postgresql_partition_by="RANGE (run_id)",
)

purged_logs = Table(
    "purged_logs",
    metadata,
    Column("run_id", sa.Uuid, primary_key=True),
    Column("project_id", sa.Uuid, nullable=False),
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("project_id", sa.Uuid, ForeignKey("projects.id", ondelete="CASCADE"), primary_key=True),
    _text("scope", primary_key=True, null=False),
    _text("key", primary_key=True, null=False),
    Column("fingerprint", sa.LargeBinary, nullable=False),
    Column("run_id", sa.Uuid),
    Column("status", sa.SmallInteger),
    Column("body", JSON),
    _stamp("created_at", default=True),
)

webhook_endpoints = Table(
    "webhook_endpoints",
    metadata,
    _id(),
    _project(),
    _text("url", null=False),
    _text("description"),
    Column("callbacks", ARRAY(sa.Text)),
    Column("event_types", ARRAY(sa.Text), nullable=False),
    Column("active", sa.Boolean, nullable=False, server_default="true"),
    _stamp("disabled_at", null=True),
    _text("disabled_reason"),
    _text("secret", null=False),
    _text("previous_secret"),
    _stamp("previous_until", null=True),
    _stamp("created_at", default=True),
    _stamp("updated_at", default=True),
)

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("endpoint_id", sa.Uuid, primary_key=True),
    Column("run_id", sa.Uuid, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("project_id", sa.Uuid, nullable=False),
    _text("status", null=False, server_default="pending"),
    Column("delivered_seq", sa.Integer, nullable=False, server_default="0"),
    Column("post_seq", sa.Integer),
    Column("posts", sa.Integer, nullable=False, server_default="0"),
    Column("failures", sa.Integer, nullable=False, server_default="0"),
    _stamp("next_at", default=True),
    Column("epoch", sa.Integer, nullable=False, server_default="0"),
    _stamp("lease_until", null=True),
    Column("news", sa.Boolean, nullable=False, server_default="false"),
    Column("last_status", sa.SmallInteger),
    _text("last_error"),
    _stamp("last_attempt_at", null=True),
    _stamp("created_at", default=True),
    _stamp("ended_at", null=True),
)

quotas = Table(
    "quotas",
    metadata,
    _id(),
    _project(),
    Column("key_id", sa.Uuid, ForeignKey("api_keys.id", ondelete="CASCADE")),
    Column("requests_per_minute", sa.Integer),
    Column("concurrent_runs", sa.Integer),
    Column("tokens_per_day", sa.BigInteger),
    Column("cost_per_day", sa.Numeric),
    _stamp("updated_at", default=True),
)


quota_minutes = Table(
    "quota_minutes",
    metadata,
    Column("quota_id", sa.Uuid, primary_key=True),
    Column("minute", sa.BigInteger, nullable=False),
    Column("quota", sa.Integer, nullable=False),
    Column("taken", sa.Integer, nullable=False),
    Column("granted", sa.Integer, nullable=False),
)

quota_runs = Table(
    "quota_runs",
    metadata,
    Column("quota_id", sa.Uuid, primary_key=True),
    Column("run_id", sa.Uuid, primary_key=True),
)

quota_days = Table(
    "quota_days",
    metadata,
    Column("quota_id", sa.Uuid, primary_key=True),
    Column("day", sa.Date, primary_key=True),
    Column("writer", sa.Uuid, primary_key=True),
    Column("tokens", sa.BigInteger, nullable=False),
    Column("cost", sa.Numeric, nullable=False),
)

audit_log = Table(
    "audit_log",
    metadata,
    _id(),
    Column("project_id", sa.Uuid),
    _stamp("at", default=True),
    Column("key_id", sa.Uuid),
    _text("action", null=False),
    _text("subject", null=False),
    _text("digest_before"),
    _text("digest_after"),
    Column("detail", JSON),
)
