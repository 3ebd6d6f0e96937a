"""Finds the columns of inputs that a view or sink lacks although its query contains ``*``.

These columns were added to an input after the query was set. The view or sink gets them only when a statement sets its
query again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.metastore.records import SourceRecord, TableRecord
from rw_sql.model.relations import relation_of, seen_columns
from rw_sql.plan.queries.analysis.analyze import analyze
from rw_sql.plan.queries.analysis.findings import Column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import MaterializedViewRecord, ObjectRecord, SinkRecord

_NOTHING_ADDED: Mapping[int, Sequence[str]] = {}


def unseen_columns(
    snapshot: Snapshot,
    reader: MaterializedViewRecord | SinkRecord,
    added: Mapping[int, Sequence[str]] = _NOTHING_ADDED,
) -> tuple[str, ...]:
    """The further columns that the query of ``reader`` would select if ``reader`` were created now.

    ``added`` maps the id of an input to further columns that the input will get. The result is empty if the columns of
    the query cannot be determined without Spark.
    """
    inputs = [record for record in map(snapshot.get, reader.inputs) if record is not None]
    if not any(added.get(record.id) or _has_added(record) for record in inputs):
        return ()
    seen: dict[str, Sequence[Column]] = {}
    now: dict[str, Sequence[Column]] = {}
    for record in inputs:
        coming = [Column(name) for name in added.get(record.id, ())]
        seen[record.name] = [Column(*column) for column in seen_columns(record, reader)]
        now[record.name] = [*(Column(*column) for column in relation_of(record).columns), *coming]
    if all(len(seen[name]) == len(now[name]) for name in now):
        return ()
    if not reader.query:
        return _additional(seen.values(), now.values())
    before, after = (
        analyze(reader.query, given, is_relation=lambda _: True, is_function=lambda _: True).columns
        for given in (seen, now)
    )
    return () if before is None or after is None else _additional([before], [after])


def _has_added(record: ObjectRecord) -> bool:
    return isinstance(record, SourceRecord | TableRecord) and bool(record.added_columns)


def _additional(before: Iterable[Sequence[Column]], after: Iterable[Sequence[Column]]) -> tuple[str, ...]:
    known = {column.name for columns in before for column in columns}
    found = (column.name for columns in after for column in columns)
    return tuple(dict.fromkeys(name for name in found if name not in known))
