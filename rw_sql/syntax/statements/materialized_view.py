"""Defines the statements about materialized views."""

from __future__ import annotations

from dataclasses import dataclass

from rw_sql.syntax.statements.common import Name, Option, Query, Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateMaterializedView(Statement):
    """``CREATE MATERIALIZED VIEW [IF NOT EXISTS] n [(columns)] [WITH (…)] AS query [EMIT ON WINDOW CLOSE]``."""

    name: Name
    query: Query
    if_not_exists: bool = False
    or_replace: bool = False
    columns: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    is_emit_on_window_close: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropMaterializedView(Statement):
    """``DROP MATERIALIZED VIEW [IF EXISTS] n [CASCADE | RESTRICT]``."""

    name: Name
    if_exists: bool = False
    is_cascade: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterMaterializedViewQuery(Statement):
    """``ALTER MATERIALIZED VIEW n AS query``."""

    name: Name
    query: Query


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildMaterializedView(Statement):
    """``REBUILD MATERIALIZED VIEW n [CASCADE] [REASON 'text']``: builds a new table while queries read the old rows."""

    name: Name
    is_cascade: bool = False
    reason: str | None = None
