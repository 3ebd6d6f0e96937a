"""The lags of jobs while the store of a user's own table does not respond."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from rw_sql.metastore.records import DeltaTableRecord, MaterializedViewRecord, PutObject
from rw_sql.runtime.delta.delta_log import latest_version
from rw_sql.runtime.observe import commit_numbers
from rw_sql.runtime.observe.lag import Lag, measure_lag, rows_behind
from rw_sql.runtime.positions import rows_to_read as rows_module
from rw_sql.runtime.positions.rows_to_read import rows_to_read
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.support.warehouse import Warehouse

SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"integer","nullable":true,"metadata":{}}]}'
SILENT, ANSWERING, READERS, OTHER, BESIDE = 1, 2, (3, 4, 5), 6, 7


class Store:
    """The store of the table SILENT: a request fails once :attr:`gives_up` is set."""

    def __init__(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.gives_up = threading.Event()
        self.requests = 0
        for module in (commit_numbers, rows_module):
            monkeypatch.setattr(module, "latest_version", self._latest_version)

    def _latest_version(self, warehouse: Warehouse, table: str) -> int:
        if table != self.path:
            return latest_version(warehouse, table)
        self.requests += 1
        self.gives_up.wait(60)
        raise OSError("the store does not respond")


@pytest.fixture
def context(tmp_path: Path) -> Context:
    """Three views over SILENT, a view over ANSWERING, and a view over that one."""
    written = WrittenWarehouse(tmp_path / "w")
    paths = {SILENT: str(tmp_path / "silent"), ANSWERING: str(tmp_path / "answering")}
    for id_, path in paths.items():
        write_deltalake(path, pa.table({"id": pa.array([id_], pa.int32())}))
        record = DeltaTableRecord(id=id_, name=f"t{id_}", written=f"t{id_}", path=path, schema=SCHEMA)
        written.commit(PutObject(record=record))
    views = [written.view(id_, f"v{id_}", SILENT) for id_ in READERS]
    written.commit(*views, written.view(OTHER, "o", ANSWERING), written.view(BESIDE, "b", OTHER))
    return written.context()


@pytest.fixture
def store(context: Context, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    record = context.metastore.snapshot().get(SILENT)
    assert isinstance(record, DeltaTableRecord)
    found = Store(record.path, monkeypatch)
    yield found
    found.gives_up.set()


def test_a_store_that_does_not_respond_leaves_the_lags_of_other_jobs_known(context: Context, store: Store) -> None:
    began = time.monotonic()
    lags = measure_lag(context, context.metastore.snapshot(), seconds=1.0)
    assert time.monotonic() - began < 5, "one limit for all three views"
    assert [lags[f"mv-{id_}"] for id_ in READERS] == [Lag()] * 3
    assert lags[f"mv-{BESIDE}"] == Lag(records=0)
    assert store.requests == 1
    # The next measurements do not add requests while the first one is pending, and neither does FLUSH.
    measure_lag(context, context.metastore.snapshot(), seconds=0.2)
    snapshot = context.metastore.snapshot()
    view = snapshot.get(READERS[0])
    assert isinstance(view, MaterializedViewRecord)
    assert rows_behind(context, snapshot, view, "none") is None
    assert store.requests == 1


def test_a_store_that_gives_up_is_asked_once_by_all_readers_of_its_table(context: Context, store: Store) -> None:
    store.gives_up.set()
    for number in (1, 2):
        lags = measure_lag(context, context.metastore.snapshot())
        assert [lags[f"mv-{id_}"] for id_ in READERS] == [Lag()] * 3
        assert store.requests == number


def test_measurements_at_the_same_time_all_know_the_lag(context: Context, tmp_path: Path) -> None:
    read(context, OTHER, str(tmp_path / "answering"))
    snapshot, found = context.metastore.snapshot(), []
    threads = [
        threading.Thread(target=lambda: found.append(measure_lag(context, snapshot)[f"mv-{OTHER}"])) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [Lag(records=0)] * 4


def test_rows_of_a_store_that_does_not_respond_are_not_counted(
    context: Context, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "_STORE_SECONDS", 0.5)
    found = rows_to_read(context.warehouse, context.metastore.snapshot(), [SILENT, ANSWERING, SILENT])
    assert (found.rows, store.requests) == (1, 1)


def read(context: Context, view: int, table: str) -> None:
    """Writes the checkpoint of a view that has read version 0 of a table."""
    offset = {
        "sourceVersion": 1,
        "reservoirId": str(DeltaTable(table).metadata().id),
        "reservoirVersion": 1,
        "index": -1,
    }
    for name in ("offsets", "commits"):
        folder = Path(context.warehouse.view_checkpoint(view, 1), name)
        folder.mkdir(parents=True, exist_ok=True)
        folder.joinpath("0").write_text("\n".join(["v1", "{}", json.dumps(offset)]))
