"""Defines the statements that create, drop and change tables."""

from __future__ import annotations

from dataclasses import dataclass, field

from rw_sql.errors import Span
from rw_sql.syntax.statements.common import (
    CdcTable,
    ColumnDefinition,
    DataType,
    Expression,
    FormatEncode,
    IncludeColumn,
    Name,
    Option,
    OptionKey,
    Query,
    Statement,
    TableConstraint,
    Watermark,
    at,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """``VALIDATE [SECRET s] AS expression``: the condition that verifies a webhook's requests."""

    signature: Expression
    secret: Name | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable(Statement):
    """``CREATE TABLE [IF NOT EXISTS] n [(columns)] … [INCLUDE …] [WITH (…)] [FORMAT …] [AS query | FROM s TABLE 't']``.

    ``column_names`` are the columns that are written without types, because ``AS query`` determines the types;
    ``wildcard`` is the index of ``*`` among the columns. ``on_conflict`` is ``DO UPDATE FULL``, ``DO NOTHING`` or ``DO
    UPDATE IF NOT NULL``.
    """

    name: Name
    if_not_exists: bool = False
    is_temporary: bool = False
    or_replace: bool = False
    columns: tuple[ColumnDefinition, ...] = ()
    column_names: tuple[str, ...] = ()
    wildcard: int | None = None
    constraints: tuple[TableConstraint, ...] = ()
    watermarks: tuple[Watermark, ...] = ()
    is_append_only: bool = False
    on_conflict: str | None = None
    version_columns: tuple[str, ...] = ()
    version_spans: tuple[Span, ...] = field(default=(), compare=False, repr=False)
    include: tuple[IncludeColumn, ...] = ()
    options: tuple[Option, ...] = ()
    format: FormatEncode | None = None
    query: Query | None = None
    cdc_table: CdcTable | None = None
    webhook: Webhook | None = None
    engine: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTable(Statement):
    """``DROP TABLE [IF EXISTS] n [CASCADE | RESTRICT]``."""

    name: Name
    if_exists: bool = False
    is_cascade: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshTable(Statement):
    """``REFRESH TABLE n``."""

    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTableUnsafeSet(Statement):
    """``ALTER TABLE n UNSAFE SET (k = v, …) [, UNSET (k, …)] [ALLOW …] [WITH (VALIDATE = bool)] [REASON 'text']``."""

    name: Name
    set_options: tuple[Option, ...] = ()
    unset_options: tuple[OptionKey, ...] = ()
    allow: tuple[str, ...] = ()
    is_validated: bool = True
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTableAddConstraint(Statement):
    """``ALTER TABLE n ADD constraint``."""

    name: Name
    constraint: TableConstraint


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTableDropConnector(Statement):
    """``ALTER TABLE n DROP CONNECTOR``."""

    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTableDropColumn(Statement):
    """``ALTER TABLE n DROP [COLUMN] [IF EXISTS] c [CASCADE]``."""

    name: Name
    column: str
    if_exists: bool = False
    is_cascade: bool = False
    column_span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTableRenameColumn(Statement):
    """``ALTER TABLE n RENAME [COLUMN] a TO b``."""

    name: Name
    column: str
    new_column: str
    column_span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTableRenameConstraint(Statement):
    """``ALTER TABLE n RENAME CONSTRAINT a TO b``."""

    name: Name
    constraint: str
    new_constraint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTableWatermark(Statement):
    """``ALTER TABLE n ALTER WATERMARK FOR c AS expression [WITH TTL]``."""

    name: Name
    watermark: Watermark


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTableColumn(Statement):
    """``ALTER TABLE n ALTER [COLUMN] c change``.

    ``change`` is SET NOT NULL, DROP NOT NULL, SET DEFAULT, DROP DEFAULT or TYPE. ``expression`` is the expression after
    SET DEFAULT or, for TYPE, after USING.
    """

    name: Name
    column: str
    change: str
    data_type: DataType | None = None
    expression: Expression | None = None
