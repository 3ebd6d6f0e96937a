"""How far a view is behind its inputs: the rows that it has not read, and the age of the oldest one."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from rw_sql.metastore.records import LivePosition, MaterializedViewRecord, PutObject, SourceRecord, TableRecord
from rw_sql.runtime.delta.delta_log import JobCommit
from rw_sql.runtime.observe import commit_numbers, lag
from rw_sql.runtime.observe.lag import Lag, measure_lag
from rw_sql.runtime.support.warehouse import Warehouse
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.runtime.jobs.context import Context

AT = 1_700_000_000_000
"""The time of version 0 of each table; each later version is a second later."""


@dataclass(slots=True)
class Behind:
    """A warehouse with view 4 over table ``of``, whose commits a test writes as files."""

    written: WrittenWarehouse
    of: int
    version: int = 0
    context: Context = field(init=False)

    def __post_init__(self) -> None:
        self.written.fence(f"mv-{self.of}", 1)  # versions 0 and 1
        self.version = 1
        self.context = self.written.context()

    @property
    def table(self) -> str:
        """The path of the view's input."""
        return Warehouse.at(self.written.uri).data(self.of, 1)

    def commit(self, *actions: dict[str, Any], times: int = 1, **info: Any) -> int:
        """Writes that many commits with these actions; returns the version of the last one."""
        for _ in range(times):
            self.version += 1
            told = {"commitInfo": {"timestamp": AT + self.version * 1000, **info}}
            lines = "\n".join(json.dumps(each) for each in (told, *actions))
            Path(self.table, "_delta_log", f"{self.version:020d}.json").write_text(lines, encoding="utf-8")
        return self.version

    def reach(self, version: int, *others: str, reader: int = 4) -> None:
        """A view has read all commits before this version; ``others`` are further tables it has read to their end."""
        folder = self.written.folder / "checkpoints" / f"mv-{reader}" / "1"
        ids = [(str(DeltaTable(self.table, version=0).metadata().id), version)]
        ids += [(str(DeltaTable(other).metadata().id), 99) for other in others]
        offsets = [{"reservoirId": id_, "reservoirVersion": at, "index": -1} for id_, at in ids]
        for name, text in (("offsets", "\n".join(["v1", "{}", *map(json.dumps, offsets)])), ("commits", "v1\n{}")):
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / "0").write_text(text, encoding="utf-8")

    def lag(self, **more: Any) -> Lag:
        """The lag of view 4 now."""
        return measure_lag(self.context, self.context.metastore.snapshot(), **more)["mv-4"]


def added(rows: int) -> dict[str, Any]:
    """A file with new rows."""
    return {"add": {"path": "f", "stats": json.dumps({"numRecords": rows})}}


REMOVED = {"remove": {"path": "f"}}


@pytest.fixture
def written(tmp_path: Path) -> WrittenWarehouse:
    return WrittenWarehouse(tmp_path / "w")


@pytest.fixture
def appended(written: WrittenWarehouse) -> Behind:
    """View 4 over view 3, to which rows are only appended."""
    written.commit(*written.source(2, "s"), written.view(3, "v", 2), written.view(4, "w", 3))
    return Behind(written, 3)


@pytest.fixture
def keyed(written: WrittenWarehouse) -> Behind:
    """View 4 over view 3, whose rows have keys."""
    view = written.view(3, "v", 2)
    assert isinstance(view, PutObject)
    assert isinstance(view.record, MaterializedViewRecord)
    record = replace(view.record, keys=("id",), has_change_feed=True)
    written.commit(*written.source(2, "s"), PutObject(record=record), written.view(4, "w", 3))
    return Behind(written, 3)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[int]]:
    """Returns the versions of the commits that were read since the last call, without the first commit, which has the
    table's id."""
    found: list[int] = []
    read = Warehouse.read_text

    def noted(self: Warehouse, path: str) -> str:
        name = path.rpartition("/")[2]
        if "_delta_log" in path and int(name[:20]) > 0:
            found.append(int(name[:20]))
        return read(self, path)

    def taken() -> list[int]:
        versions = list(found)
        found.clear()
        return versions

    monkeypatch.setattr(Warehouse, "read_text", noted)
    return taken


@pytest.mark.parametrize("most", [10_000, 1000, 50])
def test_the_age_of_the_oldest_row_does_not_depend_on_the_number_of_versions_after_it(
    appended: Behind, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(lag, "_MOST_VERSIONS", most)
    first = appended.commit()  # has no rows
    appended.reach(first)
    appended.commit(added(2), times=1100)
    found = appended.lag()
    assert found.since_ms == AT + (first + 1) * 1000
    assert found.seconds(AT + (first + 301) * 1000) == 300
    assert found.records == (2200 if most == 10_000 else None)


def test_a_view_that_has_read_all_is_not_behind_however_many_versions_have_no_rows(
    appended: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag, "_MOST_VERSIONS", 3)
    appended.reach(appended.version + 1)
    appended.commit(times=9)
    assert appended.lag() == Lag(records=0)


def test_an_input_of_unknown_lag_does_not_hide_the_age_of_another(written: WrittenWarehouse) -> None:
    written.commit(
        *written.source(2, "s"), written.view(3, "v", 2), written.view(5, "u", 2), written.view(4, "w", 3, 5)
    )
    behind = Behind(written, 3)
    other = written.fence("mv-5", 1)
    behind.reach(2)
    behind.commit(added(2))
    assert behind.lag() == Lag(records=None, since_ms=AT + 2000), "nothing is known of the view's second input"
    behind.reach(2, other)
    assert behind.lag() == Lag(records=2, since_ms=AT + 2000)


def test_an_age_is_known_without_a_number_of_records() -> None:
    """As for kinesis and pulsar, whose offsets do not count records."""
    assert Lag(since_ms=AT).seconds(AT + 5000) == 5
    assert Lag().seconds(AT) is None
    assert Lag(records=0).seconds(AT) == 0


def test_a_rewritten_file_counts_as_the_rows_that_changed(keyed: Behind) -> None:
    keyed.reach(2)
    counters = {"num_target_rows_inserted": 0, "num_target_rows_updated": 1, "num_target_rows_deleted": 0}
    keyed.commit(added(100_000), REMOVED, {"cdc": {}}, operation="MERGE", operationMetrics=counters)
    assert keyed.lag() == Lag(records=1, since_ms=AT + 2000)


def test_removed_rows_are_rows_that_a_reader_of_the_feed_has_not_read(keyed: Behind) -> None:
    keyed.reach(2)
    keyed.commit(REMOVED, operation="DELETE", operationMetrics={"numDeletedRows": "3"})
    assert keyed.lag() == Lag(records=3, since_ms=AT + 2000)
    keyed.commit(REMOVED, operation="WRITE")
    assert keyed.lag() == Lag(records=None, since_ms=AT + 2000), "the second commit does not show its rows"


def test_removed_rows_are_none_for_a_reader_that_only_reads_new_rows(appended: Behind) -> None:
    appended.reach(2)
    appended.commit(REMOVED)
    assert appended.lag() == Lag(records=0)


def test_files_without_statistics_have_an_age(appended: Behind) -> None:
    appended.reach(2)
    appended.commit({"add": {"path": "f"}})
    assert appended.lag() == Lag(records=None, since_ms=AT + 2000)


def test_a_measurement_reads_only_the_commits_that_were_not_read_earlier(
    appended: Behind, reads: Callable[[], list[int]]
) -> None:
    appended.reach(2)
    last = appended.commit(added(1), times=500)
    assert appended.lag().records == 500
    assert sorted(reads()) == list(range(2, last + 1))
    assert appended.lag().records == 500
    assert reads() == []
    newest = appended.commit(added(1), times=3)
    assert appended.lag().records == 503
    assert reads() == list(range(newest - 2, newest + 1))


def test_a_measurement_that_is_out_of_time_has_the_age_and_the_next_one_continues(
    appended: Behind, reads: Callable[[], list[int]]
) -> None:
    appended.reach(2)
    appended.commit(added(1), times=3)
    assert appended.lag(seconds=0) == Lag(records=None, since_ms=AT + 2000)
    assert reads() == [2]
    assert appended.lag(seconds=0) == Lag(records=None, since_ms=AT + 2000)
    assert reads() == [3]
    assert appended.lag() == Lag(records=3, since_ms=AT + 2000)
    assert reads() == [4]


def test_commits_without_own_rows_are_read_once_even_if_none_is_kept(
    written: WrittenWarehouse, monkeypatch: pytest.MonkeyPatch, reads: Callable[[], list[int]]
) -> None:
    """A table of a captured database reads the log of its source, in which most commits may belong to other tables."""
    monkeypatch.setattr(commit_numbers, "_MOST_KEPT", 0)
    (source, *splits) = written.source(2, "s")
    assert isinstance(source, PutObject)
    assert isinstance(source.record, SourceRecord)
    definition = "CREATE TABLE w (id INT, PRIMARY KEY (id)) FROM s TABLE 'public.own'"
    table = TableRecord(
        id=4,
        name="w",
        definition=definition,
        query="",
        schema="",
        inputs=(2,),
        primary_key=("id",),
        live_from=LivePosition(0, 0, 0),
    )
    written.commit(source, *splits, PutObject(record=table))
    behind = Behind(written, 2)
    behind.reach(2)

    def of(upstream: str) -> str:
        return JobCommit(job="ingest-2", run=1, epoch=1, batch=1, ranges={}, rows={upstream: 2}).to_json()

    behind.commit(added(2), times=20, userMetadata=of("public.other"))
    assert behind.lag() == Lag(records=0)
    reads()
    own = behind.commit(added(2), userMetadata=of("public.own"))
    assert behind.lag() == Lag(records=2, since_ms=AT + own * 1000)
    assert reads() == [own]
    behind.reach(own + 1)
    assert behind.lag() == Lag(records=0)
    behind.reach(2)  # a rewound reader
    assert behind.lag() == Lag(records=2, since_ms=AT + own * 1000)


def several(written: WrittenWarehouse, *tables: int) -> list[Behind]:
    """Views with these ids, each of which is read by the view whose id is higher by 1."""
    written.commit(
        *written.source(2, "s"),
        *(written.view(id_, f"v{id_}", 2) for id_ in tables),
        *(written.view(id_ + 1, f"w{id_}", id_) for id_ in tables),
    )
    found = [Behind(written, id_) for id_ in tables]
    for behind in found:
        behind.reach(2, reader=behind.of + 1)
    return found


def test_unread_commits_of_all_readers_together_may_exceed_the_cache(
    written: WrittenWarehouse, monkeypatch: pytest.MonkeyPatch, reads: Callable[[], list[int]]
) -> None:
    monkeypatch.setattr(commit_numbers, "_MOST_KEPT", 60)
    tables = several(written, 3, 5, 7)
    for behind in tables:
        behind.commit(added(2), times=30)
    context = tables[0].context
    for _ in range(31):
        found = measure_lag(context, context.metastore.snapshot(), seconds=0)
    assert [found[f"mv-{behind.of + 1}"].records for behind in tables] == [60, 60, 60]
    reads()
    measure_lag(context, context.metastore.snapshot(), seconds=0)
    assert reads() == []
    newest = tables[1].commit(added(2))
    tables[1].reach(newest - 1, reader=6)
    found = measure_lag(context, context.metastore.snapshot(), seconds=0)
    assert found["mv-6"] == Lag(records=4, since_ms=AT + (newest - 1) * 1000)
    assert reads() == [newest]


def test_a_reader_that_is_far_behind_leaves_time_to_the_others(
    written: WrittenWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    far, near = several(written, 3, 5)
    far.commit(added(1), times=1000)
    near.commit(added(1), times=5)
    clock = 0.0

    def slow(self: Warehouse, path: str) -> str:
        nonlocal clock
        clock += 0.01
        return read(self, path)

    read = Warehouse.read_text
    monkeypatch.setattr(Warehouse, "read_text", slow)
    monkeypatch.setattr("rw_sql.runtime.observe.commit_numbers.time", SimpleNamespace(monotonic=lambda: clock))
    found = measure_lag(far.context, far.context.metastore.snapshot(), seconds=2)
    assert found["mv-4"] == Lag(since_ms=AT + 2000)
    assert found["mv-6"].records == 5


def test_two_readers_at_different_positions_read_each_commit_once(
    written: WrittenWarehouse, monkeypatch: pytest.MonkeyPatch, reads: Callable[[], list[int]]
) -> None:
    monkeypatch.setattr(commit_numbers, "_MOST_KEPT", 1)
    written.commit(*written.source(2, "s"), written.view(3, "v", 2), written.view(4, "w", 3), written.view(5, "x", 3))
    behind = Behind(written, 3)
    last = behind.commit(added(1), times=20)
    behind.reach(12)
    behind.reach(2, reader=5)

    def records() -> list[int | None]:
        found = measure_lag(behind.context, behind.context.metastore.snapshot())
        return [found[job].records for job in ("mv-4", "mv-5")]

    assert records() == [last - 11, 20]
    assert sorted(reads()) == list(range(2, last + 1))
    assert records() == [last - 11, 20]
    assert reads() == []


def test_the_commits_of_a_table_in_an_object_store_are_read_at_the_same_time(
    appended: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended.reach(2)
    appended.commit(added(1), times=9)
    appended.lag(seconds=0)  # the id and the newest version are known
    together, read = threading.Barrier(8, timeout=30), Warehouse.read_text

    def waits(self: Warehouse, path: str) -> str:
        if path.endswith(".json"):
            together.wait()
        return read(self, path)

    monkeypatch.setattr(Warehouse, "is_local", property(lambda _: False))
    monkeypatch.setattr(Warehouse, "read_text", waits)
    assert appended.lag().records == 9
