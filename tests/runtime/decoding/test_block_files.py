"""The files that a task writes: rows that Arrow decodes, and the other records as they were."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

from rw_sql.runtime.decoding import block_files
from rw_sql.runtime.decoding.block_files import BlockFiles
from rw_sql.runtime.decoding.json_blocks import BlockReader

if TYPE_CHECKING:
    from collections.abc import Sequence

_SUFFIX = ',"rw_end":true}\n'
_READ = pa.schema({"id": pa.int64(), "partition": pa.string()})
_SCHEMA = pa.schema([
    *_READ, pa.field("at", pa.int64()), pa.field("_rw_split", pa.string()), pa.field("_rw_offset", pa.int64()),
    pa.field("_rw_run", pa.int64()), pa.field("_rw_since", pa.int64()), pa.field("_rw_error", pa.string()),
    pa.field("dropped", pa.int32()),
])  # fmt: skip


def files_in(folder: Path) -> BlockFiles:
    """What a task is told to write."""
    return BlockFiles(
        folder=str(folder),
        reader=BlockReader(_READ, "rw_end", _SUFFIX),
        schema=_SCHEMA,
        kept=("_rw_offset", "_rw_split", "partition"),
        computed=("at",),
        constants={"_rw_run": 7, "_rw_error": None},
        split="_rw_split",
        by_split=("_rw_since", {"t:1": 41}),
        compression="snappy",
    )


def written(folder: Path, *batches: Sequence[str | None]) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """The rows and the other records that a task writes for batches of texts."""
    made = block_files._written(files_in(folder), [_batch(texts) for texts in batches]).to_pylist()
    ((rows, row_count, others, other_count),) = [tuple(row.values()) for row in made]
    found = [[row for name in names for row in pq.read_table(folder / name).to_pylist()] for names in (rows, others)]
    assert [len(each) for each in found] == [row_count, other_count]
    assert {file.name for file in folder.glob("*")} == {*rows, *others}
    return found[0], found[1]


def _batch(texts: Sequence[str | None]) -> pa.RecordBatch:
    """As Spark sends it: the names of the columns do not count."""
    sent = [None if text is None else (text[:-1] + _SUFFIX if text.endswith("}") else text).encode() for text in texts]
    splits = [f"t:{at % 2}" for at in range(len(texts))]
    columns = [pa.array(sent, pa.binary()), pa.array(range(len(texts)), pa.int64()), pa.array(splits)]
    columns += [pa.array(["part"] * len(texts)), pa.array(range(100, 100 + len(texts)), pa.int64())]
    return pa.RecordBatch.from_arrays(columns, [f"_{at}" for at in range(len(columns))])


def test_rows_and_other_records(tmp_path: Path) -> None:
    rows, others = written(tmp_path, ['{"id":1,"partition":"mine"}', '{"id":2}', '{"id":"3"}', "no JSON", None, "{}"])
    nothing = {"_rw_run": 7, "_rw_error": None, "dropped": None}
    assert rows == []
    assert len(others) == 6
    rows, others = written(tmp_path / "more", ['{"id":1,"partition":"mine"}', '{"id":2}', "no JSON", None])
    assert rows == [
        {"id": 1, "partition": "mine", "at": 100, "_rw_split": "t:0", "_rw_offset": 0, "_rw_since": None, **nothing},
        {"id": 2, "partition": None, "at": 101, "_rw_split": "t:1", "_rw_offset": 1, "_rw_since": 41, **nothing},
    ]
    assert others == [
        {"value": b"no JSON", "_rw_offset": 2, "_rw_split": "t:0", "partition": "part"},
        {"value": None, "_rw_offset": 3, "_rw_split": "t:1", "partition": "part"},
    ]


def test_other_records_are_as_they_were(tmp_path: Path) -> None:
    texts = ['{"ID":1}', "[1]", "", "x}", '{"id":1} ']
    _, others = written(tmp_path, texts)
    assert [each["value"] for each in others] == [text.encode() for text in texts]


def test_parts_and_row_groups_keep_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_files, "_PART_BYTES", 500)
    monkeypatch.setattr(block_files, "_GROUP_BYTES", 5_000)
    rows, others = written(tmp_path, *([f'{{"id":{first + at}}}' for at in range(100)] for first in (0, 100)))
    assert [row["id"] for row in rows] == list(range(200))
    assert others == []
    (file,) = tmp_path.glob("*")
    assert pq.ParquetFile(file).num_row_groups > 1


def test_a_task_whose_records_are_mostly_left_stops_trying(tmp_path: Path) -> None:
    bad, good = ['{"id":"1"}'] * 3 + ['{"id":2}'], ['{"id":3}'] * 4
    rows, others = written(tmp_path, bad, good)
    assert rows == []
    assert len(others) == 8


def test_no_records(tmp_path: Path) -> None:
    assert written(tmp_path) == ([], [])


class _Frame:
    """Stands for a frame: the function that Spark sends to its Python processes, as Spark serializes it."""

    sent = b""

    def mapInArrow(self, function: object, _schema: str) -> _Frame:  # noqa: N802 - as DataFrame has it
        dumps: Any = cloudpickle.dumps
        self.sent = dumps(function)
        return self

    def collect(self) -> list[object]:
        return []


_WITHOUT_RW_SQL = """
import sys

class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "rw_sql":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Nowhere())
from pathlib import Path
import pyarrow as pa
from pyspark import cloudpickle

columns = [pa.array([b'{"id":1,"rw_end":true}\\n', b"x"]), pa.array([0, 1]), pa.array(["t:0", "t:1"])]
columns += [pa.array(["part"] * 2), pa.array([100, 101])]
batch = pa.RecordBatch.from_arrays(columns, [f"_{at}" for at in range(5)])
write = cloudpickle.loads(Path(sys.argv[1]).read_bytes())
print([(each["row_count"], each["other_count"]) for made in write([batch]) for each in made.to_pylist()])
"""


def test_a_process_without_rw_sql_writes_the_files(tmp_path: Path) -> None:
    """As on the executors of a cluster, which have pyarrow and not this package."""
    frame: Any = _Frame()
    assert files_in(tmp_path / "files").write(frame) == []
    (tmp_path / "sent").write_bytes(frame.sent)
    done = subprocess.run(
        [sys.executable, "-P", "-c", _WITHOUT_RW_SQL, str(tmp_path / "sent")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "[(1, 1)]", done.stderr
    assert len(list((tmp_path / "files").glob("*.parquet"))) == 2
