"""Represents the catalog at one epoch, and the effect of an operation on the catalog.

A snapshot is immutable. Applying an operation copies the dictionaries that the operation modifies. The new snapshot
shares the other dictionaries with the old snapshot. Copying 10,000 entries takes a tenth of a millisecond. Changing a
persistent tree in pure Python would take longer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeVar, assert_never, overload

from rw_sql.metastore.codec import BeforeImage
from rw_sql.metastore.records import (
    AssignedSplit,
    AssignSplits,
    Change,
    ConnectionRecord,
    DeltaTableRecord,
    DropObject,
    ForgetSplitStates,
    MaterializedViewRecord,
    ObjectRecord,
    ParameterRecord,
    PauseRecord,
    PutObject,
    PutSplitStates,
    RebuildRecord,
    RewindRecord,
    SchemaRecord,
    SecretRecord,
    SinkRecord,
    SourceRecord,
    StoredState,
    TableRecord,
    UnassignSplits,
)
from rw_sql.metastore.refresh_records import RefreshRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Projection = Literal["objects", "fragment_splits", "source_state"]
PROJECTIONS: tuple[Projection, ...] = ("objects", "fragment_splits", "source_state")

_NO_SPLITS: Mapping[str, AssignedSplit] = MappingProxyType({})
_NO_STATES: Mapping[str, StoredState] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The changes that one operation makes to the catalog: the new value of each changed key, or None for a removed
    key."""

    epoch: int
    actor: str
    objects: Mapping[int, ObjectRecord | None] = field(default_factory=dict)
    dropped: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    """Maps the id of each removed object to its kind and name."""
    splits: Mapping[str, Mapping[str, AssignedSplit | None]] = field(default_factory=dict)
    states: Mapping[str, Mapping[str, StoredState | None]] = field(default_factory=dict)

    def touches(self, projection: Projection) -> bool:
        """True if the effect adds rows to ``projection``."""
        match projection:
            case "objects":
                return bool(self.objects)
            case "fragment_splits":
                return bool(self.splits)
            case "source_state":
                return bool(self.states)
            case _:
                assert_never(projection)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Snapshot:
    """The catalog at ``epoch``. All lookups read memory, not storage."""

    epoch: int = 0
    next_id: int = 1
    records: Mapping[int, ObjectRecord] = field(default_factory=dict)
    names: Mapping[tuple[str, str], int] = field(default_factory=dict)
    kinds: Mapping[str, Mapping[int, ObjectRecord]] = field(default_factory=dict)
    readers: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    object_epochs: Mapping[int, int] = field(default_factory=dict)
    fragment_epochs: Mapping[str, int] = field(default_factory=dict)
    assigned: Mapping[str, Mapping[str, AssignedSplit]] = field(default_factory=dict)
    stored: Mapping[str, Mapping[str, StoredState]] = field(default_factory=dict)
    touched: Mapping[Projection, int] = field(default_factory=dict)
    """Maps each projection to the last epoch that added rows to the projection."""
    ordered: dict[str, tuple[ObjectRecord, ...]] = field(default_factory=dict)
    """The cache of :meth:`all`. The cache needs no lock, because concurrent threads store equal values."""

    @overload
    def find(self, kind: Literal["source"], name: str) -> SourceRecord | None: ...
    @overload
    def find(self, kind: Literal["materialized_view"], name: str) -> MaterializedViewRecord | None: ...
    @overload
    def find(self, kind: Literal["table"], name: str) -> TableRecord | None: ...
    @overload
    def find(self, kind: Literal["sink"], name: str) -> SinkRecord | None: ...
    @overload
    def find(self, kind: Literal["pause"], name: str) -> PauseRecord | None: ...
    @overload
    def find(self, kind: Literal["connection"], name: str) -> ConnectionRecord | None: ...
    @overload
    def find(self, kind: Literal["secret"], name: str) -> SecretRecord | None: ...
    @overload
    def find(self, kind: Literal["parameter"], name: str) -> ParameterRecord | None: ...
    @overload
    def find(self, kind: Literal["schema"], name: str) -> SchemaRecord | None: ...
    @overload
    def find(self, kind: str, name: str) -> ObjectRecord | None: ...
    def find(self, kind: str, name: str) -> ObjectRecord | None:
        """The object with the given kind and name; None if there is no such object."""
        id = self.names.get((kind, name))
        return None if id is None else self.records[id]

    def get(self, id: int) -> ObjectRecord | None:
        """The object with the given id."""
        return self.records.get(id)

    @overload
    def all(self, kind: Literal["source"]) -> tuple[SourceRecord, ...]: ...
    @overload
    def all(self, kind: Literal["materialized_view"]) -> tuple[MaterializedViewRecord, ...]: ...
    @overload
    def all(self, kind: Literal["table"]) -> tuple[TableRecord, ...]: ...
    @overload
    def all(self, kind: Literal["delta_table"]) -> tuple[DeltaTableRecord, ...]: ...
    @overload
    def all(self, kind: Literal["sink"]) -> tuple[SinkRecord, ...]: ...
    @overload
    def all(self, kind: Literal["pause"]) -> tuple[PauseRecord, ...]: ...
    @overload
    def all(self, kind: Literal["rebuild"]) -> tuple[RebuildRecord, ...]: ...
    @overload
    def all(self, kind: Literal["refresh"]) -> tuple[RefreshRecord, ...]: ...
    @overload
    def all(self, kind: Literal["rewind"]) -> tuple[RewindRecord, ...]: ...
    @overload
    def all(self, kind: Literal["connection"]) -> tuple[ConnectionRecord, ...]: ...
    @overload
    def all(self, kind: Literal["secret"]) -> tuple[SecretRecord, ...]: ...
    @overload
    def all(self, kind: Literal["parameter"]) -> tuple[ParameterRecord, ...]: ...
    @overload
    def all(self, kind: Literal["schema"]) -> tuple[SchemaRecord, ...]: ...
    @overload
    def all(self, kind: str) -> tuple[ObjectRecord, ...]: ...
    def all(self, kind: str) -> tuple[ObjectRecord, ...]:
        """All objects of the given kind, in creation order."""
        found = self.ordered.get(kind)
        if found is None:
            of_kind = self.kinds.get(kind, {})
            found = self.ordered[kind] = tuple(of_kind[id] for id in sorted(of_kind))
        return found

    @property
    def kept(self) -> tuple[MaterializedViewRecord, ...]:
        """All tables and materialized views: the objects whose jobs maintain a table of rows. Tables come first.

        Sources are not included, because a source has a log instead of such a table.
        """
        return (*self.all("table"), *self.all("materialized_view"))

    def table_of(self, source_id: int) -> TableRecord | None:
        """The table to which this source belongs; None if the source does not belong to a table."""
        source = self.records.get(source_id)
        table = None if source is None else self.find("table", source.name)
        return table if table is not None and table.source_id == source_id else None

    def parameter(self, name: str) -> str | None:
        """The value of a system parameter, as text; None if ALTER SYSTEM SET has not set the parameter."""
        record = self.find("parameter", name)
        return None if record is None else record.value

    def readers_of(self, id: int) -> tuple[MaterializedViewRecord | SinkRecord, ...]:
        """The tables, materialized views and sinks that directly read the object, in creation order."""
        found = (self.records[reader] for reader in sorted(self.readers.get(id, ())))
        return tuple(record for record in found if isinstance(record, MaterializedViewRecord | SinkRecord))

    def users_of(self, id: int) -> tuple[ObjectRecord, ...]:
        """The objects that directly read or reference the object, in creation order."""
        return tuple(self.records[user] for user in sorted(self.readers.get(id, ())))

    def dependents_of(self, id: int) -> tuple[ObjectRecord, ...]:
        """The objects that read or reference the object, directly or indirectly, in creation order."""
        seen: set[int] = set()
        waiting = [id]
        while waiting:
            for reader in self.readers.get(waiting.pop(), ()):
                if reader not in seen:
                    seen.add(reader)
                    waiting.append(reader)
        return tuple(self.records[found] for found in sorted(seen))

    def splits(self, fragment: str) -> Mapping[str, AssignedSplit]:
        """The splits that are assigned to a fragment."""
        return self.assigned.get(fragment, _NO_SPLITS)

    def states(self, fragment: str) -> Mapping[str, StoredState]:
        """The positions that statements have set for a fragment's splits, including splits that are no longer
        assigned."""
        return self.stored.get(fragment, _NO_STATES)

    def object_epoch(self, id: int) -> int:
        """The epoch of the object's last change, including its drop; 0 if the object never existed."""
        return self.object_epochs.get(id, 0)

    def fragment_epoch(self, fragment: str) -> int:
        """The last epoch that changed the fragment's splits or states; 0 if no epoch changed them."""
        return self.fragment_epochs.get(fragment, 0)


def projection_of(change: Change) -> Projection:
    """The projection that stores a change."""
    match change:
        case PutObject() | DropObject():
            return "objects"
        case AssignSplits() | UnassignSplits():
            return "fragment_splits"
        case PutSplitStates() | ForgetSplitStates():
            return "source_state"
        case _:
            assert_never(change)


def effect_of(snapshot: Snapshot, epoch: int, actor: str, changes: Iterable[Change]) -> Effect:
    """Returns the effect of an operation on the snapshot. ``changes`` are the changes that the operation makes.

    A change has no effect if it assigns an assigned split, unassigns a split that is not assigned, or removes a state
    that does not exist. Raises ValueError if a change drops a missing object, changes an object's kind, or gives an
    object the name of another object.
    """
    objects: dict[int, ObjectRecord | None] = {}
    splits: dict[str, dict[str, AssignedSplit | None]] = {}
    states: dict[str, dict[str, StoredState | None]] = {}
    for change in changes:
        match change:
            case PutObject(record=record):
                objects[record.id] = record
            case DropObject(id=id):
                if (objects[id] if id in objects else snapshot.get(id)) is None:
                    raise ValueError(f"object {id} does not exist")
                objects[id] = None
            case AssignSplits(fragment=fragment, splits=names):
                now, then = splits.setdefault(fragment, {}), snapshot.splits(fragment)
                for split in names:
                    if (now[split] if split in now else then.get(split)) is None:
                        now[split] = AssignedSplit(fragment=fragment, split=split, epoch=epoch)
            case UnassignSplits(fragment=fragment, splits=names):
                now, then = splits.setdefault(fragment, {}), snapshot.splits(fragment)
                for split in names:
                    if split in then:
                        now[split] = None
                    else:
                        now.pop(split, None)
            case PutSplitStates(fragment=fragment, states=texts, log_version=log_version):
                moved = states.setdefault(fragment, {})
                for split, text in texts.items():
                    moved[split] = StoredState(
                        fragment=fragment, split=split, state=text, epoch=epoch, log_version=log_version
                    )
            case ForgetSplitStates(fragment=fragment, splits=names):
                moved, kept = states.setdefault(fragment, {}), snapshot.states(fragment)
                for split in names:
                    if split in kept:
                        moved[split] = None
                    else:
                        moved.pop(split, None)
            case _:
                assert_never(change)
    for id in [id for id, after in objects.items() if after is None and snapshot.get(id) is None]:
        del objects[id]
    dropped: dict[int, tuple[str, str]] = {}
    for id, now_record in objects.items():
        old = snapshot.get(id)
        if old is not None and now_record is None:
            dropped[id] = (old.kind, old.name)
        elif old is not None and now_record is not None and now_record.kind != old.kind:
            raise ValueError(f"object {id} is a {old.kind} and cannot become a {now_record.kind}")
    _check_names(snapshot, objects)
    return Effect(
        epoch=epoch,
        actor=actor,
        objects=objects,
        dropped=dropped,
        splits={fragment: found for fragment, found in splits.items() if found},
        states={fragment: found for fragment, found in states.items() if found},
    )


def _check_names(snapshot: Snapshot, objects: Mapping[int, ObjectRecord | None]) -> None:
    taken: dict[tuple[str, str], int] = {}
    for id, record in objects.items():
        if record is None:
            continue
        key = (record.kind, record.name)
        holder = taken.setdefault(key, id)
        if holder == id and (held := snapshot.names.get(key)) is not None and held not in objects:
            holder = held
        if holder != id:
            raise ValueError(f'the name "{record.name}" of {record.kind} {id} belongs to object {holder}')


def before_image(snapshot: Snapshot, effect: Effect) -> BeforeImage:
    """The values in the snapshot that the effect replaces."""
    return BeforeImage(
        objects={id: snapshot.get(id) for id in effect.objects},
        splits={
            fragment: {split: _epoch(snapshot.splits(fragment).get(split)) for split in splits}
            for fragment, splits in effect.splits.items()
        },
        states={
            fragment: {split: snapshot.states(fragment).get(split) for split in states}
            for fragment, states in effect.states.items()
        },
    )


def _epoch(split: AssignedSplit | None) -> int | None:
    return None if split is None else split.epoch


def fold(snapshot: Snapshot, effect: Effect) -> Snapshot:
    """The snapshot after the effect."""
    folding = Folding(snapshot)
    folding.put_objects(effect.epoch, effect.objects)
    for fragment, splits in effect.splits.items():
        folding.put_splits(effect.epoch, fragment, splits)
    for fragment, states in effect.states.items():
        folding.put_states(effect.epoch, fragment, states)
    return folding.result(effect.epoch)


class Folding:
    """Builds a snapshot from an earlier snapshot. The first write to a dictionary copies the dictionary. Writes modify
    only the copy."""

    def __init__(self, base: Snapshot) -> None:
        self._base = base
        self._next_id = base.next_id
        self._touched = dict(base.touched)
        self._records: dict[int, ObjectRecord] | None = None
        self._names: dict[tuple[str, str], int] = {}
        self._object_epochs: dict[int, int] = {}
        self._kinds = dict(base.kinds)
        self._own_kinds: dict[str, dict[int, ObjectRecord]] = {}
        self._readers: dict[int, tuple[int, ...]] | None = None
        self._ordered = dict(base.ordered)
        self._assigned: dict[str, Mapping[str, AssignedSplit]] | None = None
        self._stored: dict[str, Mapping[str, StoredState]] | None = None
        self._fragment_epochs: dict[str, int] | None = None

    def put_objects(self, epoch: int, objects: Mapping[int, ObjectRecord | None]) -> None:
        """Stores objects.

        The method frees all old names before it registers new names. Therefore, two objects can exchange their names.
        """
        if not objects:
            return
        self._touch("objects", epoch)
        if self._records is None:
            self._records = dict(self._base.records)
            self._names = dict(self._base.names)
            self._object_epochs = dict(self._base.object_epochs)
        for id in objects:
            self._object_epochs[id] = epoch
            self._next_id = max(self._next_id, id + 1)
            if (old := self._records.pop(id, None)) is not None:
                del self._names[old.kind, old.name]
                del self._own_kind(old.kind)[id]
                for read in _inputs(old):
                    self._set_readers(read, tuple(r for r in self._readers_of(read) if r != id))
        for id, record in objects.items():
            if record is not None:
                self._records[id] = record
                self._names[record.kind, record.name] = id
                self._own_kind(record.kind)[id] = record
                for read in _inputs(record):
                    self._set_readers(read, (*self._readers_of(read), id))

    def put_splits(self, epoch: int, fragment: str, splits: Mapping[str, AssignedSplit | None]) -> None:
        """Stores a fragment's split assignments."""
        if self._assigned is None:
            self._assigned = dict(self._base.assigned)
        self._assigned[fragment] = _merged(self._assigned.get(fragment, {}), splits)
        if not self._assigned[fragment]:
            del self._assigned[fragment]
        self._move(epoch, fragment, "fragment_splits")

    def put_states(self, epoch: int, fragment: str, states: Mapping[str, StoredState | None]) -> None:
        """Stores a fragment's split states."""
        if self._stored is None:
            self._stored = dict(self._base.stored)
        self._stored[fragment] = _merged(self._stored.get(fragment, {}), states)
        if not self._stored[fragment]:
            del self._stored[fragment]
        self._move(epoch, fragment, "source_state")

    def result(self, epoch: int) -> Snapshot:
        """The new snapshot."""
        base = self._base
        has_objects = self._records is not None
        return Snapshot(
            epoch=epoch,
            next_id=self._next_id,
            records=base.records if self._records is None else self._records,
            names=self._names if has_objects else base.names,
            kinds=self._kinds if has_objects else base.kinds,
            readers=base.readers if self._readers is None else self._readers,
            object_epochs=self._object_epochs if has_objects else base.object_epochs,
            fragment_epochs=base.fragment_epochs if self._fragment_epochs is None else self._fragment_epochs,
            assigned=base.assigned if self._assigned is None else self._assigned,
            stored=base.stored if self._stored is None else self._stored,
            touched=self._touched,
            ordered=self._ordered,
        )

    def _own_kind(self, kind: str) -> dict[int, ObjectRecord]:
        own = self._own_kinds.get(kind)
        if own is None:
            own = self._own_kinds[kind] = dict(self._kinds.get(kind, {}))
            self._kinds[kind] = own
            self._ordered.pop(kind, None)
        return own

    def _readers_of(self, id: int) -> tuple[int, ...]:
        return (self._base.readers if self._readers is None else self._readers).get(id, ())

    def _set_readers(self, id: int, readers: tuple[int, ...]) -> None:
        if self._readers is None:
            self._readers = dict(self._base.readers)
        if readers:
            self._readers[id] = readers
        else:
            self._readers.pop(id, None)

    def _move(self, epoch: int, fragment: str, projection: Projection) -> None:
        if self._fragment_epochs is None:
            self._fragment_epochs = dict(self._base.fragment_epochs)
        self._fragment_epochs[fragment] = max(epoch, self._fragment_epochs.get(fragment, 0))
        self._touch(projection, epoch)

    def _touch(self, projection: Projection, epoch: int) -> None:
        self._touched[projection] = max(epoch, self._touched.get(projection, 0))


def _inputs(record: ObjectRecord) -> tuple[int, ...]:
    match record:
        case MaterializedViewRecord(inputs=ids) | SourceRecord(uses=ids) | ConnectionRecord(uses=ids):
            return tuple(dict.fromkeys(ids))
        case SinkRecord():
            return tuple(dict.fromkeys((*record.inputs, *record.uses)))
        case RebuildRecord(view=MaterializedViewRecord(inputs=ids)):
            return tuple(dict.fromkeys(ids))
        case _:
            return ()


_Value = TypeVar("_Value")


def _merged(old: Mapping[str, _Value], new: Mapping[str, _Value | None]) -> dict[str, _Value]:
    merged = dict(old)
    for key, value in new.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged
