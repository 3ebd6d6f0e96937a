"""Reading pieces of files on executors: records of CSV and of Parquet. Without Spark's JVM."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import DecimalType, IntegerType, LongType, StringType, StructField, StructType

from rw_sql.connectors.files.reader import FileReader
from rw_sql.connectors.files.store import FileStore

if TYPE_CHECKING:
    from pathlib import Path

RECORD = [
    StructField("_rw_split", StringType()),
    StructField("_rw_offset", LongType()),
    StructField("_rw_index", LongType()),
    StructField("value", StringType()),
]


def read(
    folder: Path, encode: str, row: StructType | None = None, life: str | None = None, **config: Any
) -> list[dict[str, Any]]:
    """All records of all files of a folder. ``config`` may name another store with these files."""
    given = {
        "store": {"protocol": "file", "root": str(folder), "arguments": {}},
        "encode": encode,
        "columns": ["id", "name"],
        "delimiter": ",",
        "has_header": encode == "CSV",
        "compression": None,
        "is_strict": False,
        **config,
    }
    path = folder.parent / "config"
    path.write_text(json.dumps(given))
    pieces = [(file.name, 0, file.stat().st_size, life) for file in sorted(folder.iterdir())]
    more = [StructField("_rw_row", row), StructField("_rw_fault", StringType())] if row else []
    reader = FileReader({"config": str(path), "pieces": json.dumps(pieces), "tasks": "2"}, StructType([*RECORD, *more]))
    return [
        found
        for partition in reader.partitions()
        for batch in reader.read(InputPartition(partition.value))
        for found in batch.to_pylist()
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    made.mkdir()
    return made


def test_columns_of_csv_are_found_by_the_header(folder: Path) -> None:
    (folder / "a.csv").write_text('id,name\n1,"x, y"\n2,\n')
    (folder / "b.csv").write_text("name,more,id\nz,0,3\nw\n")
    assert [found["value"] for found in read(folder, "CSV")] == ['1,"x, y"', "2,", "3,z", "w"]
    (folder / "c.csv").write_text("id\n4\n")
    with pytest.raises(OSError, match=r"c\.csv: it has no column name"):
        read(folder, "CSV", is_strict=True)


def test_a_csv_file_whose_lines_end_with_carriage_returns_alone_is_not_read(folder: Path) -> None:
    (folder / "a.csv").write_bytes(b"id,name\r1,a\r2,b\r3,c")
    with pytest.raises(OSError, match=r"a\.csv: its first line contains a carriage return"):
        read(folder, "CSV")
    (folder / "a.csv").write_bytes(b'id,"na\rme"\r\n1,a\r\n')
    assert [found["value"] for found in read(folder, "CSV")] == ["1,"]


def test_rows_of_parquet_and_what_does_not_fit(folder: Path) -> None:
    row = StructType([StructField("id", IntegerType()), StructField("price", DecimalType(10, 2))])
    table = pa.table({"price": pa.array([1.5, 1e12], pa.float64()), "id": pa.array([1, 2], pa.int64())})
    pq.write_table(table, folder / "a.parquet")
    first, second = read(folder, "PARQUET", row)
    assert (first["_rw_row"]["id"], str(first["_rw_row"]["price"]), first["_rw_fault"]) == (1, "1.50", None)
    assert second["_rw_row"] == {"id": 2, "price": None}
    assert second["_rw_fault"] == "column price: a value of type double does not fit"


def test_records_with_the_same_offset_have_an_order(folder: Path) -> None:
    lines = b"".join(b"%d,x\n" % (at // 3_000) for at in range(9_000))
    (folder / "a.csv.gz").write_bytes(gzip.compress(b"id,name\n" + lines))
    found = read(folder, "CSV")
    assert [each["value"] for each in found] == [f"{at // 3_000},x" for at in range(9_000)]
    places = [(each["_rw_offset"], each["_rw_index"]) for each in found]
    assert places == sorted(set(places))
    assert len({offset for offset, _ in places}) < len(places)
    (folder / "a.csv.gz").unlink()
    row = StructType([StructField("id", IntegerType())])
    pq.write_table(pa.table({"id": pa.array([7] * 200_000, pa.int32())}), folder / "a.parquet", compression="zstd")
    places = [(each["_rw_offset"], each["_rw_index"]) for each in read(folder, "PARQUET", row)]
    assert places == sorted(set(places))
    assert len({offset for offset, _ in places}) < len(places) == 200_000


def test_every_frame_of_a_compressed_file_is_read(folder: Path) -> None:
    (folder / "a.json.zst").write_bytes(b"".join(pa.compress(b"{}\n" * 9, codec="zstd", asbytes=True) for _ in "ab"))
    assert len(read(folder, "JSON")) == 18


def test_a_file_that_cannot_be_decompressed_is_named(folder: Path) -> None:
    (folder / "a.json.gz").write_bytes(gzip.compress(b"{}\n" * 999)[:-9])
    with pytest.raises(OSError, match=r"a\.json\.gz: it cannot be decompressed as gzip: Compressed file ended before"):
        read(folder, "JSON")


def test_another_version_of_a_file_is_not_read(folder: Path) -> None:
    (folder / "a.json").write_text("{}\n")
    with pytest.raises(OSError, match=r"RECREATED a\.json"):
        read(folder, "JSON", life="3-1")


class Replaced:
    """An object store whose file is replaced before or after the request for its content."""

    def __init__(self, text: bytes, other: bytes, *, is_before: bool) -> None:
        self._versions, self._now, self._is_before = (text, other), 0, is_before
        self.received = 0

    def info(self, path: str) -> dict[str, Any]:
        return {"size": len(self._versions[self._now]), "ETag": f"v{self._now}"}

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        read = self._versions[1 if self._is_before else self._now][start:end]
        self.received += len(read)
        self._now = 1
        return read


@pytest.mark.parametrize("life", [None, "6-v0"], ids=["first read", "known version"])
@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("other", [b'{"b":1}\n{"c":1}\n', b"{}\n", b"[1]\n[]\n"], ids=["longer", "shorter", "as long"])
def test_a_small_file_that_is_replaced_between_two_requests_is_not_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, other: bytes, is_before: bool, life: str | None
) -> None:
    (folder / "a.json").write_text("{}\n{}\n")
    store = Replaced(b"{}\n{}\n", other, is_before=is_before)
    monkeypatch.setattr(FileStore, "filesystem", lambda self: store)
    with pytest.raises(OSError, match=r"RECREATED a\.json: the file was replaced"):
        read(folder, "JSON", life=life, store={"protocol": "s3", "root": "bucket", "arguments": {}})


def test_a_small_file_that_became_a_large_one_is_not_read_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a.json").write_text("{}\n{}\n")
    store = Replaced(b"{}\n{}\n", b"{}\n" * 1000, is_before=True)
    monkeypatch.setattr(FileStore, "filesystem", lambda self: store)
    with pytest.raises(OSError, match=r"RECREATED a\.json: the file was replaced"):
        read(folder, "JSON", life="6-v0", store={"protocol": "s3", "root": "bucket", "arguments": {}})
    assert store.received == 7


def test_a_small_file_whose_content_has_another_size_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a.json").write_text("{}\n")
    store = Replaced(b"{}\n", b"{}\n{}\n", is_before=True)
    monkeypatch.setattr(store, "info", lambda path: {"size": 3, "ETag": "v0"})
    monkeypatch.setattr(FileStore, "filesystem", lambda self: store)
    with pytest.raises(OSError, match="RECREATED"):
        read(folder, "JSON", store={"protocol": "s3", "root": "bucket", "arguments": {}})
