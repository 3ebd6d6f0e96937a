"""The fold of operations into a snapshot, against a plain model, without storage."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rw_sql.metastore import Snapshot, apply_before
from rw_sql.metastore.records import DropObject, PutObject
from rw_sql.metastore.snapshot import effect_of
from tests.metastore.metastore_model import Make, Model, apply, check_lookups, content, operations, without_epochs


@pytest.mark.long
@settings(max_examples=150)
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


@pytest.mark.long
@settings(max_examples=150)
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


def test_names_may_be_swapped_and_taken_over_in_one_operation(make: Make) -> None:
    snapshot, _ = apply(Snapshot(), (PutObject(record=make.source(1, "a")), PutObject(record=make.source(2, "b"))))
    swapped, swap = apply(snapshot, (PutObject(record=make.source(1, "b")), PutObject(record=make.source(2, "a"))))
    assert {record.id: record.name for record in swapped.all("source")} == {1: "b", 2: "a"}
    assert without_epochs(apply(swapped, apply_before(swap))[0]) == without_epochs(snapshot)
    taken, take = apply(snapshot, (PutObject(record=make.source(3, "a")), DropObject(id=1)))
    assert {record.id: record.name for record in taken.all("source")} == {2: "b", 3: "a"}
    assert without_epochs(apply(taken, apply_before(take))[0]) == without_epochs(snapshot)


def test_what_does_not_fit_is_refused(make: Make) -> None:
    snapshot, _ = apply(Snapshot(), (PutObject(record=make.source(1, "a")),))
    for changes, complaint in (
        ((DropObject(id=2),), "does not exist"),
        ((PutObject(record=make.source(2, "a")),), "belongs to object 1"),
        ((PutObject(record=make.source(2, "b")), PutObject(record=make.source(3, "b"))), "belongs to object 2"),
        ((PutObject(record=make.view(1, "a")),), "cannot become"),
    ):
        with pytest.raises(ValueError, match=complaint):
            effect_of(snapshot, 2, "tester", changes)


def test_an_id_is_never_given_twice(make: Make) -> None:
    snapshot, _ = apply(Snapshot(), (PutObject(record=make.source(7, "a")),))
    snapshot, _ = apply(snapshot, (DropObject(id=7),))
    assert snapshot.next_id == 8
    assert (snapshot.get(7), snapshot.object_epoch(7), snapshot.object_epoch(8)) == (None, 2, 0)
