"""The tables of what a project has registered; `tables` has them too."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Column, Table
from sqlalchemy.dialects.postgresql import ARRAY, JSON, JSONB

from app.adapters.db.table_columns import id_column, metadata, project_column, stamp_column, text_column

api_keys = Table(
    "api_keys",
    metadata,
    id_column(),
    project_column(),
    text_column("name", null=False),
    Column("digest", sa.LargeBinary, nullable=False, unique=True),
    text_column("prefix", null=False),
    Column("scopes", ARRAY(sa.Text), nullable=False),
    stamp_column("created_at", default=True),
    stamp_column("expires_at", null=True),
    stamp_column("revoked_at", null=True),
)

models = Table(
    "models",
    metadata,
    id_column(),
    project_column(),
    text_column("name", null=False),
    text_column("provider", null=False),
    text_column("model", null=False),
    text_column("base_url"),
    text_column("api_key_env"),
    Column("options", JSON, nullable=False),
    Column("lifecycle", JSONB),
    stamp_column("created_at", default=True),
    stamp_column("updated_at", default=True),
    Column("price", JSON),
    text_column("credential"),
    Column("limits", JSONB),
    sa.UniqueConstraint("project_id", "name"),
)

credentials = Table(
    "credentials",
    metadata,
    id_column(),
    project_column(),
    text_column("name", null=False),
    text_column("kind", null=False),
    text_column("secret", null=False),
    stamp_column("created_at", default=True),
    stamp_column("updated_at", default=True),
    stamp_column("rotated_at", default=True),
    sa.UniqueConstraint("project_id", "name"),
)

tools = Table(
    "tools",
    metadata,
    id_column(),
    project_column(),
    text_column("name", null=False),
    text_column("kind", null=False),
    text_column("description", null=False),
    Column("parameters", JSON, nullable=False),
    Column("strict", sa.Boolean, nullable=False),
    Column("idempotent", sa.Boolean, nullable=False),
    Column("settings", JSON, nullable=False),
    stamp_column("created_at", default=True),
    stamp_column("updated_at", default=True),
    sa.UniqueConstraint("project_id", "name"),
)

mcp_servers = Table(
    "mcp_servers",
    metadata,
    id_column(),
    project_column(),
    text_column("name", null=False),
    Column("settings", JSON, nullable=False),
    stamp_column("created_at", default=True),
    stamp_column("updated_at", default=True),
    sa.UniqueConstraint("project_id", "name"),
)
