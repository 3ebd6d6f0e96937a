"""Converts the effects of operations to rows of the tables ``objects``, ``fragment_splits`` and ``source_state``, and
converts the rows of these tables to a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rw_sql.metastore.codec import record_from_json, record_to_json
from rw_sql.metastore.records import AssignedSplit, StoredState
from rw_sql.metastore.snapshot import Folding, Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rw_sql.metastore.records import ObjectRecord
    from rw_sql.metastore.snapshot import Effect, Projection

KEYS: Mapping[Projection, tuple[str, ...]] = {
    "objects": ("id",),
    "fragment_splits": ("fragment", "split"),
    "source_state": ("fragment", "split"),
}
_WORTH_FOLDING = 2_000


def projection_rows(projection: Projection, effects: Iterable[Effect], schema: pa.Schema) -> pa.Table:
    """The rows that ``effects``, the effects of operations, add to a projection, as an Arrow table."""
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    for effect in effects:
        match projection:
            case "objects":
                _object_columns(columns, effect)
            case "fragment_splits":
                for fragment, splits in effect.splits.items():
                    _extend(columns, len(splits), epoch=effect.epoch, fragment=fragment)
                    columns["split"] += splits
                    columns["is_assigned"] += [split is not None for split in splits.values()]
            case "source_state":
                for fragment, states in effect.states.items():
                    _extend(columns, len(states), epoch=effect.epoch, fragment=fragment, actor=effect.actor)
                    columns["split"] += states
                    columns["state"] += [None if state is None else state.state for state in states.values()]
                    columns["log_version"] += [-1 if state is None else state.log_version for state in states.values()]
    return pa.table(columns, schema=schema)


def _object_columns(columns: dict[str, list[Any]], effect: Effect) -> None:
    for id, record in effect.objects.items():
        kind, name = effect.dropped[id] if record is None else (record.kind, record.name)
        columns["epoch"].append(effect.epoch)
        columns["id"].append(id)
        columns["kind"].append(kind)
        columns["name"].append(name)
        columns["is_dropped"].append(record is None)
        columns["record"].append(None if record is None else record_to_json(record))


def _extend(columns: dict[str, list[Any]], times: int, **values: Any) -> None:
    for name, value in values.items():
        columns[name] += [value] * times


def snapshot_from(tables: Mapping[Projection, pa.Table], epoch: int) -> Snapshot:
    """Builds the snapshot at ``epoch`` from projections that are complete up to this epoch. Of the rows with the same
    key, only the newest row counts."""
    folding = Folding(Snapshot())
    objects: dict[int, tuple[int, str | None]] = {}
    for id, at, text in zip(*_sorted_columns(tables["objects"], "id", "epoch", "record"), strict=True):
        objects[id] = (at, text)
    for id, (at, text) in objects.items():
        record: ObjectRecord | None = None if text is None else record_from_json(text)
        folding.put_objects(at, {id: record})
    splits: dict[str, dict[str, AssignedSplit | None]] = {}
    newest: dict[str, int] = {}
    columns = _sorted_columns(tables["fragment_splits"], "fragment", "split", "epoch", "is_assigned")
    for fragment, split, at, is_assigned in zip(*columns, strict=True):
        assigned = AssignedSplit(fragment=fragment, split=split, epoch=at) if is_assigned else None
        splits.setdefault(fragment, {})[split] = assigned
        newest[fragment] = at
    for fragment, of_fragment in splits.items():
        folding.put_splits(newest[fragment], fragment, of_fragment)
    states: dict[str, dict[str, StoredState | None]] = {}
    newest = {}
    columns = _sorted_columns(tables["source_state"], "fragment", "split", "epoch", "state", "log_version")
    for fragment, split, at, text, log_version in zip(*columns, strict=True):
        stored = None
        if text is not None:
            stored = StoredState(fragment=fragment, split=split, state=text, epoch=at, log_version=log_version)
        states.setdefault(fragment, {})[split] = stored
        newest[fragment] = at
    for fragment, of_fragment_states in states.items():
        folding.put_states(newest[fragment], fragment, of_fragment_states)
    return folding.result(epoch)


def _sorted_columns(table: pa.Table, *names: str) -> list[list[Any]]:
    table = table.sort_by("epoch")
    return [table.column(name).to_pylist() for name in names]


def newest_rows(table: pa.Table, keys: Sequence[str], order: str) -> pa.Table:
    """Returns, for each key, the row with the greatest value in the column ``order``."""
    table = table.sort_by(order)
    last = {key: at for at, key in enumerate(zip(*(table.column(name).to_pylist() for name in keys), strict=True))}
    return table.take(pa.array(sorted(last.values()), pa.int64()))


def fold_rows(projection: Projection, table: pa.Table) -> pa.Table | None:
    """The rows to keep when the projection is folded, which means that the kept rows replace its content. The result is
    None if folding would remove too few rows.

    The last row of a dropped object is kept, because its id must not be reused. The row of an unassigned split, or of a
    removed state, is kept only while it is the last change to its fragment, because the last change determines the
    fragment's epoch.
    """
    kept = newest_rows(table, KEYS[projection], "epoch")
    if projection != "objects":
        fragments, epochs = kept.column("fragment").to_pylist(), kept.column("epoch").to_pylist()
        newest = dict(zip(fragments, epochs, strict=True))  # The rows are sorted by epoch, so the last row applies.
        marks = kept.column("is_assigned" if projection == "fragment_splits" else "state").to_pylist()
        is_kept = [
            mark not in (None, False) or newest[f] == at for mark, f, at in zip(marks, fragments, epochs, strict=True)
        ]
        kept = kept.filter(pa.array(is_kept, pa.bool_()))
    return kept if table.num_rows - kept.num_rows > kept.num_rows + _WORTH_FOLDING else None
