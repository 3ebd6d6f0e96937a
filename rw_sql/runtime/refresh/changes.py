"""What a whole upstream changes in a table: the rows that are new or other ones, and those that are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f
from pyspark.sql.types import AtomicType, StructType

from rw_sql.syntax.maintained import KEEP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

_FIRST, _SECOND, _THERE = "_rw_first", "_rw_second", "_rw_there"
_EXACT_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS",
    "timestampNTZFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS",
}


def changed_rows(fresh: DataFrame, table: DataFrame | None, keys: Sequence[str]) -> DataFrame:
    """The rows of ``fresh`` that ``table`` has not, or has otherwise, with KEEP true; the keys that are gone, false.

    Both have the same columns. Rows are compared by two hashes of 64 bits, so that of the table's only the keys and
    these are moved about. Of rows with the same key one counts, and each time the same one. ``table`` is None where it
    is known to be empty.
    """
    columns = fresh.columns
    hashed = _hashed(fresh)
    # Ordered by the key first, so that the join below finds the rows in the order it needs.
    order = Window.partitionBy(*(f"`{key}`" for key in keys)).orderBy(_FIRST, _SECOND)
    single = hashed.withColumn(_THERE, f.row_number().over(order)).where(f"{_THERE} = 1")
    if table is None:
        return single.select(*(f.col(f"`{name}`") for name in columns), f.lit(True).alias(KEEP))
    known = _hashed(table).select(*(f.col(f"`{key}`") for key in keys), _FIRST, _SECOND, f.lit(1).alias(_THERE))
    new, old = single.alias("n"), known.alias("o")
    condition = f.lit(True)
    for key in keys:
        condition = condition & f.col(f"n.`{key}`").eqNullSafe(f.col(f"o.`{key}`"))
    is_new, is_known = f.col(f"n.{_THERE}").isNotNull(), f.col(f"o.{_THERE}").isNotNull()
    is_other = (f.col(f"n.{_FIRST}") != f.col(f"o.{_FIRST}")) | (f.col(f"n.{_SECOND}") != f.col(f"o.{_SECOND}"))
    both = new.join(old, condition, "full_outer").where(~is_new | ~is_known | is_other)
    values = [
        (f.when(is_new, f.col(f"n.`{name}`")).otherwise(f.col(f"o.`{name}`")) if name in keys else f.col(f"n.`{name}`"))
        .alias(name)
        for name in columns
    ]  # fmt: skip
    return both.select(*values, is_new.alias(KEEP))


def _hashed(rows: DataFrame) -> DataFrame:
    """The rows with two hashes of all their values. A null counts: a hash by itself passes over it."""
    parts: list[Column] = []
    for field in StructType(rows.schema.fields).fields:
        column = f.col(f"`{field.name}`")
        value = column if isinstance(field.dataType, AtomicType) else f.to_json(f.struct(column), _EXACT_JSON)
        parts += [value, column.isNull()]
    return rows.withColumns({_FIRST: f.xxhash64(*parts), _SECOND: f.xxhash64(f.lit("rw_sql"), *parts)})
