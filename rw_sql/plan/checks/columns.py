"""Compares declared columns with the columns of an upstream, if the columns of the upstream have types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.registry import connector, connector_names
from rw_sql.connectors.snapshots import ColumnChecker, ColumnLister
from rw_sql.errors import INVALID_DEFINITION, INVALID_PROPERTY, UNDEFINED_COLUMN, SqlError
from rw_sql.model.definitions import connector_of, field_of, option_text
from rw_sql.plan.checks.column_names import placed
from rw_sql.syntax import parse_statement, spark_type
from rw_sql.syntax.lexing.identifiers import quoted
from rw_sql.syntax.statements import CreateSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rw_sql.errors import Span
    from rw_sql.model.options import PlannedOptions
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import ColumnDefinition, Option

VALIDATE = "validate"
"""The option of a WITH list that controls the check of the upstream. If the value of this option is false, the
definition is stored without checking the upstream."""


def is_validated(options: Iterable[Option]) -> bool:
    """False if the WITH list of the statement contains ``VALIDATE = false``; otherwise True.

    The option VALIDATE affects only the statement and is not stored with the object.
    """
    for option in options:
        if option.key == VALIDATE:
            text = option_text(option.value).lower()
            if text not in ("true", "false"):
                raise SqlError(
                    INVALID_PROPERTY,
                    "VALIDATE must be true or false",
                    span=option.value.span,
                    hint="write VALIDATE = true, or omit VALIDATE",
                )
            return text == "true"
    return True


def without_switch(options: Iterable[Option]) -> tuple[Option, ...]:
    """Returns the WITH list without VALIDATE. The catalog stores the WITH list in this form."""
    return tuple(option for option in options if option.key != VALIDATE)


def lists_columns(statement: CreateSource) -> bool:
    """True if the statement may omit the columns, because the source's connector can list the upstream's columns."""
    name = connector_of(statement)
    return name in connector_names() and isinstance(connector(name), ColumnLister)


def columns_of(listed: Mapping[str, str], span: Span) -> tuple[ColumnDefinition, ...]:
    """Makes column definitions from ``listed``, which maps names to canonical types. An error in one of these columns
    points at ``span``."""
    text = ", ".join(f"{quoted(name)} {kind}" for name, kind in listed.items())
    made = parse_statement(f"CREATE SOURCE s ({text}) WITH (connector = 'datagen')")
    assert isinstance(made, CreateSource)
    return placed(made.columns, span)


def require_columns(
    inspector: Inspector,
    kind: str,
    options: PlannedOptions,
    columns: Iterable[ColumnDefinition],
    name: str,
    span: Span,
    *,
    is_stored: bool = False,
    of: str = "table",
) -> None:
    """Raises SqlError if a declared column is missing upstream or has an incompatible type.

    If ``is_stored`` is True, the object already exists, and the function checks only that the columns exist upstream.
    It does not compare types, because the values that an existing object reads may fit the declared type even if the
    upstream's type differs.
    """
    if not isinstance(connector(kind), ColumnChecker):
        return
    declared = [column for column in columns if column.generated is None]
    wanted = {field_of(column): spark_type(column.data_type) for column in declared}
    misfit = inspector.upstreams.column_misfit(kind, options, wanted)
    if misfit is None or (is_stored and not misfit.is_missing):
        return
    column = next(column for column in declared if field_of(column) == misfit.column)
    raise SqlError(
        UNDEFINED_COLUMN if misfit.is_missing else INVALID_DEFINITION,
        f'column "{column.name}" of {of} "{name}" cannot be read: {misfit.message}',
        span=span if is_stored else column.span,
        hint=misfit.hint,
    )
