"""Finds the last record of each key in a batch, with Spark or, for a small batch, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.runtime.views.emptied import empties
from rw_sql.runtime.views.key_records import DELETE, OP, ORDER, UNCHANGED, is_kept, order, order_of, visible
from rw_sql.syntax.query.maintained_form import KEEP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

_EXACT = frozenset({
    "bigint", "binary", "boolean", "date", "decimal", "int", "smallint", "string", "timestamp", "timestamp_ntz",
    "tinyint",
})  # fmt: skip
"""The types whose values Arrow compares as Spark does. Floating-point types are missing, because Spark, unlike Arrow,
treats all NaN values as equal, and 0.0 and -0.0 as equal."""


def last_of_each(frame: DataFrame, key: Sequence[str], more: Sequence[str] = ()) -> DataFrame:
    """Returns the last record of each key. In the result, the column KEEP is false for a record that deletes its key.
    ``more`` are additional columns of ``frame`` to return."""
    from pyspark.sql import Window, functions

    keys = [functions.col(f"`{name}`") for name in key]
    newest = functions.row_number().over(
        Window.partitionBy(*keys).orderBy(*(functions.desc(name) for name in order(frame)))
    )
    last = frame.withColumn("_rw_age", newest).where("_rw_age = 1")
    return last.withColumn(KEEP, is_kept(frame)).select(*visible(frame), *_told(frame), *more, KEEP)


def last_rows(frame: DataFrame, key: Sequence[str], more: Sequence[str] = (), *, is_exact: bool) -> pa.Table:
    """Does the same as :func:`last_of_each` for a batch that fits into this process's memory, but returns an Arrow
    table.

    If ``is_exact``, the result of :func:`is_exact`, is true, Spark only decodes the records, and Arrow finds the last
    ones. For a few rows, a window function in Spark would take longer than the rest of the batch, because Spark
    analyzes and plans the function for each batch.
    """
    return last_of_rows(frame.toArrow(), key, more) if is_exact else last_of_each(frame, key, more).toArrow()


def last_of_rows(rows: pa.Table, key: Sequence[str], more: Sequence[str] = ()) -> pa.Table:
    """Does the same as :func:`last_rows` for records that are in this process's memory. Must be called only if Arrow
    groups these records by key as Spark does (:func:`are_exact`)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = rows.column_names
    rows = last_row_of_each(rows, key, order_of(names))
    kept = pc.not_equal(rows[OP], DELETE) if OP in names else pa.repeat(pa.scalar(True), rows.num_rows)
    told = [name for name in names if name not in (*ORDER, OP, UNCHANGED)]
    return rows.select([*told, *([UNCHANGED] if UNCHANGED in names else []), *more]).append_column(
        pa.field(KEEP, pa.bool_(), nullable=OP in names), kept
    )


def rows_alone(last: pa.Table) -> pa.Table | None:
    """Converts the last records of keys to rows of the table, with the column KEEP. Returns None if a record omits
    values or empties the table, because the new rows then depend on the table's existing rows."""
    names = last.column_names
    if UNCHANGED in names and last[UNCHANGED].null_count < last.num_rows:
        return None
    if OP in names and empties(last):
        return None
    return last.drop_columns([name for name in (UNCHANGED, OP) if name in names])


def last_row_of_each(rows: pa.Table, key: Sequence[str], sorted_by: Sequence[str]) -> pa.Table:
    """The last row of each key if the rows are sorted by the columns ``sorted_by``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if rows.num_rows < 2:
        return rows
    ages = {}
    for name in sorted_by:
        # NULL is the smallest value of a column, as in Spark.
        ages[f"{name} is known"], ages[name] = pc.is_valid(rows[name]), rows[name]
    rows = rows.take(pc.sort_indices(pa.table(ages), sort_keys=[(name, "ascending") for name in ages]))
    numbered = rows.select(list(key)).append_column("_rw_at", pa.array(range(rows.num_rows), pa.int64()))
    last = numbered.group_by(list(key)).aggregate([("_rw_at", "max")])["_rw_at_max"]
    return rows if len(last) == rows.num_rows else rows.take(last)


def _told(frame: DataFrame) -> list[str]:
    return [UNCHANGED] if UNCHANGED in frame.columns else []


def is_exact(frame: DataFrame, key: Sequence[str]) -> bool:
    """True if Arrow groups the records of ``frame`` by the columns ``key`` exactly as Spark does."""
    return are_exact({field.name: field.dataType.simpleString() for field in frame.schema.fields}, key)


def are_exact(kinds: Mapping[str, str], key: Sequence[str]) -> bool:
    """Does the same as :func:`is_exact`. ``kinds`` maps the names of columns to Spark's names of their types."""
    return all(kinds.get(name, "").partition("(")[0] in _EXACT for name in key)
