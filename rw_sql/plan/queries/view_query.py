"""Plans the query of a view or sink: finds the inputs, and requests Spark's analysis of the query."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from rw_sql.errors import DUPLICATE_OBJECT, INVALID_DEFINITION, INVALID_QUERY, NOT_SUPPORTED, SqlError
from rw_sql.metastore.records import DeltaTableRecord, Maintenance, SourceRecord
from rw_sql.model.object_lookup import find_relation, spark_query, spoken
from rw_sql.model.relations import changes_rows, relation_of, schema_columns
from rw_sql.plan.checks.column_names import duplicate_fields, first_duplicate, misnamed_field
from rw_sql.plan.ports.queries import WHOLE
from rw_sql.plan.queries.analysis.storing import suggested_name
from rw_sql.plan.queries.delta_inputs import delta_inputs
from rw_sql.plan.queries.maintenance import Maintained, decide
from rw_sql.plan.queries.places import place_of
from rw_sql.plan.queries.refusals import query_without_inputs, refused_query, unstorable_query
from rw_sql.syntax.dialect.to_spark import to_spark
from rw_sql.syntax.lexing.identifiers import quoted_for_spark, spark_name, sql_name
from rw_sql.syntax.query.maintained_form import renamed_columns
from rw_sql.syntax.query.tables_read import output_names, table_names, table_places

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.ports.queries import QueryAnalysis
    from rw_sql.syntax.statements import Query

_NOT_IN_NAMES = frozenset(",;{}()\n\t=")
"""Characters that Delta Lake refuses in column names. Names that Spark generates for unnamed expressions can contain
them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedQuery:
    """A query in the form that Spark runs, with the ids of the inputs, the schema of the result in Spark's JSON form,
    and the key columns. A new row replaces the row with the same key. If the query has no key columns, rows are
    appended.

    ``maintenance`` and ``notice`` are set only for views. ``new`` are the user's own tables that the query reads and
    that the catalog does not contain yet. The statement adds these tables to the catalog together with the view or
    sink.
    """

    text: str
    inputs: tuple[int, ...]
    schema: str
    keys: tuple[str, ...]
    maintenance: Maintenance = field(default_factory=Maintenance)
    new: tuple[DeltaTableRecord, ...] = ()
    notice: str = ""


def require_log(source: SourceRecord, span: Span) -> None:
    """Raises SqlError if ``source``, which a sink would read, is not shared.

    A source that is not shared has no log, so rw_sql could not determine which rows the sink has sent.
    """
    if not source.is_shared:
        raise SqlError(
            NOT_SUPPORTED,
            f'source "{source.name}" is not shared, so only views can read it',
            span=span,
            hint=f"CREATE MATERIALIZED VIEW v AS SELECT * FROM {spark_name(source.name)}, and create the sink FROM v",
        )


def plan_query(
    snapshot: Snapshot,
    inspector: Inspector,
    query: Query,
    what: str,
    dialect: str,
    *,
    closes_windows: bool,
    columns: tuple[str, ...] = (),
) -> PlannedQuery:
    """Checks and plans the query of ``what`` (a kind and a name, as used in messages).

    ``columns``, if given, are the column names that the statement lists. Raises SqlError if the query is refused.
    """
    if dialect == "risingwave":
        translated = to_spark(query, is_emit_on_window_close=closes_windows)
        written, tables = translated.text, translated.tables
    else:
        written, tables = query.text, table_names(query.text)
    read = [find_relation(snapshot, table) for table in tables]
    records: tuple[ObjectRecord, ...] = tuple(dict.fromkeys(record for record in read if record is not None))
    new: tuple[DeltaTableRecord, ...] = ()
    text = spark_query(written, [record.name for record in records])
    if not records:
        # If the query reads no rw_sql object, the user's own Delta tables are its streamed inputs. Otherwise, these
        # tables are not inputs, and each batch reads the current versions of these tables.
        own = delta_inputs(snapshot, inspector, query, text)
        text, records, new = own.text, own.records, own.new
    else:
        _require_same_tables(inspector, query, text, tables, records)
    inputs = tuple(record.id for record in records)
    if not inputs:
        raise query_without_inputs(snapshot, query, dialect, what, own.missing)
    refused = partial(refused_query, snapshot, query, records, dialect)
    _require_no_hidden(columns, records, query, what)
    if what.startswith("sink "):
        _require_appended(records, query)
        streamed = inspector.queries.analyze(
            text, tuple(relation_of(record) for record in records), closes_windows=closes_windows
        )
        found = Maintained(schema=streamed.schema, keys=streamed.keys, refused=streamed if streamed.refusal else None)
    else:
        if columns:
            text = _renamed(inspector, text, records, columns, query, what, refused)
        found = decide(inspector, text, records, closes_windows=closes_windows)
        found = replace(found, maintenance=_with_tables(found.maintenance, tables, records))
    if found.refused is not None:
        raise refused(found.refused)
    _require_names(snapshot, query, found, records, columns, what, dialect)
    return PlannedQuery(
        text=text,
        inputs=inputs,
        schema=found.schema,
        keys=found.keys,
        maintenance=found.maintenance,
        new=new,
        notice=found.notice,
    )


def _require_same_tables(
    inspector: Inspector, query: Query, text: str, tables: tuple[str, ...], records: tuple[ObjectRecord, ...]
) -> None:
    """Raises SqlError if the query reads a user's table by a name without a database, and the current database of the
    session differs from the current database of the jobs. In a job, the name would refer to a different table or to no
    table."""
    inputs = {record.name for record in records}
    if {*tables} <= inputs:
        return
    for place in table_places(text):
        if place.key in inputs or place.written.strip("`") != place.name:
            continue
        full = inspector.tables.in_current_database(place.name)
        if full:
            raise SqlError(
                INVALID_QUERY,
                f"the table {place.written} is in Spark's current database, but the job that runs the query has "
                "another current database",
                span=place_of(query, place.written),
                hint=f"write {full}",
            )


def _require_names(
    snapshot: Snapshot,
    query: Query,
    found: Maintained,
    records: tuple[ObjectRecord, ...],
    columns: tuple[str, ...],
    what: str,
    dialect: str,
) -> None:
    """Raises SqlError if Delta Lake cannot store the name of a column or field of the result, or if two columns have
    the same name."""
    names = [column for column, _ in schema_columns(found.schema)]
    unnamed = next((column for column in names if set(column) & _NOT_IN_NAMES), None)
    duplicate = first_duplicate(names)
    twice = None if duplicate is None else names[duplicate[1]]
    if (unnamed is not None or twice is not None) and not columns:
        unstorable = unstorable_query(snapshot, query, records, dialect)
        if unstorable is not None:
            raise unstorable
    if unnamed is not None:
        is_column = any(unnamed == name for record in records for name, _ in relation_of(record).columns)
        written_column = quoted_for_spark(unnamed) if is_column else unnamed
        raise SqlError(
            INVALID_QUERY,
            f'column "{unnamed}" needs a name',
            span=place_of(query, written_column),
            hint=f"name the column: {written_column} AS {suggested_name(unnamed)}",
        )
    wrong = misnamed_field(found.schema)
    if wrong is not None:
        name, why = wrong
        said = f'column "{name}"' if name in names else f'field "{name}" of a column'
        raise SqlError(
            INVALID_QUERY,
            f"{said} of {what} {why}",
            span=place_of(query, name),
            hint=f"{quoted_for_spark(name)} AS {suggested_name(name)}",
        )
    if twice is not None:
        raise SqlError(
            DUPLICATE_OBJECT,
            f'column "{twice}" occurs more than once',
            span=place_of(query, twice),
            hint=f"give one of the two another name: {twice} AS {twice}_2",
        )
    alike = None if what.startswith("sink ") else duplicate_fields(found.schema)
    if alike is not None:
        raise SqlError(
            DUPLICATE_OBJECT,
            f"a column of {what}: {alike}",
            span=query.span,
            hint="give one of the two fields another name, or extract the fields as columns",
        )


def _require_no_hidden(columns: tuple[str, ...], records: tuple[ObjectRecord, ...], query: Query, what: str) -> None:
    """Raises SqlError if a column of a query has the name of a hidden column.

    INCLUDE columns may have such a name.
    """
    given = {name for record in records for name, _ in relation_of(record).columns}
    for name in columns or output_names(query.text):
        if name.lower().startswith("_rw_") and name not in given:
            raise SqlError(
                INVALID_QUERY,
                f'column "{name}" of {what} cannot begin with _rw_, which names hidden columns',
                span=place_of(query, name),
                hint=f"AS {name.lstrip('_')}",
            )


def _with_tables(maintenance: Maintenance, tables: tuple[str, ...], records: tuple[ObjectRecord, ...]) -> Maintenance:
    """Adds a sentence to the maintenance's reason: each batch reads the newest version of the user's own tables, which
    the sentence names."""
    known = {record.written if isinstance(record, DeltaTableRecord) else record.name for record in records}
    known |= {record.name for record in records}
    own = [table.rpartition(".")[2] for table in tables if table not in known]
    if not own:
        return maintenance
    read = f"each batch reads the newest version of {', '.join(own)}"
    return replace(maintenance, reason=f"{maintenance.reason}; {read}")


def _renamed(
    inspector: Inspector,
    text: str,
    records: tuple[ObjectRecord, ...],
    columns: tuple[str, ...],
    query: Query,
    what: str,
    refused: Callable[[QueryAnalysis], SqlError],
) -> str:
    """Returns the query with its columns renamed to ``columns``. Raises SqlError if the number of columns differs."""
    found = inspector.queries.analyze(text, tuple(relation_of(record) for record in records), form=WHOLE)
    if found.refusal is not None:
        raise refused(found)
    names = [name for name, _ in schema_columns(found.schema)]
    if len(names) != len(columns):
        raise SqlError(
            INVALID_DEFINITION,
            f"{what} names {len(columns)} columns, but its query has {len(names)}",
            span=query.span,
            hint=f"write {len(names)} name{'' if len(names) == 1 else 's'}: the query's columns are {', '.join(names)}",
        )
    return renamed_columns(text, names, columns)


def _require_appended(records: tuple[ObjectRecord, ...], query: Query) -> None:
    for record in records:
        if isinstance(record, SourceRecord):
            require_log(record, query.span)
        if changes_rows(record):
            named = record.written if isinstance(record, DeltaTableRecord) else f'"{record.name}"'
            raise SqlError(
                NOT_SUPPORTED,
                f"{spoken(record.kind)} {named} replaces its rows; queries of sinks over it are not supported yet",
                span=query.span,
                hint=f"create the sink FROM {sql_name(record.name)} to write its changes, or create a materialized "
                "view with the query",
            )
