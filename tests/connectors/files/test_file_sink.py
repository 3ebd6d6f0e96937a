"""The file sink's writer writes whole files, a separate one for each batch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
import pytest

from rw_sql.connectors.files.sink import FileSink
from rw_sql.connectors.sink import SinkError, SinkShape
from rw_sql.errors import SqlError
from tests.support.sink_batches import batch, shape

if TYPE_CHECKING:
    from rw_sql.connectors.files.sink import FileWriter

READERS = {
    "PARQUET": pyarrow.parquet.read_table,
    "CSV": pyarrow.csv.read_csv,
    "JSON": pyarrow.json.read_json,
}


def opened(path: Path, of: SinkShape, identity: str = "me") -> FileWriter:
    writer = FileSink().open({"fs.path": str(path)}, of, identity)
    assert writer.fence(1, 1) is None
    return writer


@pytest.mark.parametrize("encode", READERS)
def test_a_file_a_batch_and_the_same_one_again(tmp_path: Path, encode: str) -> None:
    writer = opened(tmp_path / "out", shape(encode=encode))
    writer.write(batch((1, "a"), (2, "b")), 0)
    writer.write(batch(), 1)
    writer.write(batch((3, "c")), 2)
    again = opened(tmp_path / "out", shape(encode=encode))
    again.write(batch((3, "c")), 2)
    files = sorted((tmp_path / "out").iterdir())
    assert [file.name for file in files] == [f"part-me-1-{number:010d}.{encode.lower()}" for number in (0, 2)]
    found = [row for file in files for row in READERS[encode](str(file)).to_pylist()]
    assert found == [{"id": 1, "word": "a"}, {"id": 2, "word": "b"}, {"id": 3, "word": "c"}]


def test_csv_takes_its_options(tmp_path: Path) -> None:
    writer = opened(tmp_path, shape(encode="CSV", without_header="true", delimiter=";"))
    writer.write(batch((1, "a;b")), 0)
    (file,) = tmp_path.iterdir()
    assert file.read_text() == '1;"a;b"\n'


def test_a_cancelled_file_does_not_appear(tmp_path: Path) -> None:
    writer = opened(tmp_path, shape(encode="JSON"))
    writer.cancel()
    with pytest.raises(SinkError, match="stopped"):
        writer.write(batch((1, "a")), 0)
    assert list(tmp_path.iterdir()) == []


def test_csv_has_no_form_for_bytes() -> None:
    schema = '{"type":"struct","fields":[{"name":"raw","type":"binary","nullable":true,"metadata":{}}]}'
    with pytest.raises(SqlError, match="which CSV cannot represent"):
        FileSink().check_shape({}, SinkShape(name="k", type="append-only", schema=schema, encode="CSV"))


def test_a_file_s_name_is_on_the_disk_when_its_batch_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash of the machine, a new name may be gone unless its folder was synced after the rename."""
    synced: list[tuple[str, tuple[str, ...]]] = []
    fsync = os.fsync

    def noted(opened: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{opened}"))
        synced.append((str(path), tuple(sorted(each.name for each in path.iterdir())) if path.is_dir() else ()))
        fsync(opened)

    monkeypatch.setattr(os, "fsync", noted)
    folder = tmp_path / "a" / "b"
    writer = opened(folder, shape(encode="JSON"))
    assert (str(tmp_path), ("a",)) in synced
    assert (str(tmp_path / "a"), ("b",)) in synced
    synced.clear()
    writer.write(batch((1, "a")), 0)
    (file,) = folder.iterdir()
    assert synced[-1] == (str(folder), (file.name,))
    assert synced[-2][0].endswith(".writing")
