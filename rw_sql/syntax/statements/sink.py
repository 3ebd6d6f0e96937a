"""Defines the statements about sinks."""

from __future__ import annotations

from dataclasses import dataclass

from rw_sql.syntax.statements.common import FormatEncode, Name, Option, Query, Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSink(Statement):
    """``CREATE SINK [IF NOT EXISTS] n [INTO t [(columns)]] {FROM r | AS query} [EMIT …] [WITH (…)] [FORMAT …]``.

    Exactly one of ``relation`` and ``query`` is set. A statement without INTO must have options.
    """

    name: Name
    if_not_exists: bool = False
    or_replace: bool = False
    into: Name | None = None
    into_columns: tuple[str, ...] = ()
    relation: Name | None = None
    query: Query | None = None
    is_emit_on_window_close: bool = False
    options: tuple[Option, ...] = ()
    format: FormatEncode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceSink(Statement):
    """``REPLACE SINK n {FROM r | AS query} [EMIT …] WITH (…) [FORMAT …]``."""

    name: Name
    relation: Name | None = None
    query: Query | None = None
    is_emit_on_window_close: bool = False
    options: tuple[Option, ...] = ()
    format: FormatEncode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropSink(Statement):
    """``DROP SINK [IF EXISTS] n [CASCADE | RESTRICT]``."""

    name: Name
    if_exists: bool = False
    is_cascade: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseSink(Statement):
    """``PAUSE SINK n [REASON 'text']``."""

    name: Name
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeSink(Statement):
    """``RESUME SINK n [REASON 'text']``."""

    name: Name
    reason: str | None = None
