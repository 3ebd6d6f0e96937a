"""Prepares the output of a sink's query for the sink's writer: sorts the rows, and adds the operation of each row."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from rw_sql.connectors.sink import APPEND_ONLY, DEBEZIUM, DELETE, INSERT, OP, UPDATE, UPDATE_BEFORE, UPSERT
from rw_sql.connectors.support.sink_values import comparable
from rw_sql.model.definitions import INDEX_COLUMN
from rw_sql.runtime.decoding.decoder import BATCH, RUN
from rw_sql.runtime.jobs.inputs import CHANGE, VERSION
from rw_sql.runtime.positions.ordered_log import LOG_ORDER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.connectors.sink import SinkShape

FEED_COLUMNS = (CHANGE, VERSION)
"""The columns of Delta's change data feed that this module uses."""

_OPERATIONS = {"insert": INSERT, "update_preimage": UPDATE_BEFORE, "update_postimage": UPDATE, "delete": DELETE}


def arranged(rows: pa.Table, shape: SinkShape, *, keys_move: bool = False) -> pa.Table:
    """The rows with the shape's columns and OP. Rows of a source are sorted by LOG_ORDER, and rows of a change feed are
    sorted by commit.

    ``rows`` may also have the columns of LOG_ORDER or of FEED_COLUMNS. ``keys_move`` is true if an update may change
    the key columns to other values.
    """
    columns = list(shape.columns)
    if CHANGE in rows.column_names:
        return _changes(rows, shape, keys_move=keys_move).select([*columns, OP])
    if RUN in rows.column_names:
        rows = _sorted(rows, tuple(name for name in LOG_ORDER if name in rows.column_names))
    return rows.select(columns).append_column(OP, pa.array([INSERT] * rows.num_rows, pa.string()))


def _changes(rows: pa.Table, shape: SinkShape, *, keys_move: bool) -> pa.Table:
    known = dict(_OPERATIONS)
    if not keys_move:
        rows = _without_equal(rows, list(shape.columns))
    # An update may also change a key from 0.0 to -0.0. These two values are one key of a table, but two keys of a
    # topic.
    keys_move = keys_move or any(_has_floats(rows.schema.field(key).type) for key in shape.keys)
    if shape.type == UPSERT:
        if not keys_move:
            rows = rows.filter(pc.not_equal(rows[CHANGE], "update_preimage"))
        rows = _without_replaced(rows, shape.keys)
        known["update_preimage"] = DELETE
    if keys_move and shape.type == DEBEZIUM:
        rows = _without_moves(rows, shape.keys)
    operations = [known[change] for change in rows.column(CHANGE).to_pylist()]
    wanted = {INSERT, UPDATE}
    if shape.type != APPEND_ONLY:
        wanted.add(DELETE)
    if shape.type == DEBEZIUM:
        wanted.add(UPDATE_BEFORE)
    given = rows.append_column(OP, pa.array(operations, pa.string()))
    given = given.filter(pc.is_in(given.column(OP), value_set=pa.array(sorted(wanted))))
    # Within a commit, old rows and deletes come before new rows.
    is_before = pc.is_in(given.column(OP), value_set=pa.array([UPDATE_BEFORE, DELETE]))
    is_after = pc.cast(pc.invert(is_before), pa.int8())
    return _sorted(given.append_column("__after", is_after), (VERSION, "__after"))


def _without_replaced(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Removes the old row of each key that also has a new row in the same commit, because the new row replaces the old
    row in the target. If the old row were deleted and the target then refused the new row, the target would have no row
    with this key."""
    is_new = pc.is_in(rows[CHANGE], value_set=pa.array(["insert", "update_postimage"]))
    if pc.all(is_new).as_py():
        return rows
    columns = {name: _exact(rows[name]) for name in (*keys, VERSION)}
    numbered = pa.table({**columns, "__new": is_new, "__at": pa.array(range(rows.num_rows), pa.int64())})
    found = numbered.group_by([*keys, VERSION], use_threads=False).aggregate([("__new", "max"), ("__at", "list")])
    replaced = found.filter(found["__new_max"])["__at_list"]
    is_replaced = pc.is_in(numbered["__at"], value_set=pc.list_flatten(replaced.combine_chunks()))
    return rows.filter(pc.or_(is_new, pc.invert(is_replaced)))


def _without_moves(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Represents each update that changes a key as Debezium does: as a delete of the old key and an insert of the new
    key. If one update of a commit frees a key and another update of the commit takes this key, the two rows with this
    key remain the old and the new row of an update."""
    changes = rows[CHANGE]
    is_old, is_new = (pc.equal(changes, f"update_{image}image") for image in ("pre", "post"))
    columns = {name: _exact(rows[name]) for name in (*keys, VERSION)}
    numbered = pa.table({**columns, "__new": pc.cast(is_new, pa.int8()), "__at": pa.array(range(rows.num_rows))})
    images = numbered.filter(pc.or_(is_old, is_new))
    found = images.group_by([*keys, VERSION], use_threads=False).aggregate(
        [("__new", "min"), ("__new", "max"), ("__at", "list")]
    )
    moved = found.filter(pc.equal(found["__new_min"], found["__new_max"]))["__at_list"]
    if not len(moved):
        return rows
    is_moved = pc.is_in(numbered["__at"], value_set=pc.list_flatten(moved.combine_chunks()))
    changes = pc.if_else(pc.and_(is_moved, is_old), "delete", changes)
    changes = pc.if_else(pc.and_(is_moved, is_new), "insert", changes)
    return rows.set_column(rows.column_names.index(CHANGE), CHANGE, changes)


def _has_floats(kind: pa.DataType) -> bool:
    """True if values of this type are, or contain, floating-point numbers."""
    parts = [kind.field(at).type for at in range(kind.num_fields)]
    return pa.types.is_floating(kind) or any(map(_has_floats, parts))


def _exact(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values in a form by which Arrow can group. Unlike in the result of :func:`comparable`, 0.0 and -0.0 differ in
    this result. They must differ because their texts differ, and therefore also the keys in Kafka's records. If 0.0 and
    -0.0 are equal in a target, the target itself merges their rows."""
    if not pa.types.is_floating(values.type):
        return comparable(values)
    return pc.if_else(pc.is_nan(values), pa.scalar(math.nan, values.type), values)


def _without_equal(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Removes the old row and the new row of each update that changes only hidden columns and no column of ``columns``.
    The caller must ensure that no two rows of the table have the same values in ``columns``."""
    is_update = pc.is_in(rows[CHANGE], value_set=pa.array(["update_preimage", "update_postimage"]))
    images = rows.append_column("__at", pa.array(range(rows.num_rows), pa.int64())).filter(is_update)
    try:
        found = images.group_by([*columns, VERSION], use_threads=False).aggregate([("__at", "count"), ("__at", "list")])
    except pa.ArrowNotImplementedError:
        return rows  # Arrow does not compare nested values. A repeated row does no harm.
    equal = found.filter(pc.greater(found["__at_count"], 1))["__at_list"]
    if not len(equal):
        return rows
    at = pc.list_flatten(equal.combine_chunks())
    return rows.filter(pc.invert(pc.is_in(pa.array(range(rows.num_rows), pa.int64()), value_set=at)))


def _sorted(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    columns = {name: rows[name] for name in by}
    for name in (BATCH, INDEX_COLUMN[0]):
        if name in columns:
            # Rows that were written before this column existed come first.
            columns[name] = pc.fill_null(columns[name], -1)
    return rows.take(pc.sort_indices(pa.table(columns), sort_keys=[(name, "ascending") for name in by]))
