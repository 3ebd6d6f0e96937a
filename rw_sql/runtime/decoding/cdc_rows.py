"""Decodes the rows of one table from the log of a change data capture source.

The log stores each value as the text that the upstream has sent. Therefore, tables with different column types can read
one log, and so can tables that are created later. A row with a value that does not fit its column becomes an error,
which ``<table>$errors`` lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pyspark.sql import functions as f

from rw_sql.connectors.support.table_names import two_parts
from rw_sql.model.definitions import (
    INDEX_COLUMN,
    KEPT_TIME,
    UNCHANGED_COLUMN,
    has_snapshot,
    include_name,
    primary_key,
    unchanged_path,
)
from rw_sql.runtime.decoding.change_formats.events import (
    CHANGES,
    DELETE,
    UPSERT,
    EventKey,
    change_of,
    no_fields,
)
from rw_sql.runtime.decoding.change_formats.rows import CHANGE, OP, ROW, rows_of
from rw_sql.runtime.decoding.change_formats.unchanged import MOVED
from rw_sql.runtime.decoding.change_formats.values import ValueRules
from rw_sql.runtime.decoding.decoder import BATCH, BUCKET, ERROR, OFFSET, RUN, SINCE, SPLIT
from rw_sql.runtime.decoding.json_text import LONG_STRINGS, last_of_each, once
from rw_sql.runtime.support.deferred_columns import DeferredColumns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import Column, DataFrame

    from rw_sql.metastore.records import LivePosition
    from rw_sql.syntax.statements import CreateSource, IncludeColumn

TRUNCATE, SWEEP = -2, -3
"""Additional values of ``_rw_op`` (see :mod:`rw_sql.runtime.decoding.change_formats.events`).

TRUNCATE removes all rows of the table. SWEEP follows a repeated snapshot. It removes the rows that have not been read
again since the source's position was last set.
"""

BEGIN_OF_SNAPSHOT, END_OF_SNAPSHOT = "b", "s"
"""The values of ``op`` in the marker rows that rw_sql writes to the log before and after a repeated snapshot."""

_OF_SNAPSHOT = ("r", BEGIN_OF_SNAPSHOT, END_OF_SNAPSHOT)

INDEX, UNCHANGED = INDEX_COLUMN[0], UNCHANGED_COLUMN[0]

RULES = ValueRules(
    needs_zone=True, bytes_as="hex", booleans=(("t", "true", "1"), ("f", "false", "0")), counts_dimensions=True
)
"""The rules for values in the text form of PostgreSQL."""

NUMBER = "_rw_change_number"
"""The column with the number of a change, which :func:`numbered` adds."""

_FIELDS, _KEYS = "_rw_fields", "_rw_key_fields"
_MAP = "MAP<STRING, STRING>"


def cdc_frame(
    log: DataFrame, statement: CreateSource, live_from: LivePosition, *, is_numbered: bool = False
) -> DataFrame:
    """The rows of a table, decoded from the log. The rows have the table's columns, the columns that order the rows,
    ``_rw_op``, ``_rw_unchanged`` and ``_rw_error``.

    ``statement`` defines the form of the rows (:func:`rw_sql.model.definitions.cdc_rows`). Rows of the log up to
    ``live_from`` are left out. If ``is_numbered`` is True, ``log`` must be the result of :func:`numbered`, and each row
    of ``log`` results in at most one row. Otherwise, a row of ``log`` may result in several rows.
    """
    if statement.cdc_table is None:
        raise TypeError("the statement names no upstream table")
    own = log.where(f.col("table_name") == statement.cdc_table.table).where(f.col(BUCKET) >= live_from.hour)
    own = own.where(_is_after(live_from))
    if not has_snapshot(statement):
        own = own.where(~f.col("op").isin(*_OF_SNAPSHOT))  # These rows come from another table's snapshot.
    fields, keys = _members("row"), _members("key")
    if not is_numbered:
        fields, keys = once(fields), once(keys)
    told = own.withColumn(_FIELDS, fields).withColumn(_KEYS, keys).withColumn(CHANGES, _changes())
    if is_numbered:
        told = told.where(f.col(NUMBER) < f.size(CHANGES)).withColumn(CHANGE, f.get(CHANGES, NUMBER))
    else:
        told = told.withColumn(CHANGE, f.explode(CHANGES))
    decoding = _decoding_of(log.sparkSession.sparkContext, statement)
    return decoding.steps.of(told).select(*decoding.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decoding:
    """The steps that decode the changes to a table, and the columns of the result, for one definition of the table.

    To build these columns, PySpark calls the JVM hundreds of times for each column of the table. Therefore, all batches
    of the table share one object of this class.
    """

    steps: DeferredColumns
    columns: tuple[Column, ...]


_MOST_DECODINGS = 500

_decodings: WeakKeyDictionary[SparkContext, dict[CreateSource, _Decoding]] = WeakKeyDictionary()


def _decoding_of(context: SparkContext, statement: CreateSource) -> _Decoding:
    known = _decodings.setdefault(context, {})
    found = known.get(statement)
    if found is None:
        if len(known) >= _MOST_DECODINGS:
            known.clear()
        found = known[statement] = _new_decoding(statement)
    return found


def _new_decoding(statement: CreateSource) -> _Decoding:
    rows, error = rows_of(DeferredColumns(()), statement, EventKey(columns=primary_key(statement)), RULES)
    return _Decoding(
        steps=rows,
        columns=(
            *(f.col(ROW).getField(column.name).alias(column.name) for column in statement.columns),
            *(_included(column, statement).alias(include_name("", column)) for column in statement.include),
            *(f.col(name) for name in (SPLIT, OFFSET, RUN, BATCH, SINCE, INDEX, OP)),
            _unchanged(statement).alias(UNCHANGED),
            error.alias(ERROR),
            f.coalesce("row", "key").cast("binary").alias("_rw_raw"),
        ),
    )


def numbered(log: pa.Table, table: str) -> pa.Table:
    """Returns the rows of the log that belong to the upstream table ``table``. A row occurs once for each change that
    it can represent: twice if it is an update that changed the key, and otherwise once. The column NUMBER contains the
    number of the change, beginning with 0."""
    import pyarrow as pa
    import pyarrow.compute as pc

    own = log.filter(pc.equal(log["table_name"], table))
    moved = own.filter(pc.and_(pc.equal(own["op"], "u"), pc.is_valid(own["key"])))
    parts = [
        rows.append_column(NUMBER, pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows))
        for number, rows in enumerate((own, moved))
    ]
    return pa.concat_tables(parts)


def _is_after(live_from: LivePosition) -> Column:
    """True for a row of the log that the source's reader read after the place ``live_from``."""
    is_later, is_beyond = f.col(SINCE) > live_from.since, f.col(OFFSET) > live_from.offset
    if live_from.run < 0:
        return is_later | is_beyond
    # Positions of different epochs are not comparable: a statement may have set the source's position back, or to
    # another server. Positions and epochs of different splits are not comparable either, because a source that is moved
    # back to a split continues there with the split's older epoch. The number of the run decides for other splits: a
    # run that begins after the table's creation reads only later changes, and an earlier run no longer reads another
    # split.
    is_own = f.col(SPLIT) == live_from.split
    return f.when(is_own, is_later | ((f.col(SINCE) == live_from.since) & is_beyond)).otherwise(
        f.col(RUN) > live_from.run
    )


def _members(column: str) -> Column:
    return f.when(f.col(column).isNotNull(), last_of_each(f.from_json(f.col(column), _MAP, LONG_STRINGS)))


def _changes() -> Column:
    """The changes that a row of the log represents.

    An update that changes the row's key becomes two changes: a delete of the old key, then an upsert of the new row.
    """
    op, fields, keys = f.col("op"), f.col(_FIELDS), f.col(_KEYS)
    upsert = change_of(UPSERT, fields)
    return (
        f.when(op == "d", f.array(change_of(DELETE, keys, keys)))
        .when(op == "t", f.array(change_of(TRUNCATE, no_fields())))
        .when(op == END_OF_SNAPSHOT, f.array(change_of(SWEEP, no_fields())))
        .when(op == BEGIN_OF_SNAPSHOT, f.filter(f.array(upsert), lambda _: f.lit(False)))
        .when((op == "u") & keys.isNotNull(), f.array(change_of(DELETE, keys, keys), upsert))
        .otherwise(f.array(upsert))
    )


def _unchanged(statement: CreateSource) -> Column:
    """Returns the paths of the table's columns whose values the upstream did not send because they are unchanged; NULL
    if there are none. If the row's key changed, the result also contains MOVED."""
    names = [column.name for column in statement.columns if column.name not in primary_key(statement)]
    paths = {name: unchanged_path([name]) for name in names}
    if any(column.kind == "timestamp" for column in statement.include):
        paths[KEPT_TIME] = KEPT_TIME
    if not paths:
        return f.lit(None).cast("array<string>")
    listed = f.filter(f.col(UNCHANGED), lambda name: name.isin(*paths))
    if any(path != name for name, path in paths.items()):
        known = f.create_map(*(f.lit(text) for pair in paths.items() for text in pair))
        listed = f.transform(listed, lambda name: known[name])
    moved = f.when(f.size(CHANGES) > 1, f.array(f.lit(MOVED))).otherwise(f.array().cast("array<string>"))
    return f.when((f.col(OP) == UPSERT) & (f.size(listed) > 0), f.concat(listed, moved))


def _included(column: IncludeColumn, statement: CreateSource) -> Column:
    if statement.cdc_table is None:
        raise TypeError("the statement names no upstream table")
    schema, table = two_parts(statement.cdc_table.table, '`"') or ("", statement.cdc_table.table)
    match column.kind:
        case "timestamp":
            return f.col("timestamp")
        case "database_name":
            # A MySQL source may name several databases, separated by commas. The name of a table begins with its
            # database.
            is_one_of_them = f.array_contains(f.split(f.col(SPLIT), " *, *"), schema)
            return f.when(is_one_of_them, f.lit(schema)).otherwise(f.col(SPLIT))
        case "schema_name":
            return f.lit(schema)
        case "table_name":
            return f.lit(table)
        case other:
            raise ValueError(f"INCLUDE {other} is not a column of a table of a change data capture source")
