"""A view of a local warehouse over the user's own table in an object store: how far the view has read, and how far it
is behind. No job runs here: the tests write the table's commits and the view's checkpoint."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from rw_sql.errors import SqlError
from rw_sql.metastore.facts import JobStatus
from rw_sql.metastore.records import DeltaTableRecord, MaterializedViewRecord, PutObject, RebuildRecord
from rw_sql.model.job_ids import rebuild_job
from rw_sql.model.job_specs import view_spec
from rw_sql.runtime.delta.delta_log import table_id
from rw_sql.runtime.jobs.table_paths import why_unreadable, with_remedy
from rw_sql.runtime.observe.lag import measure_lag
from rw_sql.runtime.positions.high_water import HighWater
from rw_sql.runtime.positions.planned_rows import planned_rows
from rw_sql.runtime.positions.rows_to_read import RowsToRead, rows_to_read
from rw_sql.runtime.positions.table_consumers import require_versions
from rw_sql.runtime.support.failures import Failure, StalledError
from rw_sql.runtime.views import swap
from rw_sql.runtime.views.swap import swap_rebuilt
from tests.support.s3_store import BUCKET
from tests.support.waits import LAST_RESORT_SECONDS, wait_until
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.metastore import Snapshot
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.support.warehouse import Warehouse
    from tests.support.s3_store import S3Store

SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"integer","nullable":true,"metadata":{}}]}'
TABLE, VIEW, OTHER, REBUILD = 1, 2, 3, 4


class Reader:
    """A view over the user's own table at ``path``, and another view over a table that does not exist yet."""

    def __init__(self, folder: Path, path: str) -> None:
        self.path = path
        written = self.written = WrittenWarehouse(folder)
        record = DeltaTableRecord(id=TABLE, name="orders", written=f"delta.`{path}`", path=path, schema=SCHEMA)
        written.commit(PutObject(record=record), written.view(VIEW, "seen", TABLE), written.view(OTHER, "others", VIEW))
        self.context: Context = written.context()
        self.checkpoint = self.context.warehouse.view_checkpoint(VIEW, 1)

    @property
    def snapshot(self) -> Snapshot:
        return self.context.metastore.snapshot()

    @property
    def view(self) -> MaterializedViewRecord:
        view = self.snapshot.get(VIEW)
        assert isinstance(view, MaterializedViewRecord)
        return view

    def append(self, *ids: int) -> None:
        """Commits rows to the table."""
        write_deltalake(self.path, pa.table({"id": pa.array(ids, pa.int32())}), mode="append")

    def rebuild(self) -> None:
        """Begins to rebuild the view, whose new table exists and has no rows."""
        rebuild = RebuildRecord(id=REBUILD, name="seen", view_id=VIEW, generation=2)
        self.written.commit(PutObject(record=rebuild))
        status = JobStatus(job=rebuild_job(rebuild), object_id=VIEW, state="RUNNING", run=1)
        self.context.metastore.jobs.write_job_status([status])
        write_deltalake(self.context.warehouse.data(VIEW, 2), pa.table({"id": pa.array([], pa.int32())}))

    def read(self, batch: int, upto: int, *, generation: int = 1) -> None:
        """Writes the checkpoint of a view that has read the versions before ``upto``."""
        known = str(DeltaTable(self.path).metadata().id)
        offset = {"sourceVersion": 1, "reservoirId": known, "reservoirVersion": upto, "index": -1}
        for name in ("offsets", "commits"):
            folder = Path(self.context.warehouse.view_checkpoint(VIEW, generation), name)
            folder.mkdir(parents=True, exist_ok=True)
            folder.joinpath(str(batch)).write_text("\n".join(["v1", "{}", json.dumps(offset)]))

    def are_reached(self) -> bool:
        """True if FLUSH would not wait for the view."""
        return HighWater.of(self.context, self.snapshot, self.view).are_reached(self.context, self.checkpoint)

    def lag(self, id_: int = VIEW) -> int | None:
        return measure_lag(self.context, self.snapshot, with_times=False)[f"mv-{id_}"].records


@pytest.fixture(params=["s3", "s3a"])
def reader(s3_store: S3Store, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Reader]:
    """A view over a table in the store, which does not exist yet."""
    with s3_store.reached_by_the_environment():
        path = s3_store.warehouse().replace("s3://", f"{request.param}://")
        yield Reader(tmp_path / "warehouse", f"{path}/own orders")


@pytest.mark.s3
def test_flush_and_the_lag_see_the_rows_that_a_view_has_not_read(reader: Reader) -> None:
    reader.append(1, 2)
    assert not reader.are_reached()
    assert reader.lag() is None
    reader.read(0, 1)
    assert reader.are_reached()
    assert reader.lag() == 0
    reader.append(3, 4, 5)
    assert not reader.are_reached()
    assert reader.lag() == 3
    reader.read(1, 2)
    assert reader.are_reached()
    assert reader.lag() == 0
    warehouse = reader.context.warehouse
    assert planned_rows(warehouse, reader.path, reader.checkpoint, 1, is_log=False).most == 3
    assert rows_to_read(warehouse, reader.snapshot, [TABLE]).rows == 5
    assert why_unreadable(warehouse, reader.path, str(DeltaTable(reader.path).metadata().id)) == ""


@pytest.mark.s3
def test_versions_that_were_cleaned_up_and_files_that_vacuum_removed_stall_the_view(
    reader: Reader, s3_store: S3Store
) -> None:
    for id_ in range(4):
        reader.append(id_)
    reader.read(0, 1)
    reader.read(1, 2)
    spec = view_spec(reader.snapshot, reader.view)
    require_versions(reader.context, spec, reader.checkpoint)
    (file,) = (
        action["path"]
        for action in pa.table(DeltaTable(reader.path).get_add_actions(flatten=True)).to_pylist()
        if action["min.id"] == 3
    )
    failure = Failure(reason=f"FileNotFoundException: No such file or directory: {reader.path}/{unquote(file)}")
    found = with_remedy(reader.context, spec.inputs, failure, "DROP …", name="materialized view seen")
    assert found is not None
    assert found.is_final
    assert found.reason.startswith(f"EXPIRED delta.`{reader.path}`: VACUUM removed rows of version 3 ")
    key = reader.path.partition("://")[2].removeprefix(f"{BUCKET}/")
    DeltaTable(reader.path).create_checkpoint()
    for version in range(2):
        s3_store.client.delete_object(Bucket=BUCKET, Key=f"{key}/_delta_log/{version:020d}.json")
    with pytest.raises(StalledError, match="EXPIRED orders: seen has read to version 1 ") as raised:
        require_versions(reader.context, spec, reader.checkpoint)
    assert raised.value.is_final


@pytest.mark.s3
def test_a_rebuilt_view_replaces_the_old_one_once_it_has_read_the_table(reader: Reader) -> None:
    reader.append(1, 2)
    reader.rebuild()
    assert not swap_rebuilt(reader.context)
    reader.read(0, 1, generation=2)
    # A store that answers late is asked in the background, and the next calls return its answer.
    wait_until(lambda: swap_rebuilt(reader.context), "the view is swapped")
    assert reader.view.generation == 2


def test_a_store_that_cannot_be_read_affects_only_the_readers_of_its_tables(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "warehouse", "nosuchstore://lake/orders")
    assert (reader.lag(), reader.lag(OTHER)) == (None, 0)
    assert rows_to_read(reader.context.warehouse, reader.snapshot, [TABLE, OTHER]) == RowsToRead()
    with pytest.raises(SqlError, match=r"delta\.`nosuchstore://lake/orders` cannot be read: ") as raised:
        reader.are_reached()
    assert raised.value.code == "RW401"
    failure = Failure(reason="nosuchstore://lake/orders/part-0.parquet does not exist")
    spec = view_spec(reader.snapshot, reader.view)
    assert with_remedy(reader.context, spec.inputs, failure, "DROP …", name="materialized view seen") == failure
    reader.rebuild()
    assert not swap_rebuilt(reader.context)


def test_a_table_that_is_not_found_does_not_count_as_read(tmp_path: Path) -> None:
    table = tmp_path / "orders"
    reader = Reader(tmp_path / "warehouse", str(table))
    reader.append(1, 2)
    reader.read(0, 1)
    assert reader.are_reached()
    assert reader.lag() == 0
    spec = view_spec(reader.snapshot, reader.view)
    require_versions(reader.context, spec, reader.checkpoint)
    # Another program deletes the table, or this process looks for it in another store than the process that runs jobs.
    table.rename(tmp_path / "elsewhere")
    with pytest.raises(SqlError, match=f"there is no Delta table at {table}") as raised:
        reader.are_reached()
    assert raised.value.code == "RW401"
    assert (reader.lag(), reader.lag(OTHER)) == (None, 0)
    with pytest.raises(StalledError, match=f"^the table orders cannot be read: there is no Delta table at {table}$"):
        require_versions(reader.context, spec, reader.checkpoint)


def test_a_store_that_does_not_respond_does_not_delay_the_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swap, "_CHECK_SECONDS", 0.2)
    reader = Reader(tmp_path / "warehouse", str(tmp_path / "orders"))
    reader.append(1, 2)
    reader.rebuild()
    reader.read(0, 1, generation=2)
    responds, requests = threading.Event(), []

    def slow_id(warehouse: Warehouse, table: str) -> str:
        requests.append(table)
        responds.wait(60)
        return table_id(warehouse, table)

    monkeypatch.setattr(swap, "table_id", slow_id)
    began = time.monotonic()
    for _ in range(3):
        assert not swap_rebuilt(reader.context)
    assert time.monotonic() - began < 10
    assert requests == [reader.path]
    responds.set()
    deadline = time.monotonic() + LAST_RESORT_SECONDS
    while not swap_rebuilt(reader.context):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert reader.view.generation == 2
    assert requests == [reader.path]
