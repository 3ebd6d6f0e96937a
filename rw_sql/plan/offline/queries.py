"""Analyzes the query of a view or sink. Finds the query's inputs and the errors in its text.

The package ``rw_sql.plan.queries.analysis`` contains the analysis itself. Only :func:`read_text` calls this package.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.errors import UNDEFINED_OBJECT, ErrorCode, SqlError, near_names
from rw_sql.model.object_lookup import (
    RELATION_KINDS,
    find_relation,
    in_other_schemas,
    is_schema,
    other_than_relation,
)
from rw_sql.model.relations import relation_of
from rw_sql.plan.offline.query_answers import UNKNOWN_TYPE, written_names
from rw_sql.plan.queries.analysis.analyze import analyze
from rw_sql.plan.queries.analysis.findings import Column
from rw_sql.plan.queries.analysis.functions import builtins, versions_with
from rw_sql.plan.queries.places import place_in_query
from rw_sql.syntax.dialect.equivalents import is_mistaken_function
from rw_sql.syntax.dialect.to_spark import to_spark
from rw_sql.syntax.query.qualify import bare_relations
from rw_sql.syntax.query.tables_read import table_places
from rw_sql.syntax.statements import Name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from rw_sql.metastore import Snapshot
    from rw_sql.syntax.statements import Query

Columns = tuple[tuple[str, str | None], ...]
"""Columns as pairs (name, Spark type). The type is None if it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFinding:
    """An error in a query's text. ``start`` and ``end`` are the range ``[start, end)`` of the text to which the error
    points."""

    start: int
    end: int
    code: ErrorCode
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextReading:
    """The result of analyzing a query's text. It contains the query's errors, and the query's columns (None if
    unknown)."""

    findings: tuple[TextFinding, ...] = ()
    columns: Columns | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryReading:
    """The result of analyzing a query. It contains the query's errors, the known columns, and the catalog names of the
    inputs.

    ``is_of_spark`` is True if the query reads tables that only Spark has. ``calls_own`` is True if the query calls
    functions that are not built into Spark.
    """

    errors: tuple[SqlError, ...] = ()
    columns: Columns | None = None
    tables: tuple[str, ...] = ()
    is_of_spark: bool = False
    calls_own: bool = False


def is_not_built_in(name: str) -> bool:
    """True if no supported version of Spark has a built-in function with this name, which must be in lower case. No
    user would give such a name to a function."""
    return not versions_with(name)


class _Functions:
    """Determines whether a function may be user-defined. ``created`` are the functions that the script creates.

    ``calls_own`` becomes True when the query turns out to call a function that may be user-defined.
    """

    def __init__(self, created: Collection[str]) -> None:
        self._created = created
        self.calls_own = False

    def may_be_defined(self, name: str) -> bool:
        """True if a user-defined function with this name may exist. The name must be in lower case."""
        found = name in self._created or (is_not_built_in(name) and not is_mistaken_function(name, builtins()))
        self.calls_own |= found
        return found


def read_query(
    query: Query,
    snapshot: Snapshot,
    *,
    dialect: str,
    unknown: Collection[int],
    of_spark: Collection[str],
    functions: Collection[str],
    names_columns: bool,
    may_read_spark: bool = False,
    has_strict_quotes: bool = False,
) -> QueryReading:
    """Analyzes a query whose inputs are objects of a catalog.

    ``unknown`` are the ids of the objects whose columns are unknown. ``of_spark`` are the names of Spark tables.
    ``functions`` are the names of functions that earlier statements created in Spark. If ``names_columns`` is True, the
    query must name its columns, because the statement lists no column names. If ``may_read_spark`` is True, every name
    that is not in the catalog may be a Spark table. For ``has_strict_quotes``, see :func:`analyze`.
    """
    if dialect != "spark":
        return _read_translated(query, snapshot, unknown=unknown, of_spark=of_spark)
    from sqlglot.errors import SqlglotError

    try:
        places = table_places(query.text)
    except (SqlglotError, RecursionError):
        places = ()
    errors: list[SqlError] = []
    inputs: dict[str, Columns | None] = {}
    tables: dict[str, None] = {}
    is_of_spark = False
    for place in places:
        name = place.key
        parts = place.written.replace("`", "").split(".")
        written = place.written.replace("`", "").lower()
        record = find_relation(snapshot, name) if len(parts) <= 2 else None
        if may_read_spark and written in of_spark:
            record = None
        if record is not None:
            tables[name] = None
            inputs[name] = None if record.id in unknown else columns_known(relation_of(record).columns)
            continue
        inputs[name] = None
        may_be_ours = len(parts) == 1 or (len(parts) == 2 and is_schema(snapshot, parts[0].lower()))
        if (
            may_be_ours
            and not may_read_spark
            and written not in of_spark
            and not _is_table_of_spark(snapshot, place.written)
        ):
            errors.append(_no_relation(snapshot, name, query, place.start, place.end + 1))
        else:
            is_of_spark = True
    own = _Functions(functions)
    reading = read_text(
        query.text,
        inputs,
        names_columns=names_columns,
        is_function=own.may_be_defined,
        has_strict_quotes=has_strict_quotes,
    )
    for found in reading.findings:
        span = place_in_query(query, found.start, found.end)
        errors.append(SqlError(found.code, found.message, span=span, hint=found.hint))
    return QueryReading(
        errors=tuple(errors),
        columns=None if errors or is_of_spark or not places else reading.columns,
        tables=tuple(tables),
        is_of_spark=is_of_spark,
        calls_own=own.calls_own,
    )


def _read_translated(
    query: Query, snapshot: Snapshot, *, unknown: Collection[int], of_spark: Collection[str]
) -> QueryReading:
    """Analyzes a query in RisingWave's dialect. The columns of the query's result remain unknown, because the analysis
    does not cover functions."""
    try:
        tables = to_spark(query).tables
    except SqlError:
        return QueryReading()  # the lowering reports this error
    places = {name: (start, end) for name, start, end in bare_relations(query.text, "risingwave")}
    errors: list[SqlError] = []
    inputs: dict[str, tuple[Column, ...] | None] = {}
    found: list[str] = []
    is_of_spark = False
    for name in tables:
        record = find_relation(snapshot, name)
        inputs[name] = None
        if record is not None:
            found.append(name)
            if record.id not in unknown:
                inputs[name] = _analyzed(columns_known(relation_of(record).columns))
            continue
        schema = name.rpartition(".")[0]
        if (
            (not schema or is_schema(snapshot, schema))
            and name not in of_spark
            and not _is_table_of_spark(snapshot, name)
        ):
            errors.append(_no_relation(snapshot, name, query, *places.get(name, (0, 1))))
        else:
            is_of_spark = True
    analysis = analyze(query.text, inputs, is_relation=lambda _: True, dialect="risingwave")
    for each in analysis.findings:
        span = place_in_query(query, each.offset, each.offset + each.length)
        errors.append(SqlError(each.kind, each.message, span=span, hint=each.hint))
    return QueryReading(errors=tuple(errors), tables=tuple(found), is_of_spark=is_of_spark)


def columns_known(columns: tuple[tuple[str, str], ...]) -> Columns:
    """Returns a relation's columns. Each unknown type is None."""
    return tuple((name, None if kind == UNKNOWN_TYPE else kind) for name, kind in columns)


def _is_table_of_spark(snapshot: Snapshot, written: str) -> bool:
    return any(table.written == written for table in snapshot.all("delta_table"))


def _no_relation(snapshot: Snapshot, name: str, query: Query, start: int, end: int) -> SqlError:
    known = [record.name for kind in RELATION_KINDS for record in snapshot.all(kind)]
    near = near_names(name, known)
    hint = f'did you mean "{near[0]}"?' if near else (
        f'create "{name}" before this statement; if it is a Spark table, write its schema too, or pass --spark-table '
        f'{shlex.quote(name)}'
    )  # fmt: skip
    span = place_in_query(query, start, end)
    other = other_than_relation(snapshot, name, span)
    if other is not None:
        return other
    hint = in_other_schemas(snapshot, known, Name.of(name)) or hint
    return SqlError(UNDEFINED_OBJECT, f'relation "{name}" does not exist', span=span, hint=hint)


def read_text(
    query: str,
    inputs: Mapping[str, Columns | None],
    *,
    names_columns: bool,
    is_function: Callable[[str], bool],
    has_strict_quotes: bool = False,
) -> TextReading:
    """Analyzes a query in Spark's SQL. Returns the findings and the columns of the query. ``inputs`` maps each relation
    to its columns, or to None if the columns are not known.

    If ``names_columns`` is True, every column of the query must have a unique name. For ``has_strict_quotes``, see
    :func:`analyze`. This function does not report relations that are missing from ``inputs``; the caller must refuse
    them. ``is_function`` is a function that returns True if a function with a lower-case name may be user-defined. The
    call of such a function is not a finding.
    """
    known = {name: _analyzed(columns) for name, columns in inputs.items()}
    found = analyze(
        query,
        known,
        is_relation=lambda _: True,
        is_function=is_function,
        is_stored=names_columns,
        has_strict_quotes=has_strict_quotes,
    )
    findings = tuple(
        TextFinding(
            start=each.offset, end=each.offset + each.length, code=each.kind, message=each.message, hint=each.hint
        )
        for each in found.findings
    )
    columns = found.columns
    if columns is None or any(not column.name for column in columns):
        names = written_names(query)
        columns = None if "*" in names else tuple(Column(name) for name in names)
    return TextReading(
        findings=findings,
        columns=None if columns is None else tuple((column.name, column.data_type) for column in columns),
    )


def _analyzed(columns: Columns | None) -> tuple[Column, ...] | None:
    return None if columns is None else tuple(Column(name, kind) for name, kind in columns)
