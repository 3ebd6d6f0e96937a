"""Compares definitions in a normal form that ignores layout, the order of properties, defaults, and options that matter
only at creation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from rw_sql.connectors.formats import KEY_SCHEMA, SCHEMA
from rw_sql.connectors.registry import (
    connector,
    connector_names,
    sink_connector,
    sink_connector_names,
)
from rw_sql.connectors.spec import duration_seconds
from rw_sql.connectors.support.table_names import plain_name
from rw_sql.metastore.records import DEFAULT_GROUP
from rw_sql.model.definitions import (
    GROUP_OPTION,
    PAUSED_AT_BIRTH,
    connector_of,
    has_schema,
    include_name,
    option_text,
    primary_key,
    stored_schema,
)
from rw_sql.model.sharing import SHARED, is_to_be_shared
from rw_sql.plan.checks.cdc_tables import NO_EFFECT
from rw_sql.plan.checks.columns import VALIDATE
from rw_sql.plan.queries.meaning import expression_meaning, meaning
from rw_sql.plan.statements.source.upstream_names import with_kept_names
from rw_sql.syntax.statements import (
    ConnectionValue,
    CreateMaterializedView,
    CreateSink,
    CreateSource,
    CreateTable,
    SecretValue,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.spec import ConnectorSpec, OptionSpec
    from rw_sql.syntax.statements import (
        ColumnDefinition,
        CreateConnection,
        FormatEncode,
        Option,
        Query,
    )

Definition = CreateSource | CreateTable | CreateSink | CreateMaterializedView

TakingT = TypeVar("TakingT", CreateSource, CreateTable)
"""The type of a definition whose columns may be derived from a schema."""

Dialects = tuple[str, str]
"""The dialects of the queries and expressions of two definitions that are compared. The first item is the dialect of
the current definition, and the second item is the dialect of the wanted definition."""

IN_SPARK: Dialects = ("spark", "spark")

_QUOTES = '`"'
"""The quotes in which connectors accept the parts of an upstream table's name."""

_AT_BIRTH = (PAUSED_AT_BIRTH, VALIDATE, "snapshot", "snapshot.batch_size", *NO_EFFECT)
"""Properties that are not compared, because they only affect the creation of an object."""


def spec_of(statement: CreateSource | CreateTable | CreateSink) -> ConnectorSpec | None:
    """The option specification of a definition's connector; None if there is no such connector."""
    name = connector_of(statement)
    if name is None:
        return None
    if isinstance(statement, CreateSink):
        return sink_connector(name).spec if name in sink_connector_names() else None
    return connector(name).spec if name in connector_names() else None


def own_options(statement: Definition | CreateConnection, spec: ConnectorSpec | None = None) -> dict[str, Option]:
    """The options of the WITH list by key. Options that repeat a default or that matter only at creation are left
    out."""
    options = {
        option.key: option
        for option in statement.options
        if option.key not in (*_AT_BIRTH, SHARED) and not _is_default_group(option)
    }
    if spec is None:
        return options
    return {
        key: option
        for key, option in options.items()
        if (known := spec.option(key)) is None or not known.is_default(option_text(option.value))
    }


def _is_default_group(option: Option) -> bool:
    is_text = not isinstance(option.value, SecretValue | ConnectionValue)
    return option.key == GROUP_OPTION and is_text and option_text(option.value).strip().lower() == DEFAULT_GROUP


def is_same_option(old: Option, new: Option, spec: ConnectorSpec | None) -> bool:
    """True if two values of an option have the same meaning."""
    if isinstance(old.value, SecretValue) or isinstance(new.value, SecretValue):
        return old.value == new.value
    known = spec.option(new.key) if spec is not None else None
    one, other = option_text(old.value), option_text(new.value)
    if new.key == "connector":
        return one.lower() == other.lower()
    return one == other or (known is not None and _folded(known, one) == _folded(known, other))


def _folded(known: OptionSpec, text: str) -> object:
    text = text.strip()
    if known.choices or known.type == "boolean":
        return known.canonical(text)
    try:
        match known.type:
            case "integer":
                return int(text)
            case "number":
                return float(text)
            case "duration":
                return duration_seconds(text)
            case _:
                return text
    except ValueError:
        return text


def as_written_before(
    current: CreateSource | CreateTable, wanted: CreateSource | CreateTable
) -> CreateSource | CreateTable:
    """Returns ``wanted``, completed with three parts of ``current`` if ``wanted`` omits them: the names of the objects
    that the reader creates upstream, the columns for ``*``, and the names of INCLUDE columns."""
    wanted = with_kept_names(current, wanted)
    if not isinstance(wanted, CreateTable) or not isinstance(current, CreateTable) or wanted.cdc_table is None:
        return wanted
    if wanted.wildcard is not None and not wanted.columns:
        wanted = replace(wanted, wildcard=None, columns=current.columns, constraints=current.constraints)
    names = {column.kind: column.alias for column in current.include if (column.alias or "").startswith("_rw_")}
    include = tuple(replace(each, alias=each.alias or names.get(each.kind)) for each in wanted.include)
    return replace(wanted, include=include)


def plain_column(column: ColumnDefinition) -> ColumnDefinition:
    """Returns the column without PRIMARY KEY, and without its constraints that are not enforced."""
    field = None if column.field == column.name else column.field
    return replace(column, field=field, is_primary_key=False, other_constraints=())


def compared_column(column: ColumnDefinition, dialect: str = "spark") -> ColumnDefinition:
    """Returns the plain column with its expressions in canonical form. ``dialect`` is the dialect of the column's
    expressions. The result is only for comparisons and must not be part of a statement."""
    generated, default = (
        None if each is None else replace(each, text=expression_meaning(each, dialect))
        for each in (column.generated, column.default)
    )
    return replace(plain_column(column), generated=generated, default=default)


def with_taken_columns(current: TakingT, wanted: TakingT) -> TakingT:
    """Returns ``wanted``. If ``wanted`` takes its columns from a schema, the result has the columns that ``current``
    got from the schema at its creation."""
    if stored_schema(current) is None or not has_schema(wanted):
        return wanted
    if any(column.generated is None for column in wanted.columns):
        return wanted
    at: int = wanted.wildcard or 0
    taken: tuple[ColumnDefinition, ...] = tuple(column for column in current.columns if column.generated is None)
    columns = (*wanted.columns[:at], *taken, *wanted.columns[at:])
    constraints = wanted.constraints or current.constraints
    return replace(wanted, columns=columns, constraints=constraints, wildcard=None)


def differing_clauses(current: Definition, wanted: Definition, dialects: Dialects = IN_SPARK) -> list[str]:
    """The clauses, other than columns and properties, in which two definitions of the same kind differ."""
    old, new = (clauses_of(each, dialect) for each, dialect in zip((current, wanted), dialects, strict=True))
    return [clause for clause, value in new.items() if old.get(clause) != value]


def clauses_of(statement: Definition, dialect: str = "spark") -> dict[str, object]:
    """The clauses of a definition other than columns and properties, in normal form. ``dialect`` is the dialect of the
    definition's query."""
    match statement:
        case CreateSource():
            return {
                **_of_records(statement),
                "shared": _is_shared(statement),
                "FROM … TABLE": statement.cdc_table,
                "TEMPORARY": statement.is_temporary,
            }
        case CreateTable():
            return {
                **_of_records(statement),
                "APPEND ONLY": statement.is_append_only,
                "ON CONFLICT": statement.on_conflict,
                "WITH VERSION COLUMN": statement.version_columns,
                "AS": _query(statement.query, dialect),
                "FROM … TABLE": (statement.cdc_table.source.key, plain_name(statement.cdc_table.table, _QUOTES))
                if statement.cdc_table is not None
                else None,
            }
        case CreateSink():
            return {
                "FROM": statement.relation.key if statement.relation is not None else None,
                "AS": _query(statement.query, dialect),
                "INTO": (statement.into.key if statement.into is not None else None, statement.into_columns),
                "EMIT ON WINDOW CLOSE": statement.is_emit_on_window_close,
                "FORMAT": _format(statement.format, None),
            }
        case CreateMaterializedView():
            return {
                "column names": statement.columns,
                "AS": _query(statement.query, dialect),
                "EMIT ON WINDOW CLOSE": statement.is_emit_on_window_close,
            }


def _of_records(statement: CreateSource | CreateTable) -> dict[str, object]:
    name = connector_of(statement) or ""
    is_known = name in connector_names()
    return {
        "PRIMARY KEY": primary_key(statement),
        "WATERMARK": tuple(
            (each.column, expression_meaning(each.expression, "spark"), each.is_with_ttl)
            for each in statement.watermarks
        ),
        "INCLUDE": tuple(
            (column.kind, column.inner, column.inner_type, include_name(name, column) if is_known else column.alias)
            for column in statement.include
        ),
        "FORMAT": _format(statement.format, connector(name).spec if is_known else None),
        "*": statement.wildcard,
    }


def _is_shared(statement: CreateSource) -> bool:
    name = connector_of(statement)
    return name in connector_names() and is_to_be_shared(statement, connector(name))


def _format(given: FormatEncode | None, spec: ConnectorSpec | None) -> object:
    if given is None:
        return (*spec.default_format, (), "JSON") if spec is not None and spec.default_format is not None else None
    options: Mapping[str, str] = {
        option.key: option_text(option.value) for option in given.options if option.key not in (SCHEMA, KEY_SCHEMA)
    }
    return given.format, given.encode, tuple(sorted(options.items())), given.key_encode or "JSON"


def _query(query: Query | None, dialect: str) -> str | None:
    return meaning(query, dialect) if query is not None else None
