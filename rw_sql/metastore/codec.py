"""Converts records, changes and before-images to JSON, and from JSON.

msgspec writes the fields of a dataclass in the order of their declaration, and checks the types of the values that it
reads. An unknown kind or field comes from a newer version of rw_sql and is an error. If this version ignored the field,
its next write would remove the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from rw_sql.errors import METASTORE_IS_NEWER, SqlError
from rw_sql.metastore.records import (
    AssignSplits,
    Change,
    DropObject,
    ForgetSplitStates,
    Maintenance,
    ObjectRecord,
    PutObject,
    PutSplitStates,
    StoredState,
    UnassignSplits,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore.records import OperationRecord


def _by_tag(tag: str, types: Any) -> dict[str, type[Any]]:
    return {str(f.default): each for each in get_args(types) for f in fields(each) if f.name == tag}


_RECORDS, _CHANGES = _by_tag("kind", ObjectRecord), _by_tag("change", Change)
_FIELDS = {each: {f.name for f in fields(each)} for each in (*_RECORDS.values(), Maintenance)}
_UPGRADE = "upgrade rw_sql to the version that wrote this metastore"


def record_to_json(record: ObjectRecord) -> str:
    """One record as a JSON object with its ``kind``."""
    return msgspec.json.encode(record).decode()


def record_from_json(text: str) -> ObjectRecord:
    """Parses one record. A field that the text lacks, because an older version wrote the text, gets its default.

    Raises SqlError METASTORE_IS_NEWER for a kind or field unknown to this version, and ValueError for text that is not
    a record.
    """
    return record_from_data(msgspec.json.decode(text))


def record_from_data(data: Any) -> ObjectRecord:
    """Converts decoded JSON to a record. Raises like :func:`record_from_json`."""
    if not isinstance(data, dict) or not isinstance(data.get("kind"), str):
        raise ValueError("not a record: it has no kind")
    kind = data["kind"]
    record = _RECORDS.get(kind)
    if record is None:
        raise SqlError(
            METASTORE_IS_NEWER,
            f'the metastore contains a "{kind}", a kind that this version does not know',
            hint=_UPGRADE,
        )
    _require_known(f"a {kind}", record, data)
    _require_known("a view's maintenance", Maintenance, data.get("maintenance"))
    if data.get("view") is not None:
        data = {**data, "view": record_from_data(data["view"])}
    try:
        made: ObjectRecord = msgspec.convert(data, record)
    except msgspec.ValidationError as error:
        raise ValueError(f"not a {kind} record: {error}") from error
    return made


def _require_known(what: str, record: type[Any], data: Any) -> None:
    """Raises SqlError METASTORE_IS_NEWER for a field that the dataclass lacks. msgspec would silently skip this
    field."""
    if isinstance(data, dict) and (unknown := data.keys() - _FIELDS[record]):
        raise SqlError(
            METASTORE_IS_NEWER, f'{what} has a field "{min(unknown)}", which this version does not know', hint=_UPGRADE
        )


def changes_to_json(changes: Iterable[Change]) -> str:
    """Encodes the changes of an operation (its after-image)."""
    return msgspec.json.encode(tuple(changes)).decode()


def changes_from_json(text: str) -> tuple[Change, ...]:
    """Decodes the changes of an operation. Raises like :func:`record_from_json`."""
    return tuple(map(_change, msgspec.json.decode(text, type=list[dict[str, Any]])))


def _change(data: dict[str, Any]) -> Change:
    name = data.get("change")
    change = _CHANGES.get(str(name))
    if change is None:
        raise SqlError(
            METASTORE_IS_NEWER,
            f'an operation contains a change "{name}", which this version does not know',
            hint=_UPGRADE,
        )
    if change is PutObject:
        return PutObject(record=record_from_data(data.get("record")))
    made: Change = msgspec.convert(data, change)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeImage:
    """The values that an operation replaces. A key that did not exist before the operation has the value None.

    ``splits`` maps each fragment to a mapping from its splits to the epochs of their assignments. ``states`` maps each
    fragment to a mapping from its splits to their stored states.
    """

    objects: Mapping[int, ObjectRecord | None] = field(default_factory=dict)
    splits: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict)
    states: Mapping[str, Mapping[str, StoredState | None]] = field(default_factory=dict)


class _ObjectBefore(msgspec.Struct):
    id: int
    record: Any


class _Before(msgspec.Struct):
    """The JSON of a before-image. A split's position is stored as (state, epoch, log version), from the fields of
    StoredState."""

    objects: list[_ObjectBefore]
    splits: Mapping[str, Mapping[str, int | None]]
    states: dict[str, dict[str, tuple[str, int, int] | None]]


def before_to_json(before: BeforeImage) -> str:
    """Encodes the before-image of an operation."""
    stored = _Before(
        objects=[_ObjectBefore(id, record) for id, record in before.objects.items()],
        splits=before.splits,
        states={
            fragment: {
                split: None if state is None else (state.state, state.epoch, state.log_version)
                for split, state in states.items()
            }
            for fragment, states in before.states.items()
        },
    )
    return msgspec.json.encode(stored).decode()


def before_from_json(text: str) -> BeforeImage:
    """Decodes the before-image of an operation. Raises like :func:`record_from_json`."""
    stored = msgspec.json.decode(text, type=_Before)
    return BeforeImage(
        objects={each.id: None if each.record is None else record_from_data(each.record) for each in stored.objects},
        splits=stored.splits,
        states={
            fragment: {
                split: None
                if state is None
                else StoredState(fragment=fragment, split=split, state=state[0], epoch=state[1], log_version=state[2])
                for split, state in states.items()
            }
            for fragment, states in stored.states.items()
        },
    )


def apply_before(operation: OperationRecord) -> tuple[Change, ...]:
    """Returns the changes that restore the definitions, assignments and positions to their values before an operation.

    If these changes are committed directly after the operation, the new epoch has the same content as the epoch before
    the operation. Drops come first in the result. Therefore, no other object has the name of an object when the object
    is restored.
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
            # Unassigns the splits first, so that the assignment gets this operation's epoch even if a split was never
            # unassigned.
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
