"""Actions for the statements about tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.errors import INVALID_EXPRESSION, SYNTAX_ERROR, SqlError
from rw_sql.syntax.lexing.identifiers import quoted
from rw_sql.syntax.lexing.tokens import QUOTED, WORD, scan
from rw_sql.syntax.parsing.actions.columns import one_of
from rw_sql.syntax.parsing.actions.formats import connector_of, require_format, require_no_slip
from rw_sql.syntax.parsing.actions.parts import dropped, expression, query
from rw_sql.syntax.parsing.actions.source import require_types
from rw_sql.syntax.statements.common import CdcTable, DataType, Query, Statement
from rw_sql.syntax.statements.table import (
    AlterTableAddConstraint,
    AlterTableColumn,
    AlterTableDropColumn,
    AlterTableDropConnector,
    AlterTableRenameColumn,
    AlterTableRenameConstraint,
    AlterTableWatermark,
    CreateTable,
    DropTable,
    RefreshTable,
    Webhook,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.syntax.lexing.tokens import Token
    from rw_sql.syntax.parsing.actions.columns import Columns
    from rw_sql.syntax.statements.common import (
        Expression,
        FormatEncode,
        IncludeColumn,
        Name,
        Option,
        TableConstraint,
        Watermark,
    )


def create_table(
    or_replace: bool | None,
    is_temporary: bool | None,
    if_not_exists: bool | None,
    name: Name,
    columns: Columns,
    is_append_only: bool | None,
    on_conflict: str | None,
    version_columns: tuple[Token, ...],
    include: tuple[IncludeColumn, ...],
    options: tuple[Option, ...],
    format_encode: FormatEncode | None,
    body: Query | CdcTable | None,
    webhook: Webhook | None,
    engine: str | None,
) -> CreateTable:
    for column in columns.computed:
        raise SqlError(
            SYNTAX_ERROR,
            f'column "{column.token.value}" has no type',
            span=column.token.span,
            hint=f"write a type after the name: {quoted(column.token.value)} INT AS …",
        )
    connector = connector_of(options)
    asked = body if isinstance(body, Query) else None
    if connector is not None and connector != "webhook":
        require_format(connector, format_encode, is_source=False, options=options)
    elif format_encode is not None:
        require_no_slip(options)
        raise SqlError(
            SYNTAX_ERROR,
            "FORMAT needs a connector",
            hint="add WITH (connector = …)" if connector is None else "omit FORMAT … ENCODE …",
            span=format_encode.span,
        )
    if webhook is not None and connector != "webhook":
        raise SqlError(
            SYNTAX_ERROR,
            "VALIDATE is only supported for tables created with webhook source",
            span=name.span,
            hint="omit VALIDATE",
        )
    if webhook is not None:
        _require_call(webhook.signature)
    if columns.watermarks and asked is not None:
        raise SqlError(
            SYNTAX_ERROR,
            "watermarks can't be defined on table created by CREATE TABLE AS",
            span=columns.watermarks[0].span,
            hint="omit WATERMARK",
        )
    if asked is None or columns.columns:
        require_types(columns.untyped)
    return CreateTable(
        name=name,
        if_not_exists=bool(if_not_exists),
        is_temporary=bool(is_temporary),
        or_replace=bool(or_replace),
        columns=columns.columns,
        column_names=tuple(token.value for token in columns.untyped),
        wildcard=columns.wildcard,
        constraints=columns.constraints,
        watermarks=columns.watermarks,
        is_append_only=bool(is_append_only),
        on_conflict=on_conflict,
        version_columns=tuple(token.value for token in version_columns),
        version_spans=tuple(token.span for token in version_columns),
        include=include,
        options=options,
        format=format_encode,
        query=asked,
        cdc_table=body if isinstance(body, CdcTable) else None,
        webhook=webhook,
        engine=engine,
    )


def conflict_update_full() -> str:
    return "DO UPDATE FULL"


def conflict_do_nothing() -> str:
    return "DO NOTHING"


def conflict_update_if_not_null() -> str:
    return "DO UPDATE IF NOT NULL"


def version_columns(*names: tuple[Token, ...]) -> tuple[Token, ...]:
    return names[0] if names else ()


def table_body(text: Token | None = None) -> Query | None:
    return query(text) if text is not None else None


def cdc_table(source: Name, table: Token) -> CdcTable:
    return CdcTable(source=source, table=table.value, span=table.span)


def webhook(text: Token | None = None) -> Webhook | None:
    return Webhook(signature=expression(text)) if text is not None else None


def webhook_with_secret(secret: Name, text: Token) -> Webhook:
    return Webhook(signature=expression(text), secret=secret)


def _require_call(signature: Expression) -> None:
    """Raises SqlError INVALID_EXPRESSION for an expression that is not a single call such as ``f(…)``."""
    parts = scan(signature.text)[:-1]
    at = 1
    while at + 1 < len(parts) and parts[at].text == ".":
        at += 2
    is_call = parts[0].kind in (WORD, QUOTED) and at < len(parts) and parts[at].text == "("
    depth = 0
    for part in parts[at:-1]:
        depth += (part.text == "(") - (part.text == ")")
        is_call = is_call and depth > 0
    if not is_call:
        raise SqlError(
            INVALID_EXPRESSION,
            "expected a function call: secure_compare(...)",
            span=signature.span,
            hint="VALIDATE AS secure_compare(headers ->> '…', '…')",
        )


def engine(name: Token | None = None) -> str | None:
    return one_of(name, ("iceberg", "hummock"), "expected an engine") if name is not None else None


def drop_table(if_exists: bool | None, name: Name, is_cascade: bool | None) -> DropTable:
    return DropTable(name=dropped(name), if_exists=bool(if_exists), is_cascade=bool(is_cascade))


def refresh_table(name: Name) -> RefreshTable:
    return RefreshTable(name=name)


def add_constraint(constraint: TableConstraint) -> Callable[[str, Name], Statement]:
    return lambda _, name: AlterTableAddConstraint(name=name, constraint=constraint)


def drop_connector() -> Callable[[str, Name], Statement]:
    return lambda _, name: AlterTableDropConnector(name=name)


def drop_column(
    _column: None, if_exists: bool | None, column: Token, is_cascade: bool | None
) -> Callable[[str, Name], Statement]:
    return lambda _, name: AlterTableDropColumn(
        name=name,
        column=column.value,
        if_exists=bool(if_exists),
        is_cascade=bool(is_cascade),
        column_span=column.span,
    )


def rename_column(_column: None, old: Token, new: Token) -> Callable[[str, Name], Statement]:
    return lambda _, name: AlterTableRenameColumn(
        name=name, column=old.value, new_column=new.value, column_span=old.span
    )


def rename_constraint(old: Token, new: Token) -> Callable[[str, Name], Statement]:
    return lambda _, name: AlterTableRenameConstraint(name=name, constraint=old.value, new_constraint=new.value)


def alter_watermark(watermark: Watermark) -> Callable[[str, Name], Statement]:
    return lambda _, name: AlterTableWatermark(name=name, watermark=watermark)


ColumnChange = tuple[str, DataType | None, "Token | None"]


def set_not_null() -> ColumnChange:
    return "SET NOT NULL", None, None


def drop_not_null() -> ColumnChange:
    return "DROP NOT NULL", None, None


def set_default(text: Token) -> ColumnChange:
    return "SET DEFAULT", None, text


def drop_default() -> ColumnChange:
    return "DROP DEFAULT", None, None


def set_type(_words: None, data_type: DataType, using: Token | None = None) -> ColumnChange:
    return "TYPE", data_type, using


def alter_column(_column: None, column: Token, change: ColumnChange) -> Callable[[str, Name], Statement]:
    word, data_type, text = change
    checked = expression(text) if text is not None else None
    return lambda _, name: AlterTableColumn(
        name=name, column=column.value, change=word, data_type=data_type, expression=checked
    )


TABLE_RULES: dict[str, Callable[..., Any]] = {
    "create_table": create_table,
    "conflict_update_full": conflict_update_full,
    "conflict_do_nothing": conflict_do_nothing,
    "conflict_update_if_not_null": conflict_update_if_not_null,
    "version_columns": version_columns,
    "table_body": table_body,
    "cdc_table": cdc_table,
    "webhook": webhook,
    "webhook_with_secret": webhook_with_secret,
    "engine": engine,
    "drop_table": drop_table,
    "refresh_table": refresh_table,
    "add_constraint": add_constraint,
    "drop_connector": drop_connector,
    "drop_column": drop_column,
    "rename_column": rename_column,
    "rename_constraint": rename_constraint,
    "alter_watermark": alter_watermark,
    "set_not_null": set_not_null,
    "drop_not_null": drop_not_null,
    "set_default": set_default,
    "drop_default": drop_default,
    "set_type": set_type,
    "alter_column": alter_column,
}
