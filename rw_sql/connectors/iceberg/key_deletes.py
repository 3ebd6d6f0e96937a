"""Deletes the rows with given keys from an Iceberg table. Each data file that contains such rows is replaced by new
data files without these rows (copy on write).

This module does not use pyiceberg's ``Transaction.delete``, which evaluates a condition for each row. For keys of
several columns, the condition would have a part for each key. The time would then be proportional to the number of rows
multiplied by the number of keys.
"""

from __future__ import annotations

import itertools
import uuid
from functools import reduce
from math import inf
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.support.sink_values import comparable
from rw_sql.packages import deferred

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table, Transaction
else:
    pa, pc = deferred("pyarrow"), deferred("pyarrow.compute")

_MOST_VALUES = 200
"""The maximum number of values of an IN condition that pyiceberg compares with the bounds of a file's column. With more
values, pyiceberg would skip no file."""

_GREATEST = 3.4028234663852886e38
"""The greatest finite floating-point number of 32 bits."""


def delete_keys(transaction: Transaction, table: Table, keys: pa.Table, summary: dict[str, str]) -> None:
    """Deletes each row of the table that equals a row of ``keys`` in all columns of ``keys``. Null counts as equal to
    null.

    If the table has such rows, one snapshot with the properties ``summary`` is added to the transaction. The columns of
    ``keys`` have the table's types.
    """
    condition = _may_have(keys)
    made: list[tuple[DataFile, list[DataFile]]] = []
    commit, numbers = uuid.uuid4(), itertools.count()
    for task in table.scan(row_filter=condition).plan_files():
        is_deleted = _is_among(_read(transaction, table, task, keys.column_names), keys)
        if not pc.any(is_deleted).as_py():
            continue
        kept: list[DataFile] = []
        if not pc.all(is_deleted).as_py():
            kept = _without_keys(transaction, table, task, keys, commit=commit, numbers=numbers)
        made.append((task.file, kept))
    if not made:
        return
    with transaction.update_snapshot(snapshot_properties=summary).overwrite(commit) as snapshot:
        # Selects the manifests in which the snapshot looks for the replaced files.
        snapshot.delete_by_predicate(condition)
        for replaced, files in made:
            snapshot.delete_data_file(replaced)
            for file in files:
                snapshot.append_data_file(file)


def _without_keys(
    transaction: Transaction, table: Table, task: FileScanTask, keys: pa.Table, *, commit: uuid.UUID, numbers: Any
) -> list[DataFile]:
    """Writes new files with those rows of a file whose keys are not in ``keys``. Returns the new files."""
    from pyiceberg.io.pyarrow import _dataframe_to_data_files

    rows = _read(transaction, table, task)
    kept = rows.filter(pc.invert(_is_among(rows, keys)))
    return list(
        _dataframe_to_data_files(
            io=table.io, df=kept, table_metadata=transaction.table_metadata, write_uuid=commit, counter=numbers
        )
    )


def _read(transaction: Transaction, table: Table, task: FileScanTask, columns: list[str] | None = None) -> pa.Table:
    """The rows of a file, except the rows that the table's delete files delete."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    schema = transaction.table_metadata.schema()
    projected = schema if columns is None else schema.select(*columns)
    return ArrowScan(transaction.table_metadata, table.io, projected, AlwaysTrue()).to_table(tasks=[task])


def _is_among(rows: pa.Table, keys: pa.Table) -> pa.Array:
    """Returns an array with a truth value for each row: true if ``keys`` contains the row's key."""
    at = pa.array(range(rows.num_rows), pa.int64())
    # The columns are named by their position, because a key column may have the name of the additional column "at".
    names = [str(number) for number in range(keys.num_columns)]
    columns = [
        comparable(pa.chunked_array([*key.chunks, *rows.column(name).cast(key.type).chunks], key.type))
        for name, key in zip(keys.column_names, keys.columns, strict=True)
    ]
    numbers = pa.chunked_array([pa.repeat(pa.scalar(-1, pa.int64()), keys.num_rows), at])
    numbered = pa.table([*columns, numbers], names=[*names, "at"])
    found = numbered.group_by(names, use_threads=False).aggregate([("at", "min"), ("at", "list")])
    among = found.filter(pc.equal(found["at_min"], -1))["at_list"]
    return pc.is_in(at, value_set=pc.list_flatten(among.combine_chunks()))


def _may_have(keys: pa.Table) -> BooleanExpression:
    """Returns a condition that is true for every row with one of these keys, and possibly for other rows. pyiceberg
    skips the files that cannot have a row for which the condition is true."""
    from pyiceberg.expressions import AlwaysTrue, And

    plain = [name for name in keys.column_names if not pa.types.is_nested(keys.schema.field(name).type)]
    condition: BooleanExpression = AlwaysTrue()
    for name in plain:
        condition = And(condition, _may_have_value(name, keys.column(name)))
    return condition


def _may_have_value(name: str, values: pa.ChunkedArray) -> BooleanExpression:
    from pyiceberg import expressions
    from pyiceberg.expressions import And, Or

    # The type is Any, because pyiceberg's documentation allows column names as arguments, but its type annotations do
    # not.
    make: Any = expressions
    given = set(values.unique().to_pylist())
    is_single = values.type == pa.float32()
    others = {value for value in given if value is None or value != value or (is_single and abs(value) == inf)}
    plain = given - others
    parts: list[BooleanExpression] = []
    if len(plain) > _MOST_VALUES:
        parts.append(And(make.GreaterThanOrEqual(name, min(plain)), make.LessThanOrEqual(name, max(plain))))
    elif plain:
        parts.append(make.In(name, plain))
    for value in others:
        if value is None:
            parts.append(make.IsNull(name))
        elif value != value:
            parts.append(make.IsNaN(name))
        else:
            # pyiceberg does not accept an infinite number in a comparison.
            parts.append(make.GreaterThan(name, _GREATEST) if value > 0 else make.LessThan(name, -_GREATEST))
    return reduce(Or, parts)
