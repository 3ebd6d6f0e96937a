"""The reason if VACUUM removed rows of a user's own table before their readers had read them. No job runs here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from rw_sql.metastore.records import DeltaTableRecord, Operation, PutObject
from rw_sql.model.view_inputs import ViewInput
from rw_sql.runtime.jobs.table_paths import with_remedy
from rw_sql.runtime.support.failures import Failure
from tests.runtime.control.test_blocks import Session

if TYPE_CHECKING:
    from pathlib import Path

REBUILD = "REBUILD MATERIALIZED VIEW seen"
SAID = (
    "FileNotFoundException: File file:{path} does not exist",
    "[PATH_NOT_FOUND] Path does not exist: file:{path}. SQLSTATE: 42K03",
    "FileNotFoundException: No such file or directory: s3a:/{path}",
)
"""Spark's messages about a missing file: from a stream, from a read, in an object store."""


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path / "warehouse")


@pytest.mark.parametrize("said", SAID)
def test_the_table_the_version_and_what_to_type(session: Session, tmp_path: Path, said: str) -> None:
    path = tmp_path / "own orders"
    settings = {"delta.enableChangeDataFeed": "true"}
    DeltaTable.create(str(path), pa.schema([("id", pa.int32())]), configuration=settings)
    for id_ in (1, 2):
        write_deltalake(str(path), pa.table({"id": pa.array([id_], pa.int32())}), mode="append")
    table = DeltaTable(str(path))
    (second,) = (file for file in table.get_add_actions(flatten=True).column("path").to_pylist() if _has(path, file, 2))
    table.update(updates={"id": "7"}, predicate="id = 1")
    (feed,) = (path / "_change_data").iterdir()
    record = DeltaTableRecord(id=1, name="orders", written=f"delta.`{path}`", path=str(path), schema="{}")
    operation = Operation(kind="TEST", statement="", objects=(), changes=(PutObject(record=record),))
    session.metastore.commit(operation, based_on=session.metastore.snapshot())
    given = ViewInput(
        id=1,
        name="orders",
        kind="delta_table",
        generation=1,
        columns=("id",),
        stored=("id",),
        watermark=None,
        path=str(path),
    )

    def told(reason: str) -> Failure | None:
        failure = Failure(reason=reason)
        return with_remedy(session.context, (given,), failure, "DROP …", name="materialized view seen", rebuild=REBUILD)

    for file, version in ((path / second, 2), (feed, 3)):
        found = told(said.format(path=file))
        assert found is not None
        assert found.is_final
        assert found.reason == (
            f"EXPIRED delta.`{path}`: VACUUM removed rows of version {version} that materialized view seen has not "
            f"read yet: {REBUILD}"
        )
    for other in (said.format(path="/elsewhere/part-0.parquet"), "the disk is full", "DELTA_SCHEMA_NOT_FOUND"):
        assert told(other) == Failure(reason=other)


def _has(path: Path, file: str, id_: int) -> bool:
    return id_ in pq.read_table(path / file).column("id").to_pylist()
