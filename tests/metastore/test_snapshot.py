"""The fold of operations into a snapshot, against a plain model, without storage."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rw_sql.metastore import Snapshot, apply_before
from rw_sql.metastore.codec import before_to_json, changes_from_json, changes_to_json
from rw_sql.metastore.records import (
    AssignSplits,
    Change,
    DropObject,
    ForgetSplitStates,
    MaterializedViewRecord,
    ParameterRecord,
    PutObject,
    PutSplitStates,
    SourceRecord,
    UnassignSplits,
)
from rw_sql.metastore.snapshot import before_image, effect_of, fold

KINDS = ("source", "materialized_view", "pause", "parameter")
FRAGMENTS = ("f", "g")
SPLITS = ("t:0", "t:1", "t:2")


class Model:
    """What the catalog holds, as dictionaries that operations write to in place."""

    def __init__(self) -> None:
        self.epoch = 0
        self.objects: dict[int, object] = {}
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


def content(snapshot: Snapshot) -> dict[str, object]:
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
    """What is found by name, id, kind and dependency agrees."""
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
def operations(draw: st.DrawFn, objects: dict[int, object], next_id: int) -> tuple[Change, ...]:
    """Changes that fit what the model holds, several to an operation and several to one key."""
    present = dict(objects)
    changes: list[Change] = []
    for _ in range(draw(st.integers(1, 4))):
        what = draw(st.sampled_from(("create", "replace", "drop", "assign", "unassign", "put", "forget")))
        fragment = draw(st.sampled_from(FRAGMENTS))
        splits = tuple(draw(st.lists(st.sampled_from(SPLITS), unique=True, max_size=3)))
        if what == "create" or (what in ("replace", "drop") and not present):
            changes.append(PutObject(record=_new_record(draw, present, next_id)))
            present[next_id] = changes[-1].record
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


def _new_record(draw: st.DrawFn, present: dict[int, object], id: int) -> object:
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


def _replaced(draw: st.DrawFn, old: object, salt: int) -> object:
    from dataclasses import replace

    match old:
        case SourceRecord():
            return replace(old, name=f"s{old.id}_{salt}", generation=old.generation + 1)
        case MaterializedViewRecord():
            return replace(old, inputs=old.inputs[: draw(st.integers(0, len(old.inputs)))])
        case _:
            return replace(old, value=draw(st.sampled_from("abc")))


def apply(snapshot: Snapshot, changes: tuple[Change, ...]) -> tuple[Snapshot, object]:
    """The snapshot after the operation, and the operation's record as the log would give it back."""
    stored = changes_from_json(changes_to_json(changes))
    effect = effect_of(snapshot, snapshot.epoch + 1, "tester", stored)
    record = SimpleNamespace(before=before_to_json(before_image(snapshot, effect)))
    return fold(snapshot, effect), record


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_snapshot_equals_the_model_and_never_changes(data: st.DataObject) -> None:
    model, snapshot = Model(), Snapshot()
    seen = [(snapshot, content(snapshot))]
    for _ in range(data.draw(st.integers(1, 12))):
        changes = data.draw(operations(model.objects, snapshot.next_id))
        model.apply(changes)
        snapshot, _ = apply(snapshot, changes)
        assert content(snapshot) == model.content()
        check_lookups(snapshot)
        seen.append((snapshot, content(snapshot)))
    for old, was in seen:
        assert content(old) == was


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_undo_gives_back_what_was_there(data: st.DataObject) -> None:
    snapshot = Snapshot()
    for _ in range(data.draw(st.integers(1, 6))):
        before = snapshot
        changes = data.draw(operations(dict(snapshot.records), snapshot.next_id))
        snapshot, operation = apply(before, changes)
        undone, undoing = apply(snapshot, apply_before(operation))
        assert without_epochs(undone) == without_epochs(before)
        check_lookups(undone)
        redone, _ = apply(undone, apply_before(undoing))
        assert without_epochs(redone) == without_epochs(snapshot)


def test_names_may_be_swapped_and_taken_over_in_one_operation(make) -> None:
    snapshot, _ = apply(Snapshot(), (PutObject(record=make.source(1, "a")), PutObject(record=make.source(2, "b"))))
    swapped, swap = apply(snapshot, (PutObject(record=make.source(1, "b")), PutObject(record=make.source(2, "a"))))
    assert (swapped.find("source", "a").id, swapped.find("source", "b").id) == (2, 1)
    assert without_epochs(apply(swapped, apply_before(swap))[0]) == without_epochs(snapshot)
    taken, take = apply(snapshot, (PutObject(record=make.source(3, "a")), DropObject(id=1)))
    assert taken.find("source", "a").id == 3
    assert without_epochs(apply(taken, apply_before(take))[0]) == without_epochs(snapshot)


def test_what_does_not_fit_is_refused(make) -> None:
    snapshot, _ = apply(Snapshot(), (PutObject(record=make.source(1, "a")),))
    for changes, complaint in (
        ((DropObject(id=2),), "does not exist"),
        ((PutObject(record=make.source(2, "a")),), "held by object 1"),
        ((PutObject(record=make.source(2, "b")), PutObject(record=make.source(3, "b"))), "held by object 2"),
        ((PutObject(record=make.view(1, "a")),), "cannot become"),
    ):
        with pytest.raises(ValueError, match=complaint):
            effect_of(snapshot, 2, "tester", changes)


def test_an_id_is_never_given_twice(make) -> None:
    snapshot, _ = apply(Snapshot(), (PutObject(record=make.source(7, "a")),))
    snapshot, _ = apply(snapshot, (DropObject(id=7),))
    assert snapshot.next_id == 8
    assert (snapshot.get(7), snapshot.object_epoch(7), snapshot.object_epoch(8)) == (None, 2, 0)
