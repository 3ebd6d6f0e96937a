"""Checks CREATE TABLE … FROM a change data capture source. The module first checks the clauses of the statement, and
then checks whether the columns fit the upstream table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.registry import captures_changes, change_connector
from rw_sql.connectors.spec import check_include
from rw_sql.errors import (
    INVALID_DEFINITION,
    INVALID_PROPERTY,
    NOT_SUPPORTED,
    UNDEFINED_COLUMN,
    UNKNOWN_PROPERTY,
    UNSUPPORTED_TYPE,
    UPSTREAM_MISSING,
    SqlError,
    near_names,
)
from rw_sql.model.definitions import GROUP_OPTION, SNAPSHOT, connector_of, field_of, option_text, primary_key
from rw_sql.model.job_specs import SNAPSHOT_BATCH_SIZE
from rw_sql.model.resource_groups import written_group
from rw_sql.plan.checks.sources import holds_interval
from rw_sql.plan.checks.tables import require_own_constraints
from rw_sql.syntax import canonical_type, spark_type
from rw_sql.syntax.lexing.identifiers import literal, quoted, sql_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.changes import Lack, UpstreamColumn, UpstreamTable
    from rw_sql.connectors.spec import ConnectorSpec
    from rw_sql.errors import Span
    from rw_sql.syntax.statements import ColumnDefinition, CreateTable

RATE_LIMIT = "backfill_rate_limit"
NO_EFFECT: Mapping[str, tuple[int, int] | None] = {
    "snapshot.interval": (1, 1_000_000),
    "backfill.parallelism": (0, 256),
    "backfill.num_rows_per_split": (0, 999_999_999),
    "backfill.as_even_splits": None,
    "backfill.split_pk_column_index": (0, 31),
}
"""Contains the options of RisingWave that configure a snapshot but have no effect in rw_sql. Each option is mapped to
its least and its greatest valid number, or to None if the option is boolean. The options have no effect because rw_sql
reads the ranges of the primary key one after another over a single connection."""

OPTIONS = (SNAPSHOT, SNAPSHOT_BATCH_SIZE, RATE_LIMIT, *NO_EFFECT)
"""The options that the WITH list of a table of a change data capture source may contain."""

_BATCH = (1, 1_000_000)
_RATE_DIGITS = 9
_WIDER = {
    "SMALLINT": ("INT", "BIGINT", "NUMERIC"),
    "INT": ("BIGINT", "NUMERIC"),
    "BIGINT": ("NUMERIC",),
    "REAL": ("DOUBLE",),
    "NUMERIC": ("RW_INT256", "RW_UINT256", "NUMERIC"),
}
"""Maps each type to the wider types that can represent every value of the type."""


def require_source_between(statement: CreateTable) -> None:
    """Raises SqlError NOT_SUPPORTED for a table that reads a database's changes without a source. RisingWave allows
    such tables. In rw_sql, a source reads the changes for all of its tables over one connection.
    """
    kind = connector_of(statement)
    if kind is None or not captures_changes(kind):
        return
    written = {option.key: option_text(option.value) for option in statement.options}
    table = written.get("table.name", "…")
    if "." not in table:
        part, example = change_connector(kind).table_prefix
        table = f"{written.get(f'{part}.name', example)}.{table}"
    source = sql_name(f"{statement.name.last}_source")
    raise SqlError(
        NOT_SUPPORTED,
        f'a table reads connector "{kind}" through a source, not directly',
        hint=f"CREATE SOURCE {source} WITH (connector = '{kind}', …) without the table's name, then "
        f"CREATE TABLE {sql_name(statement.name.key)} (*) FROM {source} TABLE {literal(table)}",
        span=next(option.span for option in statement.options if option.key == "connector"),
    )


def check_cdc_table(statement: CreateTable, spec: ConnectorSpec) -> None:
    """Checks the clauses of CREATE TABLE … FROM source TABLE 'name'. Raises SqlError at the first error."""
    place = statement.name.span
    if statement.wildcard is not None and statement.columns:
        raise SqlError(
            INVALID_DEFINITION,
            "wildcard(*) and column definitions cannot be used together",
            span=statement.columns[0].span,
            hint="write either * or the columns",
        )
    if statement.wildcard is None and not statement.columns:
        raise SqlError(
            INVALID_DEFINITION,
            f'table "{statement.name.key}" has no columns',
            span=place,
            hint=f"CREATE TABLE {sql_name(statement.name.key)} (*) FROM … takes all columns of the upstream table",
        )
    refused = (
        (statement.is_temporary, "TEMPORARY is not supported yet in CREATE TABLE", "omit it"),
        (statement.is_append_only, "append only modifier on the table created from a CDC source", "omit it"),
        (bool(statement.watermarks), "watermark defined on the table created from a CDC source", "omit it"),
        (statement.on_conflict is not None, "ON CONFLICT on the table created from a CDC source", "omit it"),
        (
            bool(statement.version_columns),
            "WITH VERSION COLUMN on the table created from a CDC source",
            "omit it: changes are applied in the upstream's order",
        ),
        (
            statement.format is not None,
            "Data format and encoding format doesn't apply to table created from a CDC source",
            "omit FORMAT … ENCODE …",
        ),
    )
    for is_there, what, instead in refused:
        if is_there:
            raise SqlError(NOT_SUPPORTED, what, span=place, hint=instead)
    for column in statement.columns:
        _check_column(column)
    require_own_constraints(statement)
    if statement.wildcard is None and not primary_key(statement):
        raise SqlError(
            INVALID_DEFINITION,
            "CDC table without primary key constraint is not supported",
            span=place,
            hint="add PRIMARY KEY (column): the columns of the upstream table's primary key",
        )
    for included in statement.include:
        check_include(spec, included.kind, included.span)
    check_options(statement)


def _check_column(column: ColumnDefinition) -> None:
    if column.default is not None:
        raise SqlError(
            NOT_SUPPORTED,
            "Default value for columns defined on the table created from a CDC source",
            span=column.span,
            hint="omit DEFAULT: the records already contain the default values of the upstream table",
        )
    if column.is_not_null:
        raise SqlError(
            NOT_SUPPORTED,
            "CDC table with NOT NULL constraint is not supported",
            span=column.span,
            hint="omit NOT NULL: the upstream table already enforces it",
        )
    if column.generated is not None:
        return
    if holds_interval(column.data_type):
        raise SqlError(
            UNSUPPORTED_TYPE,
            f'column "{column.name}" has a type that cannot be stored: INTERVAL',
            span=column.span,
            hint=f"declare it {quoted(column.name)} CHARACTER VARYING, which stores an interval as text",
        )
    try:
        spark_type(column.data_type)
    except SqlError as error:
        raise SqlError(
            UNSUPPORTED_TYPE,
            f'column "{column.name}": {error.message}',
            span=column.span,
            hint=f"declare it {quoted(column.name)} CHARACTER VARYING and CAST it in a materialized view",
        ) from error


def check_options(statement: CreateTable) -> None:
    """Checks the WITH list of a table of a change data capture source. Raises SqlError at the first error."""
    for option in statement.options:
        if option.key == GROUP_OPTION:
            written_group((option,))
            continue
        if option.key not in OPTIONS:
            near = near_names(option.key, OPTIONS)
            raise SqlError(
                UNKNOWN_PROPERTY,
                f'unknown property "{option.key}"',
                span=option.key_place,
                hint=f'did you mean "{near[0]}"?'
                if near
                else f"the options of a table of a source are {', '.join(OPTIONS)}",
                plain_keys=(option.key,),
            )
        text = option_text(option.value).lower()
        is_number = text.isascii() and text.isdecimal()
        bounds = NO_EFFECT.get(option.key, _BATCH)
        if (option.key == SNAPSHOT or bounds is None) and text not in ("true", "false"):
            raise SqlError(
                INVALID_PROPERTY,
                f"Invalid value for {option.key}: {text!r} is neither 'true' nor 'false'",
                span=option.value.span,
                hint="snapshot = 'false' reads only changes from now on"
                if option.key == SNAPSHOT
                else "omit the property: it has no effect",
            )
        if option.key == RATE_LIMIT and not (is_number and len(text) <= _RATE_DIGITS):
            raise SqlError(
                INVALID_PROPERTY,
                f'property "{RATE_LIMIT}" takes a number of rows per second, not {text!r}',
                span=option.value.span,
                hint="0 reads nothing until you raise the limit; omit the property for no limit",
            )
        if option.key in (SNAPSHOT, RATE_LIMIT) or bounds is None:
            continue
        if not (is_number and len(text) <= _RATE_DIGITS and bounds[0] <= int(text) <= bounds[1]):
            raise SqlError(
                INVALID_PROPERTY,
                f'property "{option.key}" must be a number from {bounds[0]} to {bounds[1]}, not {text!r}',
                span=option.value.span,
                hint=f"{option.key} = '{min(1000, bounds[1])}'",
            )


def notices_of_options(statement: CreateTable) -> tuple[str, ...]:
    """The notices about options of the WITH list that have no effect."""
    given = [option.key for option in statement.options if option.key in NO_EFFECT]
    if not given:
        return ()
    verb = "have" if len(given) > 1 else "has"
    return (
        f"{', '.join(given)} {verb} no effect: the source reads one range of the primary key after another; "
        f"{SNAPSHOT_BATCH_SIZE} sets the number of rows of a range",
    )


def check_against_upstream(statement: CreateTable, upstream: UpstreamTable, *, only: str | None = None) -> None:
    """Checks the declared columns and key against the upstream table. Raises SqlError at the first difference.

    If ``only`` is given, the function checks only the column whose upstream name is ``only``. If ``only`` is None, the
    function checks all columns.
    """
    known = {column.name: column for column in upstream.columns}
    for column in statement.columns:
        if column.generated is not None or only not in (None, field_of(column)):
            continue
        found = known.get(field_of(column))
        if found is None:
            near = near_names(field_of(column), known)
            raise SqlError(
                UNDEFINED_COLUMN,
                f"Column '{field_of(column)}' not found in the upstream database: "
                f"table {upstream.table} has no such column",
                span=column.span,
                hint=f'did you mean {quoted(near[0])}? Upper-case letters need "quotes"'
                if near
                else f"the table has {', '.join(quoted(name) for name in known)}",
            )
        if not fits(column, found):
            raise SqlError(
                INVALID_DEFINITION,
                f"Incompatible data type of column {column.name}: upstream it is {found.type}, "
                f"here {canonical_type(column.data_type)}",
                span=column.span,
                hint=f"declare it {quoted(column.name)} {found.canonical or 'CHARACTER VARYING'}",
            )
    fields = {column.name: field_of(column) for column in statement.columns}
    key = tuple(fields.get(name, name) for name in primary_key(statement))
    if not upstream.key:
        raise no_key(statement, upstream)
    if set(key) != set(upstream.key):
        listed = ", ".join(quoted(name) for name in upstream.key)
        raise SqlError(
            INVALID_DEFINITION,
            f"Primary key mismatch: the SQL schema defines {_columns(key)}, "
            f"but the source table {upstream.table} has {_columns(upstream.key)}",
            span=statement.name.span,
            hint=f"PRIMARY KEY ({listed})",
        )


def no_key(statement: CreateTable, upstream: UpstreamTable) -> SqlError:
    """The error for an upstream table without a primary key."""
    return SqlError(
        INVALID_DEFINITION,
        f"the upstream table {upstream.table} has no primary key, so its rows cannot be identified",
        span=statement.name.span,
        hint=f"add a primary key in the upstream database: ALTER TABLE {upstream.table} ADD PRIMARY KEY (…)",
    )


def _columns(key: tuple[str, ...]) -> str:
    return f"{len(key)} primary key column{'s' if len(key) != 1 else ''} ({', '.join(key)})"


def fits(column: ColumnDefinition, found: UpstreamColumn) -> bool:
    """True if a column of the declared type can represent every value of the upstream column ``found``. A CHARACTER
    VARYING column can represent the values of every type."""
    name, written = column.data_type.name, canonical_type(column.data_type)
    if found.accepts is not None:
        return found.accepts(written)
    if name == "CHARACTER VARYING" or found.canonical is None:
        return True
    if written == found.canonical:
        return True
    bare = found.canonical.partition("(")[0]
    return name == bare or name in _WIDER.get(bare, ())


def require_representable(statement: CreateTable, upstream: UpstreamTable) -> None:
    """Raises SqlError if ``*`` would include a column that no rw_sql type can represent."""
    for column in upstream.columns:
        if column.canonical is None and not column.is_generated:
            listed = ", ".join(quoted(each.name) for each in upstream.columns if each.canonical is not None)
            raise SqlError(
                UNSUPPORTED_TYPE,
                f"column {literal(column.name)} of table {upstream.table} is of type {column.type}: "
                f"{column.refusal or 'no type of rw_sql can hold its values'}",
                span=statement.name.span,
                hint=f"list the columns instead of *: {listed}",
            )


def require_no_lack(lacks: tuple[Lack, ...], name: str, span: Span, source: str) -> None:
    """Raises SqlError for the first requirement in ``lacks``; does nothing if ``lacks`` is empty. ``lacks`` are the
    requirements that the upstream does not meet. The hint of the error states how to meet the requirement. ``source``
    is the name of the source in the catalog."""
    for lack in lacks:
        hint = lack.hint.replace("SOURCE_NAME", sql_name(source))
        raise SqlError(UPSTREAM_MISSING, f'source validation failed for "{name}": {lack.message}', span=span, hint=hint)
