"""A plain model of the catalog, random operations that are valid for the model, and short functions that make
records."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st

from rw_sql.metastore import Snapshot
from rw_sql.metastore.codec import before_to_json, changes_from_json, changes_to_json
from rw_sql.metastore.facts import Lease
from rw_sql.metastore.records import (
    AssignSplits,
    Change,
    DropObject,
    ForgetSplitStates,
    MaterializedViewRecord,
    ObjectRecord,
    Operation,
    OperationRecord,
    ParameterRecord,
    PutObject,
    PutSplitStates,
    SourceRecord,
    UnassignSplits,
)
from rw_sql.metastore.snapshot import before_image, effect_of, fold


class Make:
    """Short functions that make records and operations."""

    def source(self, id: int, name: str, topic: str = "orders") -> SourceRecord:
        return SourceRecord(
            id=id,
            name=name,
            definition=f"CREATE SOURCE {name} WITH (connector = 'kafka', topic = '{topic}')",
            connector="kafka",
            options=(("topic", f"'{topic}'"), ("properties.bootstrap.servers", "'localhost:9092'")),
            is_shared=True,
        )

    def view(self, id: int, name: str, *inputs: int) -> MaterializedViewRecord:
        return MaterializedViewRecord(
            id=id,
            name=name,
            definition=f"CREATE MATERIALIZED VIEW {name}",
            query="SELECT 1",
            inputs=inputs,
            schema="{}",
        )

    def operation(
        self, *changes: Change, kind: str = "TEST", is_unsafe: bool = False, objects: tuple[str, ...] = ()
    ) -> Operation:
        return Operation(
            kind=kind,
            statement=f"{kind} statement",
            objects=objects,
            changes=changes,
            is_unsafe=is_unsafe,
            actor="tester",
        )

    def source_with_splits(self, id: int, name: str, splits: int) -> Operation:
        ids = tuple(f"orders:{i}" for i in range(splits))
        return self.operation(
            PutObject(record=self.source(id, name)),
            AssignSplits(fragment=f"{id}", splits=ids),
            PutSplitStates(fragment=f"{id}", states={split: f'{{"offset":{at}}}' for at, split in enumerate(ids)}),
            kind="CREATE SOURCE",
            objects=(name,),
        )

    def lease(self, owner: str = "owner", at: int = 1) -> Lease:
        return Lease(
            owner=owner,
            host="host",
            python_pid=1,
            jvm_pid=2,
            python_start="a",
            jvm_start="b",
            taken_at_ms=at,
            heartbeat_ms=at,
            expires_ms=at + 10_000,
            applied_epoch=0,
        )


KINDS = ("source", "materialized_view", "pause", "parameter")
FRAGMENTS = ("f", "g")
SPLITS = ("t:0", "t:1", "t:2")


class Model:
    """The catalog's content as dictionaries that operations modify in place."""

    def __init__(self) -> None:
        self.epoch = 0
        self.objects: dict[int, ObjectRecord] = {}
        self.object_epochs: dict[int, int] = {}
        self.splits: dict[tuple[str, str], int] = {}
        self.states: dict[tuple[str, str], tuple[str, int, int]] = {}
        self.fragment_epochs: dict[str, int] = {}

    def apply(self, changes: tuple[Change, ...]) -> None:
        self.epoch += 1
        splits, states, known = dict(self.splits), dict(self.states), set(self.objects)
        for change in changes:
            match change:
                case PutObject(record=record):
                    self.objects[record.id] = record
                    self.object_epochs[record.id] = self.epoch
                case DropObject(id=id):
                    del self.objects[id]
                    if id in known:
                        self.object_epochs[id] = self.epoch
                    else:
                        del self.object_epochs[id]
                case AssignSplits(fragment=fragment, splits=names):
                    for split in names:
                        self.splits.setdefault((fragment, split), self.epoch)
                case UnassignSplits(fragment=fragment, splits=names):
                    for split in names:
                        self.splits.pop((fragment, split), None)
                case PutSplitStates(fragment=fragment, states=texts, log_version=version):
                    for split, text in texts.items():
                        self.states[fragment, split] = (text, self.epoch, version)
                case ForgetSplitStates(fragment=fragment, splits=names):
                    for split in names:
                        self.states.pop((fragment, split), None)
        for fragment in FRAGMENTS:
            if any(
                before.get((fragment, split)) != after.get((fragment, split))
                for before, after in ((splits, self.splits), (states, self.states))
                for split in SPLITS
            ):
                self.fragment_epochs[fragment] = self.epoch

    def content(self) -> dict[str, object]:
        return {
            "epoch": self.epoch,
            "objects": dict(sorted(self.objects.items())),
            "object_epochs": {id: epoch for id, epoch in self.object_epochs.items() if epoch},
            "splits": self.splits,
            "states": self.states,
            "fragment_epochs": self.fragment_epochs,
        }


def content(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "epoch": snapshot.epoch,
        "objects": dict(sorted((record.id, record) for kind in KINDS for record in snapshot.all(kind))),
        "object_epochs": dict(snapshot.object_epochs),
        "splits": {
            (fragment, split): assigned.epoch
            for fragment in FRAGMENTS
            for split, assigned in snapshot.splits(fragment).items()
        },
        "states": {
            (fragment, split): (stored.state, stored.epoch, stored.log_version)
            for fragment in FRAGMENTS
            for split, stored in snapshot.states(fragment).items()
        },
        "fragment_epochs": {f: snapshot.fragment_epoch(f) for f in FRAGMENTS if snapshot.fragment_epoch(f)},
    }


def without_epochs(snapshot: Snapshot) -> tuple[object, ...]:
    found = content(snapshot)
    states = {key: (text, version) for key, (text, _, version) in found["states"].items()}
    return found["objects"], set(found["splits"]), states


def check_lookups(snapshot: Snapshot) -> None:
    """Asserts that lookups by name, id, kind and dependency agree."""
    for kind in KINDS:
        assert [record.id for record in snapshot.all(kind)] == sorted(record.id for record in snapshot.all(kind))
        for record in snapshot.all(kind):
            assert snapshot.find(kind, record.name) is record
            assert snapshot.get(record.id) is record
            assert record.id < snapshot.next_id
    views = snapshot.all("materialized_view")
    assert len(snapshot.names) == len(snapshot.records) == sum(len(snapshot.all(kind)) for kind in KINDS)
    for id in (*snapshot.records, 999):
        assert snapshot.readers_of(id) == tuple(view for view in views if id in view.inputs)
        wanted: set[int] = set()
        while more := {v.id for v in views if v.id not in wanted and (id in v.inputs or wanted & set(v.inputs))}:
            wanted |= more
        assert snapshot.dependents_of(id) == tuple(view for view in views if view.id in wanted)


@st.composite
def operations(draw: st.DrawFn, objects: dict[int, ObjectRecord], next_id: int) -> tuple[Change, ...]:
    """Draws changes that are valid for the model's content. One operation may have several changes, also for the same
    key."""
    present = dict(objects)
    changes: list[Change] = []
    for _ in range(draw(st.integers(1, 4))):
        what = draw(st.sampled_from(("create", "replace", "drop", "assign", "unassign", "put", "forget")))
        fragment = draw(st.sampled_from(FRAGMENTS))
        splits = tuple(draw(st.lists(st.sampled_from(SPLITS), unique=True, max_size=3)))
        if what == "create" or (what in ("replace", "drop") and not present):
            present[next_id] = _new_record(draw, present, next_id)
            changes.append(PutObject(record=present[next_id]))
            next_id += 1
        elif what == "replace":
            old = present[draw(st.sampled_from(sorted(present)))]
            record = _replaced(draw, old, next_id)
            present[record.id] = record
            changes.append(PutObject(record=record))
        elif what == "drop":
            id = draw(st.sampled_from(sorted(present)))
            del present[id]
            changes.append(DropObject(id=id))
        elif what == "assign":
            changes.append(AssignSplits(fragment=fragment, splits=splits))
        elif what == "unassign":
            changes.append(UnassignSplits(fragment=fragment, splits=splits))
        elif what == "put":
            states = {split: f'{{"offset":{draw(st.integers(0, 9))}}}' for split in splits}
            changes.append(PutSplitStates(fragment=fragment, states=states, log_version=draw(st.integers(-1, 3))))
        else:
            changes.append(ForgetSplitStates(fragment=fragment, splits=splits))
    return tuple(changes)


def _new_record(draw: st.DrawFn, present: dict[int, ObjectRecord], id: int) -> ObjectRecord:
    match draw(st.sampled_from(("source", "view", "parameter"))):
        case "source":
            return SourceRecord(
                id=id, name=f"s{id}", definition="d", connector="kafka", options=(("topic", "'t'"),), is_shared=True
            )
        case "view":
            inputs = tuple(draw(st.lists(st.sampled_from(sorted(present)), max_size=3))) if present else ()
            return MaterializedViewRecord(
                id=id, name=f"m{id}", definition="d", query="q", inputs=inputs, schema="{}", keys=("k",)
            )
        case _:
            return ParameterRecord(id=id, name=f"p{id}", value="v")


def _replaced(draw: st.DrawFn, old: ObjectRecord, salt: int) -> ObjectRecord:
    match old:
        case SourceRecord():
            return replace(old, name=f"s{old.id}_{salt}", generation=old.generation + 1)
        case MaterializedViewRecord():
            return replace(old, inputs=old.inputs[: draw(st.integers(0, len(old.inputs)))])
        case ParameterRecord():
            return replace(old, value=draw(st.sampled_from("abc")))
        case _:
            raise AssertionError(f"the model makes no {type(old).__name__}")


def apply(snapshot: Snapshot, changes: tuple[Change, ...]) -> tuple[Snapshot, OperationRecord]:
    """Returns the snapshot after the operation, and the operation's record in the form in which the log returns it."""
    stored = changes_from_json(changes_to_json(changes))
    effect = effect_of(snapshot, snapshot.epoch + 1, "tester", stored)
    record: Any = SimpleNamespace(before=before_to_json(before_image(snapshot, effect)))
    return fold(snapshot, effect), record
