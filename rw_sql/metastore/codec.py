"""Converts records, changes and before-images to JSON and back.

Reading is strict. A kind or field that this version does not know comes from a newer version; ignoring it would lose it
at the next write.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, assert_never, get_args

from rw_sql.errors import METASTORE_IS_NEWER, SqlError
from rw_sql.metastore.records import (
    AssignSplits,
    Change,
    DropObject,
    ForgetSplitStates,
    Maintenance,
    MaterializedViewRecord,
    ObjectRecord,
    PutObject,
    PutSplitStates,
    StoredState,
    UnassignSplits,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rw_sql.metastore.records import OperationRecord

_RECORDS: dict[str, type[Any]] = {
    str(f.default): record for record in get_args(ObjectRecord) for f in fields(record) if f.name == "kind"
}
_UPGRADE = "upgrade rw_sql to the version that wrote this metastore"


def record_to_json(record: ObjectRecord) -> str:
    """One record as a JSON object with its ``kind``."""
    return _dump(_record_to_data(record))


def record_from_json(text: str) -> ObjectRecord:
    """The record; fields that an older version did not write get their defaults.

    Raises SqlError METASTORE_IS_NEWER for a kind or field that this version does not know, and ValueError for text that
    is not a record.
    """
    return _record_from_data(json.loads(text))


def changes_to_json(changes: Iterable[Change]) -> str:
    """Encodes the changes of an operation (its after-image)."""
    return _dump([_change_to_data(change) for change in changes])


def changes_from_json(text: str) -> tuple[Change, ...]:
    """Decodes the changes of an operation. Raises like :func:`record_from_json`."""
    return tuple(_change_from_data(data) for data in json.loads(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeImage:
    """The values that an operation replaces; None for a key that did not exist before.

    ``splits`` maps fragment → split → the epoch of its assignment, ``states`` fragment → split → its stored state.
    """

    objects: Mapping[int, ObjectRecord | None] = field(default_factory=dict)
    splits: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict)
    states: Mapping[str, Mapping[str, StoredState | None]] = field(default_factory=dict)


def before_to_json(before: BeforeImage) -> str:
    """Encodes the before-image of an operation."""
    return _dump(
        {
            "objects": [
                {"id": id, "record": None if record is None else _record_to_data(record)}
                for id, record in before.objects.items()
            ],
            "splits": before.splits,
            "states": {
                fragment: {
                    split: None if state is None else [state.state, state.epoch, state.log_version]
                    for split, state in states.items()
                }
                for fragment, states in before.states.items()
            },
        }
    )


def before_from_json(text: str) -> BeforeImage:
    """Decodes the before-image of an operation. Raises like :func:`record_from_json`."""
    data = json.loads(text)
    return BeforeImage(
        objects={
            entry["id"]: None if entry["record"] is None else _record_from_data(entry["record"])
            for entry in data["objects"]
        },
        splits=data["splits"],
        states={
            fragment: {
                split: None
                if stored is None
                else StoredState(
                    fragment=fragment, split=split, state=stored[0], epoch=stored[1], log_version=stored[2]
                )
                for split, stored in states.items()
            }
            for fragment, states in data["states"].items()
        },
    )


def apply_before(operation: OperationRecord) -> tuple[Change, ...]:
    """The changes that restore the definitions, assignments and positions of before an operation.

    Applied right after the operation, they restore the catalog's content; its epoch still grows. Drops come first, so
    that a name is free before its earlier owner takes it back.
    """
    return changes_back(before_from_json(operation.before))


def changes_back(before: BeforeImage) -> tuple[Change, ...]:
    """The changes that restore a before-image."""
    changes: list[Change] = [DropObject(id=id) for id, record in before.objects.items() if record is None]
    changes += [PutObject(record=record) for record in before.objects.values() if record is not None]
    for fragment, splits in before.splits.items():
        if gone := tuple(split for split, epoch in splits.items() if epoch is None):
            changes.append(UnassignSplits(fragment=fragment, splits=gone))
        if back := tuple(split for split, epoch in splits.items() if epoch is not None):
            # Unassign, then assign: the assignment gets this operation's epoch even if the split was never unassigned.
            changes += [UnassignSplits(fragment=fragment, splits=back), AssignSplits(fragment=fragment, splits=back)]
    for fragment, states in before.states.items():
        if gone := tuple(split for split, state in states.items() if state is None):
            changes.append(ForgetSplitStates(fragment=fragment, splits=gone))
        by_version: dict[int, dict[str, str]] = {}
        for split, state in states.items():
            if state is not None:
                by_version.setdefault(state.log_version, {})[split] = state.state
        changes += [
            PutSplitStates(fragment=fragment, states=group, log_version=version)
            for version, group in by_version.items()
        ]
    return tuple(changes)


def _dump(data: object) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)


def _record_to_data(record: ObjectRecord | Maintenance) -> dict[str, Any]:
    values = {f.name: getattr(record, f.name) for f in fields(record)}
    nested = (Maintenance, MaterializedViewRecord)
    return {name: _record_to_data(value) if isinstance(value, nested) else value for name, value in values.items()}


def _record_from_data(data: Any) -> ObjectRecord:
    if not isinstance(data, dict) or not isinstance(data.get("kind"), str):
        raise ValueError("not a record: it has no kind")
    kind = data["kind"]
    record = _RECORDS.get(kind)
    if record is None:
        raise SqlError(METASTORE_IS_NEWER, f'the metastore holds a "{kind}", a kind unknown here', hint=_UPGRADE)
    known = _FIELDS[kind]
    values = {}
    for name, value in data.items():
        if name == "kind":
            continue
        if name not in known:
            raise SqlError(METASTORE_IS_NEWER, f'a {kind} has a field "{name}", unknown here', hint=_UPGRADE)
        values[name] = _frozen(value) if isinstance(value, list) else value
        if name == "maintenance":
            values[name] = _maintenance_from_data(value)
        elif name == "view" and value is not None:
            values[name] = _record_from_data(value)
    if missing := [name for name, is_required in known.items() if is_required and name not in values]:
        raise ValueError(f"a {kind} lacks {', '.join(missing)}")
    made: ObjectRecord = record(**values)
    return made


def _maintenance_from_data(data: Any) -> Maintenance:
    if not isinstance(data, dict):
        raise ValueError("not a record: how a view is maintained is no object")
    if unknown := data.keys() - {f.name for f in fields(Maintenance)}:
        raise SqlError(
            METASTORE_IS_NEWER, f'a view\'s maintenance has a field "{min(unknown)}", unknown here', hint=_UPGRADE
        )
    values: dict[str, Any] = {
        name: _frozen(value) if isinstance(value, list) else value for name, value in data.items()
    }
    return Maintenance(**values)


_FIELDS = {
    kind: {f.name: f.default is MISSING and f.default_factory is MISSING for f in fields(record) if f.init}
    for kind, record in _RECORDS.items()
}


def _frozen(value: list[Any]) -> tuple[Any, ...]:
    return tuple(_frozen(item) if isinstance(item, list) else item for item in value)


def _change_to_data(change: Change) -> dict[str, Any]:
    match change:
        case PutObject(record=record):
            return {"change": "put_object", "record": _record_to_data(record)}
        case DropObject(id=id):
            return {"change": "drop_object", "id": id}
        case AssignSplits(fragment=fragment, splits=splits):
            return {"change": "assign_splits", "fragment": fragment, "splits": splits}
        case UnassignSplits(fragment=fragment, splits=splits):
            return {"change": "unassign_splits", "fragment": fragment, "splits": splits}
        case PutSplitStates(fragment=fragment, states=states, log_version=log_version):
            return {
                "change": "put_split_states",
                "fragment": fragment,
                "states": dict(states),
                "log_version": log_version,
            }
        case ForgetSplitStates(fragment=fragment, splits=splits):
            return {"change": "forget_split_states", "fragment": fragment, "splits": splits}
        case _:
            assert_never(change)


def _change_from_data(data: dict[str, Any]) -> Change:
    match data:
        case {"change": "put_object", "record": record}:
            return PutObject(record=_record_from_data(record))
        case {"change": "drop_object", "id": id}:
            return DropObject(id=id)
        case {"change": "assign_splits", "fragment": fragment, "splits": splits}:
            return AssignSplits(fragment=fragment, splits=tuple(splits))
        case {"change": "unassign_splits", "fragment": fragment, "splits": splits}:
            return UnassignSplits(fragment=fragment, splits=tuple(splits))
        case {"change": "put_split_states", "fragment": fragment, "states": states, "log_version": log_version}:
            return PutSplitStates(fragment=fragment, states=states, log_version=log_version)
        case {"change": "forget_split_states", "fragment": fragment, "splits": splits}:
            return ForgetSplitStates(fragment=fragment, splits=tuple(splits))
        case _:
            name = data.get("change") if isinstance(data, dict) else data
            raise SqlError(METASTORE_IS_NEWER, f'an operation holds a change "{name}", unknown here', hint=_UPGRADE)
