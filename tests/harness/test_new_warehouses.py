"""The copies with which tests begin are warehouses as rw_sql creates them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from rw_sql.metastore import Metastore, migrations
from rw_sql.metastore.catalog import load_catalog
from rw_sql.metastore.location import catalog_folder
from rw_sql.metastore.table import StoredTable
from tests.support.new_warehouses import write_copy


def tables_of(directory: Path) -> dict[str, DeltaTable]:
    return {folder.name: DeltaTable(str(folder)) for folder in directory.iterdir()}


def content_of(table: DeltaTable) -> tuple[object, ...]:
    """What is the same in all new warehouses."""
    rows = table.to_pyarrow_table()
    same = [name for name in rows.column_names if name != "applied_ms"]
    metadata = table.metadata()
    return (
        table.version(),
        table.schema().to_json(),
        metadata.configuration,
        metadata.partition_columns,
        table.protocol(),
        rows.select(same).to_pylist(),
        StoredTable(table.table_uri).transaction("migration"),
    )


@pytest.mark.usefixtures("created_tables")
def test_a_copy_equals_a_warehouse_that_the_migrations_create(tmp_path: Path) -> None:
    Metastore.open(str(tmp_path / "created"))
    created = tables_of(Path(catalog_folder(str(tmp_path / "created"))))
    write_copy(tmp_path / "copy")
    copied = tables_of(tmp_path / "copy")
    assert sorted(copied) == sorted(created) == sorted(load_catalog().tables())
    for name, table in copied.items():
        assert content_of(table) == content_of(created[name]), name


def test_every_table_of_every_copy_has_its_own_id_and_is_new(tmp_path: Path) -> None:
    before = int(time.time() * 1000)
    for number in range(2):
        write_copy(tmp_path / str(number))
    logs = sorted(tmp_path.glob("*/*/_delta_log/*.json"))
    lines = [json.loads(line) for log in logs for line in log.read_text(encoding="utf-8").splitlines()]
    made = [line["metaData"]["createdTime"] for line in lines if "metaData" in line]
    made += [line["commitInfo"]["timestamp"] for line in lines if "commitInfo" in line]
    assert made
    assert min(made) >= before
    ids = [table.metadata().id for number in range(2) for table in tables_of(tmp_path / str(number)).values()]
    assert len(set(ids)) == len(ids) == 2 * len(load_catalog().tables())


def _refuse(*_: Any) -> None:
    raise AssertionError("a table is created")


def test_tests_begin_with_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "create_table", _refuse)
    assert Metastore.open(str(tmp_path / "warehouse")).snapshot().epoch == 0


@pytest.mark.usefixtures("created_tables")
def test_with_the_fixture_the_migrations_create_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "create_table", _refuse)
    with pytest.raises(AssertionError, match="a table is created"):
        Metastore.open(str(tmp_path / "warehouse"))


def test_a_warehouse_that_another_thread_creates_stays(tmp_path: Path) -> None:
    write_copy(tmp_path / "catalog")
    known = {path: path.read_bytes() for path in (tmp_path / "catalog").rglob("*.json")}
    with pytest.raises(OSError, match="not empty"):
        write_copy(tmp_path / "catalog")
    assert {path: path.read_bytes() for path in (tmp_path / "catalog").rglob("*.json")} == known
