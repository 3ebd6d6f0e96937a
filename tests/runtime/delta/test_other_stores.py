"""The log of a table of the user in another store than the warehouse: the table's URI determines the file system. No
server runs here; the stores are folders and fsspec's file system in memory."""

from __future__ import annotations

import json
import os
import uuid
from typing import TYPE_CHECKING

import fsspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from rw_sql.runtime.delta.delta_log import commit_versions, commits, has_commit, latest_version, read_actions, table_id
from rw_sql.runtime.delta.young_table import YoungTable
from rw_sql.runtime.jobs.table_paths import why_unreadable
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

ROWS = pa.table({"id": pa.array([1, 2], pa.int32())})
UNKNOWN = "nosuchstore://lake/orders"
"""A table in a store for which fsspec has no file system."""


def commit(table: str, version: int) -> None:
    """Writes a commit with two rows, as another program does."""
    add = {"add": {"path": f"part-{version}.parquet", "size": 9, "dataChange": True, "stats": '{"numRecords":2}'}}
    path = f"{table}/_delta_log/{version:020d}.json"
    fsspec.core.url_to_fs(path, use_listings_cache=False)[0].pipe_file(path, json.dumps(add).encode())


@pytest.fixture
def in_memory() -> str:
    """The URI of a table that does not exist yet."""
    return f"memory://lake/{uuid.uuid4().hex}/orders"


def test_a_table_in_a_store_is_read_beside_a_local_warehouse(tmp_path: Path, in_memory: str) -> None:
    warehouse = Warehouse.at(str(tmp_path))
    assert latest_version(warehouse, in_memory) == -1
    for version in range(3):
        commit(in_memory, version)
        assert latest_version(warehouse, in_memory) == version
    assert commit_versions(warehouse, in_memory) == [0, 1, 2]
    assert [version for version, _ in commits(warehouse, in_memory, down_to=1)] == [2, 1]
    assert read_actions(warehouse, in_memory, 2)[0]["add"]["path"] == "part-2.parquet"
    assert (has_commit(warehouse, in_memory, 2), has_commit(warehouse, in_memory, 3)) == (True, False)
    with pytest.raises(FileNotFoundError):
        read_actions(warehouse, in_memory, 3)
    # In a store, each commit would be a request.
    assert YoungTable.of(warehouse, in_memory) is None


def test_a_local_table_is_read_beside_a_warehouse_in_a_store(tmp_path: Path) -> None:
    warehouse, table = Warehouse.at("memory://lake/warehouse"), str(tmp_path / "own orders")
    assert latest_version(warehouse, table) == -1
    write_deltalake(table, ROWS)
    write_deltalake(table, ROWS, mode="append")
    assert latest_version(warehouse, table) == 1
    assert commit_versions(warehouse, table) == [0, 1]
    assert table_id(warehouse, table) == str(DeltaTable(table).metadata().id)
    young = YoungTable.of(warehouse, table)
    assert young is not None
    assert young.newest == 1


def test_a_table_of_the_warehouse_is_read_through_the_warehouse(tmp_path: Path) -> None:
    for place in (str(tmp_path), "memory://lake/warehouse"):
        warehouse = Warehouse.at(place)
        assert warehouse.files_at(warehouse.data(1, 1)) is warehouse
    # A bucket whose name begins with the name of the warehouse's bucket is another one.
    other = "memory://lake/warehouse2/t"
    assert Warehouse.at("memory://lake/warehouse").files_at(other).uri == other


def test_a_store_without_a_file_system_raises_an_error_of_stores(tmp_path: Path) -> None:
    warehouse = Warehouse.at(str(tmp_path))
    for read in (latest_version, commit_versions, table_id):
        with pytest.raises(OSError, match=f"^{UNKNOWN}: .*nosuchstore"):
            read(warehouse, UNKNOWN)
    assert why_unreadable(warehouse, UNKNOWN, "an-id").startswith(f"{UNKNOWN}: ")


def test_a_table_that_only_spark_finds_is_unreadable(tmp_path: Path, in_memory: str) -> None:
    warehouse, table = Warehouse.at(str(tmp_path / "warehouse")), str(tmp_path / "orders")
    write_deltalake(table, ROWS)
    known = str(DeltaTable(table).metadata().id)
    assert why_unreadable(warehouse, table, known) == ""
    # The environment and Spark's settings name different stores.
    assert why_unreadable(warehouse, table, "another") == f"rw_sql finds another Delta table at {table} than Spark does"
    assert why_unreadable(warehouse, in_memory, known) == f"rw_sql finds no Delta table at {in_memory}"
    # fsspec reads this log, and delta-rs does not find the table.
    commit(in_memory, 0)
    assert why_unreadable(warehouse, in_memory, known) != ""


def test_the_environment_of_a_tables_store_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1", "AWS_REGION": "eu-central-1"}
    monkeypatch.setattr(os, "environ", dict(given))
    warehouse = Warehouse.at(str(tmp_path))
    warehouse.files_at(str(tmp_path / "orders"))
    assert os.environ == given
    warehouse.files_at("s3a://lake/orders")
    assert os.environ["AWS_ENDPOINT"] == given["AWS_ENDPOINT_URL_S3"]
    assert (os.environ["AWS_ALLOW_HTTP"], os.environ["AWS_DEFAULT_REGION"]) == ("true", "eu-central-1")
