"""What a database's tables ask of those who write to them, and what of it changes from one to the next."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from tests.conftest import ROOT


def config_of(connection: Connection | None = None) -> Config:
    """Alembic's, for the migrations of this version."""
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    if connection is not None:
        config.attributes["connection"] = connection
    return config


def revisions() -> list[Any]:
    """Alembic's scripts, the oldest first."""
    return list(ScriptDirectory.from_config(config_of()).walk_revisions())[::-1]


def before_the_newest() -> str:
    """The revision that the version before the newest migration has."""
    return str(revisions()[-2].revision)


def upgrade(connection: Connection, revision: str) -> None:
    """Bring the database to a revision."""
    command.upgrade(config_of(connection), revision)
    connection.commit()


def downgrade(connection: Connection, revision: str) -> None:
    """Bring it back to one, with the rows that can be kept."""
    command.downgrade(config_of(connection), revision)
    connection.commit()


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    type: str
    required: bool
    """Whether a row may not leave it out."""
    null: bool


@dataclass(frozen=True, slots=True)
class Schema:
    """What counts for those who do not know a later one."""

    columns: dict[tuple[str, str], Column]
    """By table and name."""
    rules: dict[tuple[str, str], tuple[frozenset[str], str]]
    """Constraints and unique indexes, by table and name: their columns, and what they say."""
    functions: frozenset[str]
    """Names with arguments and results."""

    @property
    def tables(self) -> Collection[str]:
        """Their names."""
        return {table for table, _ in self.columns}


_OURS = """
SELECT c.oid, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND c.relname <> 'alembic_version'"""
_COLUMNS = f"""
SELECT o.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
       a.atthasdef OR a.attidentity <> ''
FROM ({_OURS}) o JOIN pg_attribute a ON a.attrelid = o.oid WHERE a.attnum > 0 AND NOT a.attisdropped"""
_CONSTRAINTS = f"""
SELECT o.relname, k.conname, pg_get_constraintdef(k.oid),
       ARRAY(SELECT attname::text FROM pg_attribute WHERE attrelid = o.oid AND attnum = ANY (k.conkey))
FROM ({_OURS}) o JOIN pg_constraint k ON k.conrelid = o.oid WHERE k.contype <> 'n'
UNION ALL
SELECT o.relname, i.relname, pg_get_indexdef(i.oid),
       ARRAY(SELECT attname::text FROM pg_attribute WHERE attrelid = o.oid AND attnum = ANY (x.indkey))
FROM ({_OURS}) o JOIN pg_index x ON x.indrelid = o.oid JOIN pg_class i ON i.oid = x.indexrelid
WHERE x.indisunique"""
_FUNCTIONS = """
SELECT p.oid::regprocedure::text || ' ' || pg_get_function_result(p.oid)
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'public'"""


def schema_of(connection: Connection) -> Schema:
    """What the database asks now."""
    columns = connection.execute(text(_COLUMNS)).all()
    rules = connection.execute(text(_CONSTRAINTS)).all()
    return Schema(
        {
            (t, name): Column(kind, strict and not given, not strict)
            for t, name, kind, strict, given in columns
        },
        {(t, name): (frozenset(of), says) for t, name, says, of in rules},
        frozenset(connection.scalars(text(_FUNCTIONS))),
    )


def narrowings(before: Schema, after: Schema) -> Iterator[str]:
    """What somebody who knows only the schema `before` could stumble over, one line for each."""
    for key, column in before.columns.items():
        name = ".".join(key)
        now = after.columns.get(key)
        if now is None:
            yield f"{name} is gone"
        elif now.type != column.type:
            yield f"{name} is {now.type}, no {column.type} any more"
        elif column.null and not now.null:
            yield f"{name} takes no null any more"
    for key in after.columns.keys() - before.columns.keys():
        if key[0] in before.tables and after.columns[key].required:
            yield f"{'.'.join(key)} is asked of rows that know nothing of it"
    for key, (_, says) in before.rules.items():
        if key[0] in after.tables and after.rules.get(key, ("", ""))[1] != says:
            yield f"{'.'.join(key)} says something else, or is gone"
    for key in after.rules.keys() - before.rules.keys():
        columns = after.rules[key][0]
        if any((key[0], name) in before.columns for name in columns):
            yield f"{'.'.join(key)} is asked of columns that were there before"
    for function in sorted(before.functions - after.functions):
        yield f"{function} is gone"
