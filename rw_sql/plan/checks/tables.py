"""Checks a table's definition before contacting its upstream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import (
    DUPLICATE_CLAUSE,
    INVALID_DEFINITION,
    NOT_SUPPORTED,
    UNDEFINED_COLUMN,
    SqlError,
    near_names,
)
from rw_sql.metastore.records import IF_NOT_NULL, IGNORE, OVERWRITE
from rw_sql.model.definitions import connector_of, field_of, has_changes, include_name, include_type, primary_key
from rw_sql.plan.checks.column_names import misnamed, require_distinct, require_field_names, require_name
from rw_sql.plan.checks.sources import check_watermarks
from rw_sql.syntax import spark_type
from rw_sql.syntax.lexing.identifiers import quoted, sql_name

if TYPE_CHECKING:
    from rw_sql.errors import Span
    from rw_sql.syntax.statements import CreateTable, TableConstraint

_CONFLICTS = {"DO UPDATE FULL": OVERWRITE, "DO NOTHING": IGNORE, "DO UPDATE IF NOT NULL": IF_NOT_NULL}
_NO_KEYS = ("MAP", "STRUCT", "ARRAY", "JSONB")


def check_runnable(statement: CreateTable) -> None:
    """Raises SqlError NOT_SUPPORTED for valid syntax that is not supported. The error states an alternative."""
    span = statement.name.span
    if connector_of(statement) is None:
        if statement.query is not None:
            view = f"CREATE MATERIALIZED VIEW {sql_name(statement.name.key)} AS …"
            instead = f"{view} keeps the result of a query up to date"
        else:
            instead = (
                "add WITH (connector = 'kafka', …); for a Delta table without a connector, write CREATE TABLE t "
                "(…) USING delta"
            )
        raise SqlError(
            NOT_SUPPORTED,
            "a table with these clauses needs a connector from which it gets its rows",
            span=span,
            hint=instead,
        )
    refused = (
        (statement.is_temporary, span, "TEMPORARY", "omit it; DROP TABLE removes the table when you no longer need it"),
        (statement.wildcard is not None, span, "* among the columns", "list the columns"),
        (statement.query is not None, span, "AS query with a connector", "omit either WITH (…) or the query"),
        (
            statement.cdc_table is not None,
            span,
            "FROM source TABLE with a connector",
            "omit connector = …, because the source has a connector",
        ),
    )
    for is_there, place, what, instead in refused:
        if is_there:
            raise SqlError(NOT_SUPPORTED, f"{what} is not supported yet in CREATE TABLE", span=place, hint=instead)
    require_own_constraints(statement)


def require_own_constraints(statement: CreateTable) -> None:
    """Raises SqlError NOT_SUPPORTED for constraints that rw_sql would not enforce."""
    span = statement.name.span
    for constraint in statement.constraints:
        if constraint.kind != "PRIMARY KEY":
            raise SqlError(
                NOT_SUPPORTED,
                f"{constraint.kind} is not supported in CREATE TABLE",
                span=_placed(constraint, span),
                hint="omit it: only PRIMARY KEY is enforced",
            )
    for column in statement.columns:
        if column.other_constraints:
            raise SqlError(
                NOT_SUPPORTED,
                f'column "{column.name}": {column.other_constraints[0]} is not supported in CREATE TABLE',
                span=column.span,
                hint="omit it: only PRIMARY KEY is enforced",
            )


def conflict_of(statement: CreateTable) -> str:
    """Determines from a table's definition what the table does with a new row whose key already exists."""
    if statement.on_conflict is None:
        return IGNORE if statement.is_append_only else OVERWRITE
    return _CONFLICTS[statement.on_conflict]


def table_columns(statement: CreateTable) -> tuple[tuple[str, str], ...]:
    """Returns a table's columns with their Spark types. INCLUDE columns come last."""
    name = connector_of(statement) or ""
    declared = tuple((column.name, spark_type(column.data_type)) for column in statement.columns)
    return declared + tuple((include_name(name, column), include_type(column)) for column in statement.include)


def check_table(statement: CreateTable) -> None:
    """Checks the clauses that a CREATE TABLE has and a CREATE SOURCE does not have. Raises SqlError at the first
    error."""
    span = statement.name.span
    key = primary_key(statement)
    columns = _check_columns(statement)
    _require_columns(key, columns, "of the primary key", _key_places(statement), span)
    for column in statement.columns:
        if column.name in key and column.data_type.name in _NO_KEYS:
            raise SqlError(
                INVALID_DEFINITION,
                f'column "{column.name}" cannot identify a row, because it is of type {column.data_type.name}',
                span=column.span,
                hint="a primary key needs columns of scalar types",
            )
    if statement.is_append_only:
        _check_append_only(statement, key, span)
    elif statement.watermarks:
        raise SqlError(
            NOT_SUPPORTED,
            "defining watermarks on table requires the table to be append only",
            span=statement.watermarks[0].span,
            hint="add APPEND ONLY",
        )
    if not key:
        _check_without_key(statement, span)
    if statement.version_columns and conflict_of(statement) == IGNORE:
        raise SqlError(
            INVALID_DEFINITION,
            "the WITH VERSION COLUMN syntax cannot be used with the ignore behavior of ON CONFLICT",
            span=span,
            hint="ON CONFLICT DO UPDATE FULL WITH VERSION COLUMN (…)",
        )
    versions = dict(zip(statement.version_columns, statement.version_spans, strict=False))
    _require_columns(statement.version_columns, columns, "of WITH VERSION COLUMN", versions, span)
    for column in statement.columns:
        if column.name in statement.version_columns and column.data_type.name in _NO_KEYS:
            raise SqlError(
                INVALID_DEFINITION,
                f'column "{column.name}" cannot be a version: values of type {column.data_type.name} have no order',
                span=column.span,
                hint="a version column must be a number, a string or a time",
            )
    check_watermarks(statement)


def _check_columns(statement: CreateTable) -> dict[str, str]:
    columns = table_columns(statement)
    name = connector_of(statement) or ""
    places = [(column.name, column.span) for column in statement.columns]
    require_distinct([*places, *((include_name(name, column), column.span) for column in statement.include)])
    _check_fields(statement)
    for column in statement.columns:
        if column.generated is not None and column.is_not_null:
            raise SqlError(
                NOT_SUPPORTED,
                f'column "{column.name}": NOT NULL is not supported for a generated column',
                span=column.span,
                hint="omit it",
            )
        if column.name.startswith("_rw_"):
            raise SqlError(
                INVALID_DEFINITION,
                f'column "{column.name}" cannot begin with _rw_, which names hidden columns',
                span=column.span,
                hint=f"name the column {column.name.lstrip('_')}",
            )
        require_name(column.name, column.span)
        require_field_names(column.name, column.data_type, column.span)
    return dict(columns)


def _check_fields(statement: CreateTable) -> None:
    read: dict[str, str] = {}
    for column in statement.columns:
        if column.generated is not None:
            continue
        field = field_of(column)
        other = read.setdefault(field.lower(), column.name)
        if other != column.name:
            raise SqlError(
                DUPLICATE_CLAUSE,
                f'columns "{other}" and "{column.name}" are both read from field "{field}"',
                span=column.span,
                hint=f"compute one from the other: {quoted(column.name)} … AS {quoted(other)}",
            )
        if column.field is not None and field.startswith("_rw_"):
            raise SqlError(
                INVALID_DEFINITION,
                f'column "{column.name}" cannot be read from a field that begins with _rw_, which names hidden columns',
                span=column.span,
                hint=f"rename the field in the upstream to {field.lstrip('_')}, or omit the column",
            )
        why = misnamed(field) if column.field is not None else None
        if why is not None:
            raise SqlError(
                INVALID_DEFINITION,
                f'column "{column.name}" cannot be read from field "{field}": it {why}',
                span=column.span,
                hint="rename the field in the producer, because the source's log has a column with the field's name",
            )


def _check_append_only(statement: CreateTable, key: tuple[str, ...], span: Span) -> None:
    if has_changes(statement) and statement.format is not None:
        raise SqlError(
            INVALID_DEFINITION,
            f"an append only table does not support FORMAT {statement.format.format}, whose records change and delete "
            "rows",
            span=statement.format.span,
            hint="omit APPEND ONLY",
        )
    if key and conflict_of(statement) != IGNORE:
        raise SqlError(
            INVALID_DEFINITION,
            "when PRIMARY KEY constraint applied to an APPEND ONLY table, the ON CONFLICT behavior must be DO NOTHING",
            span=span,
            hint="write ON CONFLICT DO NOTHING, or omit APPEND ONLY",
        )


def _check_without_key(statement: CreateTable, span: Span) -> None:
    if has_changes(statement) and statement.format is not None:
        raise SqlError(
            INVALID_DEFINITION,
            f"primary key must be specified when creating table with FORMAT {statement.format.format} "
            f"ENCODE {statement.format.encode}",
            span=statement.format.span,
            hint="add PRIMARY KEY (column) to the columns",
        )
    clause = "ON CONFLICT" if statement.on_conflict is not None else "WITH VERSION COLUMN"
    if statement.on_conflict is not None or statement.version_columns:
        raise SqlError(
            INVALID_DEFINITION,
            f"{clause} needs a primary key, because without a key no two rows conflict",
            span=span,
            hint="add PRIMARY KEY (column) to the columns",
        )


def _require_columns(
    names: tuple[str, ...], columns: dict[str, str], where: str, places: dict[str, Span], otherwise: Span
) -> None:
    for name in names:
        if name not in columns:
            near = near_names(name, columns)
            raise SqlError(
                UNDEFINED_COLUMN,
                f'column "{name}" {where} does not exist',
                span=places.get(name, otherwise),
                hint=f'did you mean "{near[0]}"?' if near else "name a column of the table",
            )


def _key_places(statement: CreateTable) -> dict[str, Span]:
    """Maps the name of each column in PRIMARY KEY (…) to its position in the statement."""
    keys = (constraint for constraint in statement.constraints if constraint.kind == "PRIMARY KEY")
    return {name: span for key in keys for name, span in zip(key.columns, key.column_spans, strict=False)}


def _placed(constraint: TableConstraint, otherwise: Span) -> Span:
    """The position of a constraint in the text. If the parser provides no position for the constraint, the result is
    ``otherwise``."""
    return constraint.span if constraint.span.end else otherwise
