from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rw_sql.errors import SqlError
from rw_sql.metastore import ConcurrentCommit, Metastore, apply_before, debounced_task
from rw_sql.metastore.records import AssignSplits, Change, DropObject, ForgetSplitStates, PutObject, PutSplitStates
from rw_sql.metastore.table import UPKEEP_EVERY, StoredTable
from tests.metastore.metastore_model import Make, Model, check_lookups, content, operations, without_epochs
from tests.support.waits import LAST_RESORT_SECONDS


def test_a_commit_is_seen_by_everybody(metastore: Metastore, warehouse: str, make: Make) -> None:
    other = Metastore.open(warehouse)
    empty = other.snapshot()
    version = other.version()
    assert empty.epoch == 0
    committed = metastore.commit(make.source_with_splits(1, "orders", 3), based_on=metastore.snapshot())
    assert committed.epoch == 1
    assert metastore.snapshot() is committed.snapshot
    assert other.version() > version
    for snapshot in (other.snapshot(), Metastore.open(warehouse).snapshot()):
        assert content(snapshot) == content(committed.snapshot)
        assert snapshot.find("source", "orders") == make.source(1, "orders")
        assert list(snapshot.splits("1")) == ["orders:0", "orders:1", "orders:2"]
        assert snapshot.states("1")["orders:2"].state == '{"offset":2}'
    assert other.snapshot() is other.snapshot()
    assert empty.find("source", "orders") is None


def test_a_commit_on_an_old_snapshot_is_refused_and_leaves_nothing(
    metastore: Metastore, warehouse: str, make: Make
) -> None:
    other = Metastore.open(warehouse)
    old = other.snapshot()
    metastore.commit(make.source_with_splits(1, "orders", 1), based_on=metastore.snapshot())
    version = metastore.version()
    with pytest.raises(ConcurrentCommit) as refused:
        other.commit(make.source_with_splits(1, "others", 1), based_on=old)
    assert (refused.value.epoch, refused.value.based_on, refused.value.code) == (1, 0, "RW309")
    assert metastore.version() == version
    committed = other.commit(make.source_with_splits(2, "others", 1), based_on=other.snapshot())
    assert committed.epoch == 2
    assert [record.name for record in metastore.snapshot().all("source")] == ["orders", "others"]


def test_a_commit_that_does_not_fit_leaves_nothing(metastore: Metastore, make: Make) -> None:
    version = metastore.version()
    with pytest.raises(ValueError, match="does not exist"):
        metastore.commit(make.operation(DropObject(id=1)), based_on=metastore.snapshot())
    assert metastore.version() == version


def test_outcomes_and_upkeep_in_between_do_not_refuse_a_commit(
    metastore: Metastore, warehouse: str, make: Make
) -> None:
    other = Metastore.open(warehouse)
    metastore.commit(make.source_with_splits(1, "orders", 1), based_on=metastore.snapshot())
    planned_on = other.snapshot()
    metastore.record_outcome(1, "applied", 5)
    StoredTable(f"{warehouse}/rw_catalog/operations").upkeep()
    assert other.commit(make.operation(DropObject(id=1)), based_on=planned_on).epoch == 2


def test_an_outcome_that_is_recorded_later_is_there_for_whoever_asks(metastore: Metastore, make: Make) -> None:
    metastore.commit(make.source_with_splits(1, "orders", 1), based_on=metastore.snapshot())
    metastore.record_outcome_later(1, "applied", 5)
    assert [(record.epoch, record.outcome, record.duration_ms) for record in metastore.operations()] == [
        (1, "applied", 5)
    ]
    snapshot = metastore.snapshot()
    metastore.record_outcome_later(1, "applied", 6)
    metastore.flush()
    assert metastore.snapshot() is snapshot


def test_outcomes_that_come_within_a_moment_are_one_commit(metastore: Metastore, make: Make) -> None:
    snapshot = metastore.snapshot()
    for number in range(1, 4):
        snapshot = metastore.commit(make.source_with_splits(number, f"s{number}", 1), based_on=snapshot).snapshot
    before = metastore.version()
    for epoch in (1, 2, 3):
        metastore.record_outcome_later(epoch, "applied", epoch)
    metastore.flush()
    assert metastore.version() == before + 1
    assert metastore.snapshot() is snapshot
    assert [(record.epoch, record.duration_ms) for record in metastore.operations()] == [(3, 3), (2, 2), (1, 1)]
    metastore.record_outcome_later(3, "applied", 7)
    assert [record.duration_ms for record in metastore.operations() if record.epoch == 3] == [7]


def test_an_outcome_that_nobody_asks_for_is_recorded_soon(
    metastore: Metastore, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metastore._outcomes, "seconds", 0.01)
    metastore.commit(make.source_with_splits(1, "orders", 1), based_on=metastore.snapshot())
    before = metastore.version()
    metastore.record_outcome_later(1, "applied", 5)
    for _ in range(1000):
        if metastore.version() > before:
            break
        time.sleep(0.01)
    assert metastore.version() == before + 1


def test_where_there_can_be_no_more_threads_an_outcome_is_recorded_at_once(
    metastore: Metastore, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refused(Thread):
        def start(self) -> None:
            raise RuntimeError("can't create new thread at interpreter shutdown")

    metastore.commit(make.source_with_splits(1, "orders", 1), based_on=metastore.snapshot())
    monkeypatch.setattr(debounced_task, "Thread", Refused)
    monkeypatch.setattr(StoredTable, "is_upkeep_due", lambda *_: True)
    metastore.record_outcome_later(1, "applied", 5)
    metastore.flush(with_upkeep=True)
    assert metastore.operations()[0].outcome == "applied"


@pytest.mark.parametrize("how", ["commit", "outcome"])
def test_upkeep_without_threads_does_not_lock_out_a_projection(
    metastore: Metastore, make: Make, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    class Refused(Thread):
        def start(self) -> None:
            raise RuntimeError("can't create new thread at interpreter shutdown")

    first = metastore.commit(make.source_with_splits(1, "orders", 1), based_on=metastore.snapshot())
    metastore.flush(with_upkeep=True)
    is_held, is_tended, got = Event(), Event(), list[bool]()

    def project() -> None:
        with metastore._projections["objects"].lock:
            is_held.set()
            assert is_tended.wait(LAST_RESORT_SECONDS)
            got.append(metastore._lock.acquire(timeout=LAST_RESORT_SECONDS))
            if got[0]:
                metastore._lock.release()

    projecting = Thread(target=project)
    projecting.start()
    assert is_held.wait(LAST_RESORT_SECONDS)
    monkeypatch.setattr(debounced_task, "Thread", Refused)
    monkeypatch.setattr(StoredTable, "is_upkeep_due", lambda *_: True)
    monkeypatch.setattr(StoredTable, "upkeep", lambda _: is_tended.set())
    monkeypatch.setattr(metastore, "project", lambda: None)
    if how == "commit":
        metastore.commit(make.source_with_splits(2, "late", 1), based_on=first.snapshot)
    else:
        metastore.record_outcome(1, "applied", 5)
    projecting.join()
    assert got == [True]


def test_projections_follow_a_commit_and_the_ones_after_it(
    metastore: Metastore, warehouse: str, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_go_on = Event(), Event()

    def fault(point: str) -> None:
        if point == "metastore.after_objects" and not begun.is_set():
            begun.set()
            assert may_go_on.wait(LAST_RESORT_SECONDS)

    metastore.faults = fault
    first = metastore.commit(make.source_with_splits(1, "orders", 2), based_on=metastore.snapshot())
    assert begun.wait(LAST_RESORT_SECONDS)
    # The first commit's splits are being projected; nobody waits for that, and the second commit's splits are written
    # separately.
    second = metastore.commit(make.source_with_splits(2, "late", 3), based_on=first.snapshot)
    splits = f"{warehouse}/rw_catalog/fragment_splits"
    assert StoredTable(splits).transaction("projected") == 0
    may_go_on.set()
    metastore.flush_projections()
    assert StoredTable(splits).transaction("projected") == 2
    assert StoredTable(splits).read().num_rows == 5
    assert content(Metastore.open(warehouse).snapshot()) == content(second.snapshot)


def test_settling_waits_for_the_upkeep_that_the_last_outcome_began(
    metastore: Metastore, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = Event(), Event()

    def upkeep(_: Metastore) -> None:
        begun.set()
        assert may_end.wait(LAST_RESORT_SECONDS)

    metastore.commit(make.source_with_splits(1, "orders", 1), based_on=metastore.snapshot())
    monkeypatch.setattr(Metastore, "_upkeep", upkeep)
    monkeypatch.setattr(StoredTable, "is_upkeep_due", lambda *_: True)
    metastore.record_outcome_later(1, "applied", 5)
    settling = Thread(target=lambda: metastore.flush(with_upkeep=True))
    settling.start()
    assert begun.wait(LAST_RESORT_SECONDS)
    settling.join(0.2)
    assert settling.is_alive()
    may_end.set()
    settling.join(LAST_RESORT_SECONDS)
    assert not settling.is_alive()


def test_each_mark_is_passed_by_one_commit_however_many_came_meanwhile(metastore: Metastore, make: Make) -> None:
    snapshot = metastore.snapshot()
    for number in range(1, 4):
        snapshot = metastore.commit(make.source_with_splits(number, f"s{number}", 1), based_on=snapshot).snapshot
    due = [before + 1 for before in range(3 * UPKEEP_EVERY) if metastore._operations.is_upkeep_due(before)]
    assert due == [UPKEEP_EVERY, 2 * UPKEEP_EVERY, 3 * UPKEEP_EVERY]


def test_what_is_remembered_of_operations_does_not_grow(metastore: Metastore, warehouse: str, make: Make) -> None:
    other = Metastore.open(warehouse)
    for number in range(1, 10):
        through = other if number in (3, 4) else metastore
        operation = make.operation(PutObject(record=make.source(number, f"s{number}")), is_unsafe=number != 6)
        through.commit(operation, based_on=through.snapshot())
    assert dict.fromkeys(metastore._made) == dict.fromkeys((1, 2, 5, 6, 7, 8, 9))
    assert metastore._made[6] is None
    assert [record.epoch for record in metastore.unsafe_since(5)] == [9, 8, 7, 5]
    assert [record.epoch for record in metastore.unsafe_since(2)] == [9, 8, 7, 5, 4, 3, 2]


def test_unsafe_operations_since_an_epoch_whoever_committed_them(
    metastore: Metastore, warehouse: str, make: Make
) -> None:
    other = Metastore.open(warehouse)

    def commit(through: Metastore, number: int, *, is_unsafe: bool) -> None:
        operation = make.operation(PutObject(record=make.source(number, f"s{number}")), is_unsafe=is_unsafe)
        through.commit(operation, based_on=through.snapshot())

    def epochs(of: Metastore, since: int) -> list[int]:
        return [record.epoch for record in of.unsafe_since(since)]

    commit(metastore, 1, is_unsafe=True)
    commit(metastore, 2, is_unsafe=False)
    commit(metastore, 3, is_unsafe=True)
    assert epochs(metastore, 1) == epochs(other, 1) == [3, 1]
    commit(other, 4, is_unsafe=True)
    commit(metastore, 5, is_unsafe=True)
    for since, found in ((1, [5, 4, 3, 1]), (4, [5, 4]), (5, [5]), (6, [])):
        assert epochs(metastore, since) == epochs(other, since) == found
    (newest, *_) = metastore.unsafe_since(1)
    assert newest == replace(metastore.operations()[0], outcome=None, duration_ms=None)


def test_the_log_of_record_has_user_statement_and_outcome(metastore: Metastore, make: Make) -> None:
    snapshot = metastore.commit(make.source_with_splits(1, "orders", 2), based_on=metastore.snapshot()).snapshot
    inject = replace(
        make.operation(
            PutSplitStates(fragment="1", states={"orders:0": '{"offset":7}'}, log_version=4),
            ForgetSplitStates(fragment="1", splits=("orders:1",)),
            kind="INJECT SOURCE OFFSETS",
            is_unsafe=True,
            objects=("orders", "mv"),
        ),
        reason="wrong offsets",
        plan="the plan",
        prediction='{"gap":1}',
    )
    metastore.commit(inject, based_on=snapshot)
    metastore.record_outcome(2, "committed", 10)
    metastore.record_outcome(2, "applied", 30)
    metastore.record_outcome(1, "applied", 3)
    newest, oldest = metastore.operations()
    assert (newest.epoch, newest.outcome, newest.duration_ms) == (2, "applied", 30)
    assert (oldest.epoch, oldest.outcome, oldest.duration_ms) == (1, "applied", 3)
    assert (newest.kind, newest.objects, newest.actor, newest.is_unsafe) == (
        "INJECT SOURCE OFFSETS",
        ("orders", "mv"),
        "tester",
        True,
    )
    assert (newest.reason, newest.plan, newest.prediction) == ("wrong offsets", "the plan", '{"gap":1}')
    assert json.loads(newest.before)["states"] == {
        "1": {"orders:0": ['{"offset":0}', 1, -1], "orders:1": ['{"offset":1}', 1, -1]}
    }
    assert metastore.operations(is_unsafe=True) == (newest,)
    assert metastore.operations(object_name="orders") == (newest, oldest)
    assert metastore.operations(object_name="mv") == (newest,)
    assert metastore.operations(limit=1) == (newest,)
    assert metastore.operations(object_name="nobody") == ()
    assert metastore.operations(kinds={"INJECT SOURCE OFFSETS"}) == (newest,)
    assert metastore.operations(kinds=()) == ()
    assert metastore.operation(1) == oldest
    assert metastore.operation(3) is None
    assert metastore.snapshot().epoch == 2


@pytest.mark.long
def test_a_process_that_looked_on_for_long_projects_no_more_than_is_missing(
    metastore: Metastore, warehouse: str, make: Make
) -> None:
    onlooker = Metastore.open(warehouse)
    snapshot = metastore.commit(make.source_with_splits(1, "orders", 2), based_on=metastore.snapshot()).snapshot
    for turn in range(70):
        renamed = make.operation(PutObject(record=make.source(1, f"orders_{turn}")))
        snapshot = metastore.commit(renamed, based_on=snapshot).snapshot
        onlooker.snapshot()
    assigned = make.operation(AssignSplits(fragment="1", splits=("late:0",)), DropObject(id=1))
    snapshot = onlooker.commit(assigned, based_on=onlooker.snapshot()).snapshot
    assert content(Metastore.open(warehouse).snapshot()) == content(snapshot)
    rows = StoredTable(f"{warehouse}/rw_catalog/fragment_splits").read().sort_by("epoch").to_pylist()
    assert [(row["epoch"], row["split"]) for row in rows] == [(1, "orders:0"), (1, "orders:1"), (72, "late:0")]
    assert StoredTable(f"{warehouse}/rw_catalog/objects").read().num_rows == 72


def test_parameters_and_dependents(metastore: Metastore, make: Make) -> None:
    changes = (
        PutObject(record=make.source(1, "orders")),
        PutObject(record=make.view(2, "a", 1)),
        PutObject(record=make.view(3, "b", 2, 1)),
        PutObject(record=make.view(4, "c", 3)),
    )
    snapshot = metastore.commit(make.operation(*changes), based_on=metastore.snapshot()).snapshot
    assert [view.name for view in snapshot.readers_of(1)] == ["a", "b"]
    assert [view.name for view in snapshot.dependents_of(1)] == ["a", "b", "c"]
    assert [view.name for view in snapshot.dependents_of(3)] == ["c"]
    assert snapshot.parameter("enable_unsafe_ops") is None


def test_threads_that_commit_at_once_all_get_their_own_epoch(metastore: Metastore, make: Make) -> None:
    def work(worker: int) -> list[int]:
        epochs: list[int] = []
        while len(epochs) < 5:
            snapshot = metastore.snapshot()
            operation = make.operation(PutObject(record=make.source(snapshot.next_id, f"s{worker}_{len(epochs)}")))
            try:
                epochs.append(metastore.commit(operation, based_on=snapshot).epoch)
            except ConcurrentCommit:
                continue
        return epochs

    with ThreadPoolExecutor(4) as threads:
        epochs = [epoch for found in threads.map(work, range(4)) for epoch in found]
    assert sorted(epochs) == list(range(1, 21))
    assert len(metastore.snapshot().all("source")) == 20


def test_a_waiting_process_sees_a_commit_before_the_projections(metastore: Metastore, make: Make) -> None:
    heard = []

    def hear() -> None:
        projected = metastore._projections["objects"].transaction("projected")
        heard.append((metastore.snapshot().epoch, projected))

    metastore.commit(make.source_with_splits(1, "orders", 1), based_on=metastore.snapshot(), on_append=hear)
    assert heard == [(1, 0)]
    metastore.flush_projections()
    assert metastore._projections["objects"].transaction("projected") == 1


def test_events_are_set_by_commits_for_as_long_as_somebody_waits(
    metastore: Metastore, warehouse: str, make: Make
) -> None:
    one, two = Event(), Event()
    with metastore.telling(one), metastore.telling(two):
        metastore.commit(make.source_with_splits(1, "orders", 1), based_on=metastore.snapshot())
        assert (one.is_set(), two.is_set()) == (True, True)
        one.clear()
        other = Metastore.open(warehouse)
        other.commit(make.source_with_splits(2, "others", 1), based_on=other.snapshot())
        assert not one.is_set()
    metastore.commit(make.source_with_splits(3, "more", 1), based_on=metastore.snapshot())
    assert not one.is_set()


def test_a_metastore_knows_which_epochs_it_committed(metastore: Metastore, warehouse: str, make: Make) -> None:
    other = Metastore.open(warehouse)
    metastore.commit(make.source_with_splits(1, "orders", 1), based_on=metastore.snapshot())
    other.commit(make.source_with_splits(2, "others", 1), based_on=other.snapshot())
    metastore.commit(make.source_with_splits(3, "more", 1), based_on=metastore.snapshot())
    assert [metastore.has_made(at, at + 1) for at in range(3)] == [True, False, True]
    assert not metastore.has_made(-1, 1)
    assert not metastore.has_made(0, 3)
    assert metastore.has_made(3, 3)


def test_a_warehouse_given_as_a_uri_of_a_file_is_the_same_one(metastore: Metastore, warehouse: str, make: Make) -> None:
    metastore.commit(make.source_with_splits(1, "orders", 1), based_on=metastore.snapshot())
    assert Metastore.open(f"file://{warehouse}").snapshot().epoch == 1


def test_a_table_behind_an_object_store_is_read_through_it(metastore: Metastore, warehouse: str, make: Make) -> None:
    table = StoredTable(f"file://{warehouse}/rw_catalog/objects")
    assert table.latest_version() == 0
    metastore.commit(make.source_with_splits(1, "orders", 1), based_on=metastore.snapshot())
    metastore.flush_projections()
    assert table.latest_version() == 1
    new = table.read_new()
    assert (new.rows.num_rows, new.is_whole, new.version) == (1, False, 1)
    assert table.read(above=("epoch", 1)).num_rows == 0
    metastore.commit(make.source_with_splits(2, "others", 1), based_on=metastore.snapshot())
    metastore.flush_projections()
    table.refresh()
    table.upkeep()
    new = table.read_new()
    assert (new.rows.num_rows, new.is_whole) == (2, True)


def test_a_log_that_lost_an_operation_is_not_read_as_if_it_had_not(
    metastore: Metastore, warehouse: str, make: Make
) -> None:
    metastore.commit(make.source_with_splits(1, "orders", 1), based_on=metastore.snapshot())
    table = StoredTable(f"{warehouse}/rw_catalog/operations")
    table.append(table.schema.empty_table(), transaction=("epoch", 5))
    with pytest.raises(OSError, match="its newest commit has epoch 5"):
        Metastore.open(warehouse)


@pytest.mark.long
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_store_equals_the_model_also_when_opened_again(
    tmp_path_factory: pytest.TempPathFactory, make: Make, data: st.DataObject
) -> None:
    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    metastore, other = Metastore.open(warehouse), Metastore.open(warehouse)
    model = Model()
    for _ in range(data.draw(st.integers(2, 8))):
        writer = data.draw(st.sampled_from((metastore, other)))
        snapshot = writer.snapshot()
        model.apply(changes := data.draw(operations(model.objects, snapshot.next_id)))
        writer.commit(make.operation(*changes), based_on=snapshot)
        if data.draw(st.booleans()):
            StoredTable(f"{warehouse}/rw_catalog/{data.draw(st.sampled_from(TABLES))}").upkeep()
        if data.draw(st.booleans()):
            metastore = Metastore.open(warehouse)
        for reader in (metastore, other):
            assert content(reader.snapshot()) == model.content()
            check_lookups(reader.snapshot())
    operation = metastore.operation(model.epoch)
    assert operation is not None
    snapshot = metastore.snapshot()
    undone = metastore.commit(make.operation(*apply_before(operation)), based_on=snapshot).snapshot
    again = other.operation(undone.epoch)
    assert again is not None
    redone = other.commit(make.operation(*apply_before(again)), based_on=other.snapshot()).snapshot
    assert without_epochs(redone) == without_epochs(snapshot)


TABLES = ("operations", "objects", "fragment_splits", "source_state")


@pytest.mark.long
def test_upkeep_keeps_the_files_few_and_loses_nothing(metastore: Metastore, warehouse: str, make: Make) -> None:
    directory = Path(warehouse, "rw_catalog")
    snapshot = metastore.commit(make.source_with_splits(1, "orders", 40), based_on=metastore.snapshot()).snapshot
    reader = Metastore.open(warehouse)
    splits = tuple(snapshot.splits("1"))
    for turn in range(120):
        states = dict.fromkeys(splits, f'{{"offset":{turn}}}')
        changes: list[Change]
        changes = [PutSplitStates(fragment="1", states=states), PutObject(record=make.source(1, f"orders_{turn}"))]
        if turn == 60:
            changes.append(AssignSplits(fragment="1", splits=("late:0",)))
        snapshot = metastore.commit(make.operation(*changes), based_on=snapshot).snapshot
        metastore.flush_projections()  # each in a commit of its own
        if turn % 9 == 0:
            assert content(reader.snapshot()) == content(snapshot)
    assert content(reader.snapshot()) == content(snapshot)
    assert content(Metastore.open(warehouse).snapshot()) == content(snapshot)
    assert len(metastore.operations()) == 121
    for name in TABLES:
        assert len(list(directory.joinpath(name).glob("*.parquet"))) <= 110, name
    # The replaced states are gone from the projection, and an unchanged table has the epoch.
    assert StoredTable(str(directory / "source_state")).read().num_rows < 121 * 40
    assert StoredTable(str(directory / "fragment_splits")).transaction("projected") > 61


def test_a_dropped_metastore_kind_is_named(metastore: Metastore, warehouse: str, make: Make) -> None:
    metastore.commit(make.source_with_splits(1, "orders", 1), based_on=metastore.snapshot())
    metastore.flush_projections()
    table = StoredTable(f"{warehouse}/rw_catalog/objects")
    row = table.read().to_pylist()[0]
    row["record"] = row["record"].replace('"kind":"source"', '"kind":"pipe"')
    table.append(pa.Table.from_pylist([row], table.schema), overwrite=True)
    with pytest.raises(SqlError, match="pipe") as refused:
        Metastore.open(warehouse)
    assert refused.value.code == "RW308"
