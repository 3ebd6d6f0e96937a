"""Which Delta tables Arrow reads for a REFRESH, and which it leaves to Spark."""

from __future__ import annotations

import datetime as dt
import os
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from rw_sql.connectors.delta import arrow_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

MOST, MOST_ROWS = 1 << 20, 10_000
COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "small": pa.int16(),
    "word": pa.string(),
    "share": pa.float64(),
    "price": pa.decimal128(12, 3),
    "is_new": pa.bool_(),
    "day": pa.date32(),
    "at": pa.timestamp("us", tz="UTC"),
    "local": pa.timestamp("us"),
    "raw": pa.binary(),
}
ROW = (
    1, -3, "ä", 1.5, Decimal("1.250"), True, dt.date(2024, 2, 29), dt.datetime(2024, 1, 1, 1, 2, 3, 4, dt.UTC),
    dt.datetime(2024, 1, 1, 1, 2, 3, 4), b"\xff",
)  # fmt: skip


def rows_of(path: str, columns: Mapping[str, pa.DataType], most: int, most_rows: int = MOST_ROWS) -> pa.Table | None:
    return arrow_rows.rows_of(path, columns, most_rows=most_rows, most_bytes=most)


def rows_of_files(files: list[str], columns: Mapping[str, pa.DataType], most: int) -> pa.Table | None:
    return arrow_rows.rows_of_files(files, columns, most_rows=MOST_ROWS, most_bytes=most)


def rows(*given: tuple[Any, ...]) -> pa.Table:
    return pa.table({name: pa.array([row[n] for row in given], kind) for n, (name, kind) in enumerate(COLUMNS.items())})


def test_the_rows_of_all_files_in_the_requested_order(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    nulls = (2, *[None] * (len(ROW) - 1))
    write_deltalake(path, rows(ROW))
    write_deltalake(path, rows(nulls), mode="append")
    wanted = dict(reversed(COLUMNS.items()))
    found = rows_of(path, wanted, MOST)
    assert found is not None
    assert found.schema == pa.schema(list(wanted.items()))
    assert sorted(found.to_pylist(), key=lambda row: int(row["id"])) == rows(ROW, nulls).to_pylist()


def test_a_table_without_rows(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), rows().slice(0, 0))
    found = rows_of(str(tmp_path), COLUMNS, MOST)
    assert found is not None
    assert found.num_rows == 0


def test_an_empty_table_without_a_column_is_left_to_spark(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"id": pa.array([], pa.int64()), "renamed": pa.array([], pa.string())}))
    assert rows_of(str(tmp_path), {"id": pa.int64()}, MOST) is not None
    assert rows_of(str(tmp_path), {"id": pa.int64(), "word": pa.string()}, MOST) is None
    assert rows_of(str(tmp_path), {"id": pa.int32()}, MOST) is None


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Makes a read decode 100 rows at a time, and calls these functions after each time."""
    after: list[Callable[[], None]] = []
    real: Any = pq.ParquetFile.iter_batches

    def watched(self: Any, **options: Any) -> Iterator[Any]:
        for batch in real(self, **options):
            yield batch
            for call in after:
                call()

    monkeypatch.setattr(arrow_rows, "_BATCH_ROWS", 100)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", watched)
    return after


def test_a_large_row_group_is_not_decoded_as_a_whole(tmp_path: Path, batches: list[Callable[[], None]]) -> None:
    file = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"word": ["x" * 10_000] * 5_000}), file)
    read: list[int] = []
    batches.append(lambda: read.append(100))
    assert rows_of_files([file], {"word": pa.string()}, 4 << 20) is None
    assert 0 < sum(read) < 1_000


def test_a_file_that_is_cut_while_it_is_read_ends_no_process(tmp_path: Path, batches: list[Callable[[], None]]) -> None:
    """If the file were mapped into memory, the system would end this process by SIGBUS."""
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": pa.array(range(5_000), pa.int64())}), str(file), row_group_size=500)
    batches.append(lambda: os.truncate(file, 100))
    found = rows_of_files([str(file)], {"id": pa.int64()}, MOST)
    assert found is None or found["id"].to_pylist() == list(range(5_000))


@pytest.mark.parametrize(
    "wanted",
    [
        {"id": pa.int32()},
        {"word": pa.binary()},
        {"price": pa.decimal128(12, 2)},
        {"at": pa.timestamp("us")},
        {"ID": pa.int64()},
        {"missing": pa.int64()},
    ],
    ids=str,
)
def test_columns_that_need_a_conversion_are_left_to_spark(tmp_path: Path, wanted: Mapping[str, pa.DataType]) -> None:
    write_deltalake(str(tmp_path), rows(ROW))
    assert rows_of(str(tmp_path), wanted, MOST) is None


def test_partitions_features_and_sizes_are_left_to_spark(tmp_path: Path) -> None:
    by_day, marked, large = (str(tmp_path / name) for name in ("by_day", "marked", "large"))
    write_deltalake(by_day, rows(ROW), partition_by=["day"])
    write_deltalake(marked, rows(ROW), configuration={"delta.enableDeletionVectors": "true"})
    write_deltalake(large, pa.table({"id": pa.array(range(1000), pa.int64())}))
    assert "deletionVectors" in (DeltaTable(marked).protocol().reader_features or ())
    assert rows_of(by_day, COLUMNS, MOST) is None
    assert rows_of(marked, COLUMNS, MOST) is None
    assert rows_of(large, {"id": pa.int64()}, 7000) is None
    assert rows_of(large, {"id": pa.int64()}, 9000) is not None
    assert rows_of(large, {"id": pa.int64()}, 9000, most_rows=999) is None
    assert rows_of(str(tmp_path / "nothing"), COLUMNS, MOST) is None


def test_removed_and_broken_files_are_left_to_spark(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, rows(ROW))
    (file,) = (tmp_path / "t").glob("*.parquet")
    file.write_bytes(b"no Parquet file")
    assert rows_of(path, COLUMNS, MOST) is None
    file.unlink()
    assert rows_of(path, COLUMNS, MOST) is None
    assert rows_of_files(["s3://bucket/a.parquet"], COLUMNS, MOST) is None


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("day", dt.date(1582, 10, 14)),
        ("at", dt.datetime(1500, 1, 1, tzinfo=dt.UTC)),
        ("local", dt.datetime(1500, 1, 1)),
    ],
)
def test_times_of_the_julian_calendar_are_left_to_spark(tmp_path: Path, column: str, value: Any) -> None:
    file = str(tmp_path / "a.parquet")
    kind = COLUMNS[column]
    pq.write_table(pa.table({column: pa.array([None, value], kind)}), file)
    assert rows_of_files([file], {column: kind}, MOST) is None
    first = dt.datetime(1582, 10, 15, tzinfo=dt.UTC) if column == "at" else dt.datetime(1582, 10, 15)
    pq.write_table(pa.table({column: pa.array([first.date() if column == "day" else first], kind)}), file)
    assert rows_of_files([file], {column: kind}, MOST) is not None


@pytest.mark.parametrize(("column", "days"), [("day", 2_932_897), ("at", 2_932_897), ("local", 2_932_897)])
def test_years_that_a_table_cannot_contain_are_left_to_spark(tmp_path: Path, column: str, days: int) -> None:
    file, kind = str(tmp_path / "a.parquet"), COLUMNS[column]
    value = pa.array([days], pa.int32()).cast(pa.date32()) if column == "day" else None
    micros = pa.array([days * 86_400_000_000], pa.int64()).cast(kind) if value is None else value
    pq.write_table(pa.table({column: micros}), file)
    assert rows_of_files([file], {column: kind}, MOST) is None


def test_what_spark_wrote_for_old_readers_is_left_to_spark(tmp_path: Path) -> None:
    marked, nanos, millis = (str(tmp_path / f"{name}.parquet") for name in ("marked", "nanos", "millis"))
    kind = pa.timestamp("us", tz="UTC")
    found = pa.table({"at": pa.array([dt.datetime(2024, 1, 1, tzinfo=dt.UTC)], kind)})
    pq.write_table(found.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}), marked)
    pq.write_table(found, nanos, use_deprecated_int96_timestamps=True)
    pq.write_table(found.cast(pa.schema([("at", pa.timestamp("ms", tz="UTC"))])), millis)
    old, new = str(tmp_path / "old.parquet"), str(tmp_path / "new.parquet")
    pq.write_table(found.replace_schema_metadata({"org.apache.spark.version": "2.4.8"}), old)
    pq.write_table(found.replace_schema_metadata({"org.apache.spark.version": "4.0.1"}), new)
    assert rows_of_files([new], {"at": kind}, MOST) is not None
    for file in (marked, nanos, millis, old):
        assert rows_of_files([file], {"at": kind}, MOST) is None, file


def test_files_that_a_merge_wrote_are_read(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, rows(ROW))
    changed = rows((1, None, "öö", None, None, None, None, None, None, b"new"))
    merge = DeltaTable(path).merge(changed, "s.id = t.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    found = rows_of(path, COLUMNS, MOST)
    assert found is not None
    assert found.to_pylist() == changed.to_pylist()


def test_a_nested_column_is_left_to_spark(tmp_path: Path) -> None:
    file, kind = str(tmp_path / "a.parquet"), pa.list_(pa.int64())
    pq.write_table(pa.table({"tags": pa.array([[1, 2]], kind)}), file)
    assert rows_of_files([file], {"tags": kind}, MOST) is None


def test_a_file_whose_metadata_shows_that_it_is_too_large_is_not_decoded(
    tmp_path: Path, batches: list[Callable[[], None]]
) -> None:
    """Batches may contain rows of several row groups, so that a batch may need far more memory than a row group."""
    file = str(tmp_path / "a.parquet")
    texts = [random.Random(7).randbytes(500).hex() + str(at) for at in range(4_000)]
    pq.write_table(pa.table({"id": range(4_000), "word": texts}), file, row_group_size=200)
    read: list[int] = []
    batches.append(lambda: read.append(100))
    assert rows_of_files([file], {"id": pa.int64(), "word": pa.string()}, 1 << 20) is None
    assert rows_of_files([file], {"id": pa.int64()}, 31_999) is None
    assert not read
    found = rows_of_files([file], {"id": pa.int64()}, 33_000)
    assert found is not None
    assert found["id"].to_pylist() == list(range(4_000))


@pytest.mark.parametrize("is_repeated", [True, False], ids=["dictionary", "plain"])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary()], ids=str)
def test_long_texts_are_decoded_a_few_rows_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: pa.DataType, *, is_repeated: bool
) -> None:
    """A dictionary contains a text that many rows have only once, so a row group of a few bytes may need gigabytes."""
    file = str(tmp_path / "a.parquet")
    texts = ["a"] * 500 + [f"{0 if is_repeated else at:050000}" for at in range(500)]
    pq.write_table(pa.table({"word": pa.array(texts).cast(kind)}), file, use_dictionary=is_repeated)
    sizes: list[int] = []
    real: Any = pq.ParquetFile.iter_batches

    def watched(self: Any, **options: Any) -> Iterator[Any]:
        for batch in real(self, **options):
            sizes.append(batch.nbytes)
            yield batch

    monkeypatch.setattr(arrow_rows, "_BATCH_BYTES", 1 << 20)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", watched)
    wanted = pa.binary() if kind == pa.binary() else pa.string()
    found = rows_of_files([file], {"word": wanted}, 64 << 20)
    assert found is not None
    assert found["word"].cast(pa.string()).to_pylist() == texts
    assert max(sizes) <= (1 << 20) * (1 if is_repeated else 2) + 10_000


def test_a_string_that_is_not_utf_8_is_left_to_spark(tmp_path: Path) -> None:
    file = str(tmp_path / "f.parquet")
    texts = pa.array([b"a", b"\xff"]).view(pa.string())
    for kept, is_read in ((texts, False), (texts[:1], True)):
        pq.write_table(pa.table({"word": kept}), file)
        assert (rows_of_files([file], {"word": pa.string()}, MOST) is not None) == is_read
        large = pa.table({"word": kept.cast(pa.binary()).cast(pa.large_binary()).view(pa.large_string())})
        pq.write_table(large, file)
        assert (rows_of_files([file], {"word": pa.string()}, MOST) is not None) == is_read
