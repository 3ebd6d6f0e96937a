"""Compares all rows of an upstream with a table. The result is the new rows, the changed rows and the deleted keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f
from pyspark.sql.types import AtomicType

from rw_sql.runtime.spark.jvm import java_frame
from rw_sql.syntax.query.maintained_form import KEEP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

_EXACT_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS",
    "timestampNTZFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS",
}
_KEY, _ROW = ("_rw_key_1", "_rw_key_2"), ("_rw_row_1", "_rw_row_2")
"""The names of the columns with hashes of the key and of the row: two hashes of 64 bits for each. With a billion rows,
a collision is less likely than a disk error."""

_THERE = "_rw_there"
_SEEN = "rw_sql: keys met"


def changed_rows(fresh: DataFrame, table: DataFrame | None, keys: Sequence[str]) -> DataFrame:
    """Returns the differences between two tables as rows with the column KEEP. If KEEP is true, the row is a row of
    ``fresh`` whose key is missing in ``table``, or whose values differ from the values in ``table``. If KEEP is false,
    the row contains a key of ``table`` that is missing in ``fresh``.

    The two tables have the same columns. Keys and rows are compared by hash. Therefore, Spark shuffles only the keys
    and hashes of the table's rows. If several rows of ``fresh`` have the same key, the comparison uses only one of
    these rows, and the choice of this row is deterministic. ``table`` is None if the table is known to be empty.
    """
    columns = fresh.columns
    hashed = _hashed(_hashed(fresh, columns, _ROW), keys, _KEY)
    # The rows are partitioned and sorted as the join below requires. Using the keys themselves would shuffle all rows
    # twice, because a null-safe join uses other columns.
    order = Window.partitionBy(*_KEY).orderBy(*_ROW)
    single = hashed.withColumn(_THERE, f.row_number().over(order)).where(f"{_THERE} = 1")
    if table is None:
        return single.select(*(f.col(f"`{name}`") for name in columns), f.lit(True).alias(KEEP))
    known = _hashed(_hashed(table, columns, _ROW), keys, _KEY)
    known = known.select(*(f.col(f"`{key}`") for key in keys), *_KEY, *_ROW, f.lit(1).alias(_THERE))
    new, old = single.alias("n"), known.alias("o")
    is_same_key = _equal(_KEY)
    is_new, is_known = f.col(f"n.{_THERE}").isNotNull(), f.col(f"o.{_THERE}").isNotNull()
    both = new.join(old, is_same_key, "full_outer").where(~is_new | ~is_known | ~_equal(_ROW))
    return both.select(*_values(columns, keys, is_new), is_new.alias(KEEP))


def quickly_changed_rows(fresh: DataFrame, table: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Does the same as :func:`changed_rows`, but sorts only the rows that differ. The result is correct only if
    ``fresh`` has no key of ``table`` more than once.

    Afterwards, :func:`had_each_key_once` uses the number of rows to determine whether this condition was met. If a key
    that ``table`` lacks occurs several times in ``fresh``, this function keeps only one of the rows with this key.
    """
    columns = fresh.columns
    new = _hashed(_hashed(fresh, columns, _ROW), keys, _KEY).withColumn(_THERE, f.lit(1)).alias("n")
    known = _hashed(_hashed(table, columns, _ROW), keys, _KEY)
    known = known.select(*(f.col(f"`{key}`") for key in keys), *_KEY, *_ROW, f.lit(1).alias(_THERE))
    old = known.alias("o").hint("shuffle_hash")
    is_new, is_known = f.col(f"n.{_THERE}").isNotNull(), f.col(f"o.{_THERE}").isNotNull()
    both = new.join(old, _equal(_KEY), "full_outer")
    both = both.observe(
        _SEEN, f.count_if(is_new & is_known).alias("in both"), f.count_if(~is_new & is_known).alias("gone")
    )
    differ = both.where(~is_new | ~is_known | ~_equal(_ROW)).select(
        *_values(columns, keys, is_new),
        is_new.alias(KEEP),
        *(f.coalesce(f.col(f"n.{name}"), f.col(f"o.{name}")).alias(name) for name in (*_KEY, *_ROW)),
    )
    order = Window.partitionBy(*_KEY).orderBy(*_ROW)
    single = differ.withColumn(_THERE, f.row_number().over(order)).where(f"{_THERE} = 1")
    return single.select(*(f.col(f"`{name}`") for name in columns), f.col(KEEP))


def had_each_key_once(changes: DataFrame, table_rows: int) -> bool:
    """True if ``changes``, the result of :func:`quickly_changed_rows`, is correct. Must be called after all rows of the
    result have been computed and persisted. ``table_rows`` is the number of the table's rows.

    Each row of the table is counted either as present in both tables or as deleted. If ``fresh`` has a key of the table
    twice, the total exceeds the number of the table's rows.
    """
    seen = java_frame(changes).queryExecution().observedMetrics().get(_SEEN)
    if not seen.isDefined():
        return False
    row = seen.get()
    return bool(row.getLong(0) + row.getLong(1) == table_rows)


def _values(columns: Sequence[str], keys: Sequence[str], is_new: Column) -> list[Column]:
    """Returns the columns of a row of the result. For a new or changed row, the values are those of the row in
    ``fresh``. For a deleted key, the key columns have the key's values in the table, and all other columns are NULL."""
    return [
        f.when(is_new, f.col(f"n.`{name}`")).otherwise(f.col(f"o.`{name}`")).alias(name)
        if name in keys
        else f.col(f"n.`{name}`")
        for name in columns
    ]


def _equal(names: tuple[str, str]) -> Column:
    first, second = names
    return (f.col(f"n.{first}") == f.col(f"o.{first}")) & (f.col(f"n.{second}") == f.col(f"o.{second}"))


def _hashed(rows: DataFrame, columns: Sequence[str], names: tuple[str, str]) -> DataFrame:
    """Returns the rows with two hashes of the columns ``columns``. Each hash also covers whether a value is NULL,
    because Spark's hash function skips NULLs."""
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    parts: list[Column] = []
    for name in columns:
        column = f.col(f"`{name}`")
        value = column if isinstance(kinds[name], AtomicType) else f.to_json(f.struct(column), _EXACT_JSON)
        parts += [value, column.isNull()]
    first, second = names
    return rows.withColumns({first: f.xxhash64(*parts), second: f.xxhash64(f.lit("rw_sql"), *parts)})
