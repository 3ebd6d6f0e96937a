"""Which rows of a view's table are read to combine a batch with them."""

from __future__ import annotations

from datetime import date
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from rw_sql.runtime.delta.stored_rows import as_stored
from rw_sql.runtime.views import combined
from rw_sql.runtime.views.combined import GroupTable

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = pa.schema([("k", pa.string()), ("day", pa.date32()), ("n", pa.int64())])
DAY = date(2026, 1, 1)


def rows_of(**counts: int) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "day": DAY, "n": n} for k, n in counts.items()], schema=SCHEMA)


class Written:
    """A table of groups, and what is committed to it."""

    def __init__(self, path: Path, *, is_local: bool = True) -> None:
        write_deltalake(str(path), rows_of(a=1, b=2))
        write_deltalake(str(path), rows_of(c=3), mode="append")
        self.table = DeltaTable(str(path))
        self.commits: list[tuple[int, list[dict[str, Any]]]] = []
        run: Any = SimpleNamespace(
            output=self,
            schema=SCHEMA,
            context=SimpleNamespace(warehouse=SimpleNamespace(is_local=is_local)),
            spec=SimpleNamespace(job="mv-1", keys=("k", "day"), maintenance=SimpleNamespace(derived="")),
            fitted=lambda rows: as_stored(rows, SCHEMA),
        )
        self.groups = GroupTable(run, {"k": "key", "day": "key", "n": "count"})

    def upsert_rows(self, rows: pa.Table, _keys: object, batch: int) -> None:
        self.commits.append((batch, rows.drop_columns(["day"]).to_pylist()))

    def write(self, batch: int, **counts: int) -> bool:
        commit = self.groups.take(rows_of(**counts))
        if commit is not None:
            commit(batch)
        return commit is not None


@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("folder", ["plain", "a b é 100%"])
def test_a_batch_is_combined_with_a_small_table(tmp_path: Path, folder: str, is_local: bool) -> None:
    written = Written(tmp_path / folder, is_local=is_local)
    assert written.write(7, b=1, d=4)
    assert written.write(8, b=0)
    assert written.commits == [(7, [{"k": "b", "n": 3}, {"k": "d", "n": 4}])]
    assert written.groups._held is not None
    assert written.write(9, b=1)
    assert written.commits[1:] == [(9, [{"k": "b", "n": 4}])]


def test_of_a_large_table_only_the_groups_of_the_batch_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(combined, "SMALL_ROWS", 2)
    written = Written(tmp_path / "a b")
    known = written.groups._known(rows_of(b=1, x=1))
    assert known is not None
    assert known.to_pylist() == [{"k": "b", "day": DAY, "n": 2}]
    assert written.write(1, b=1, x=1)
    assert written.groups._held is None
    assert written.commits == [(1, [{"k": "b", "n": 3}, {"k": "x", "n": 1}])]


def test_wide_groups_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combined, "_MOST_HELD_BYTES", 10)
    written = Written(tmp_path)
    assert written.write(1, a=1)
    assert written.groups._held is None


def test_in_an_object_store_spark_combines_with_a_large_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combined, "SMALL_ROWS", 2)
    written = Written(tmp_path, is_local=False)
    assert not written.write(1, a=1)
    assert written.commits == []


def test_a_file_that_cannot_be_read_is_left_to_spark(tmp_path: Path) -> None:
    written = Written(tmp_path)
    for file in tmp_path.glob("*.parquet"):
        file.unlink()
    assert not written.write(1, a=1)
