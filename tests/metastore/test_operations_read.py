"""How much of the log of record is read to find a few of its operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from rw_sql.metastore import Metastore
from rw_sql.metastore import table as module
from rw_sql.metastore.records import PutObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    from tests.metastore.metastore_model import Make


def commit(metastore: Metastore, make: Make, kinds: list[str]) -> None:
    """Commits operations of these kinds."""
    for number, kind in enumerate(kinds, 1):
        operation = make.operation(PutObject(record=make.source(number, f"s{number}")), kind=kind)
        metastore.commit(operation, based_on=metastore.snapshot())
    metastore.project()


def rows_with_images(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of rows of the pieces of files that are read together with the images of operations."""
    found: list[int] = []
    read: Callable[..., Any] = pq.ParquetFile.read
    iterate: Callable[..., Any] = pq.ParquetFile.iter_batches

    def counted(file: pq.ParquetFile, columns: list[str] | None = None, **more: Any) -> Any:
        rows = read(file, columns=columns, **more)
        if columns is None or "before" in columns:
            found.append(rows.num_rows)
        return rows

    def iterated(file: pq.ParquetFile, *, columns: list[str] | None = None, **more: Any) -> Iterator[Any]:
        for batch in iterate(file, columns=columns, **more):
            found.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "read", counted)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", iterated)
    return found


def test_the_images_of_other_operations_are_not_read(
    metastore: Metastore, warehouse: str, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(metastore, make, ["TEST", "SWAP REBUILT", *["TEST"] * 6])
    other = Metastore.open(warehouse)
    found = rows_with_images(monkeypatch)
    assert other.operations(kinds=("UNDO OPERATION",)) == ()
    assert found == []
    assert [record.epoch for record in other.operations(kinds=("SWAP REBUILT",))] == [2]
    assert sum(found) == 1
    operation = other.operation(1)
    assert operation is not None
    assert operation.epoch == 1
    assert sum(found) == 2


def test_of_a_large_file_few_images_are_in_memory_at_a_time(
    metastore: Metastore, warehouse: str, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BATCH_ROWS", 3)
    commit(metastore, make, ["TEST", "SWAP REBUILT", *["TEST"] * 6])
    metastore._operations._handle.optimize.compact()
    other = Metastore.open(warehouse)
    assert len(other._operations._handle.file_uris()) == 1
    found = rows_with_images(monkeypatch)
    assert [record.epoch for record in other.operations(kinds=("SWAP REBUILT",))] == [2]
    assert max(found) == 3
