"""For a view that filters and projects one input: computes with Arrow which rows of the view must change after the
input's rows have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from rw_sql.runtime.delta.stored_rows import as_stored
from rw_sql.runtime.jobs.inputs import CHANGE, VERSION
from rw_sql.runtime.views.last_records import last_row_of_each
from rw_sql.syntax.query.maintained_form import KEEP

if TYPE_CHECKING:
    from collections.abc import Sequence

DELETED = "delete"
"""The value of the column CHANGE for a deleted row."""

_IS_KEPT = "_rw_is_kept"


def last_changes(changes: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Returns the last change of each key among the rows of a change feed.

    If one commit deletes the row of a key and also adds a row with this key, the addition counts as the last change.
    """
    rows = changes.filter(pc.not_equal(changes[CHANGE], "update_preimage"))
    ordered = rows.append_column(_IS_KEPT, pc.not_equal(rows[CHANGE], DELETED))
    return last_row_of_each(ordered, keys, (VERSION, _IS_KEPT)).drop_columns([_IS_KEPT])


def with_removed(fresh: pa.Table, changed: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns the rows that must be written to a view. The column KEEP is true for a new or changed row, and false for
    a key whose row must be deleted.

    ``fresh`` are the rows that the view's query returns for the changed rows of its input. ``changed`` contains the
    view's key of every changed row, including rows that the query filters out. ``schema`` are the view's columns.
    """
    keys = changed.column_names
    kept = as_stored(fresh, schema).append_column(pa.field(KEEP, pa.bool_()), _repeated(fresh.num_rows, value=True))
    known = pa.table(
        [column.cast(schema.field(name).type) for name, column in zip(keys, changed.columns, strict=True)], keys
    )
    both = pa.concat_tables(
        [
            known.append_column(_IS_KEPT, _repeated(known.num_rows, value=False)),
            kept.select(keys).append_column(_IS_KEPT, _repeated(kept.num_rows, value=True)),
        ]
    )
    found = both.group_by(keys, use_threads=False).aggregate([(_IS_KEPT, "max")])
    gone = found.filter(pc.invert(found[f"{_IS_KEPT}_max"])).select(keys)
    removed = as_stored(gone, schema).append_column(pa.field(KEEP, pa.bool_()), _repeated(gone.num_rows, value=False))
    return pa.concat_tables([kept, removed])


def _repeated(count: int, *, value: bool) -> pa.Array:
    return pa.repeat(pa.scalar(value), count)
