"""Chunks of a refresh into a Delta table, without Spark: the merged rows, and the changes that readers see."""

from __future__ import annotations

import random
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from rw_sql.runtime.delta.job_output import FencedError, JobOutput
from rw_sql.runtime.delta.key_range import key_range
from rw_sql.runtime.delta.row_counts import MiscountError
from rw_sql.runtime.refresh import staging as staging_module
from rw_sql.runtime.refresh.merging import merge_chunk, position_of
from rw_sql.runtime.refresh.staging import CHUNK_BYTES, CHUNK_ROWS, CHUNK_TABLE_ROWS, Staging, chunk_count
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.syntax.query.maintained_form import KEEP

if TYPE_CHECKING:
    from collections.abc import Mapping

KEYS = ("region", "id")
SCHEMA = pa.schema([("region", pa.string()), ("id", pa.int64()), ("word", pa.string())])
SPARK_SCHEMA = (
    '{"type":"struct","fields":['
    '{"name":"region","type":"string","nullable":true,"metadata":{}},'
    '{"name":"id","type":"long","nullable":true,"metadata":{}},'
    '{"name":"word","type":"string","nullable":true,"metadata":{}}]}'
)
Rows = dict[tuple[str | None, int], str | None]


def output(folder: Path, run: int) -> JobOutput:
    return JobOutput.open(
        Warehouse(str(folder)),
        str(folder / "table"),
        SPARK_SCHEMA,
        job="mv-2",
        run=run,
        epoch=run,
        has_change_feed=True,
    )


def staging(folder: Path) -> Staging:
    return Staging(warehouse=Warehouse(str(folder)), path=str(folder / "staging"), schema=SCHEMA, keys=KEYS)


def changes(old: Rows, new: Rows) -> pa.Table:
    """The result of a comparison of the two, in no particular order."""
    rows = [(*key, word, True) for key, word in new.items() if key not in old or old[key] != word]
    rows += [(*key, None, False) for key in old if key not in new]
    random.Random(7).shuffle(rows)
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    return pa.table(dict(zip((*SCHEMA.names, KEEP), columns, strict=True)), schema=SCHEMA.append(_KEEP))


_KEEP = pa.field(KEEP, pa.bool_())


def held(folder: Path) -> Rows:
    rows = DeltaTable(str(folder / "table")).to_pyarrow_table().to_pylist()
    made = {(row["region"], row["id"]): row["word"] for row in rows}
    assert len(made) == len(rows)
    return made


def seen_changes(folder: Path, since: int) -> list[Mapping[str, Any]]:
    read = DeltaTable(str(folder / "table")).load_cdf(starting_version=since)
    rows: list[Mapping[str, Any]] = pa.table(read.read_all()).to_pylist()
    return rows


def refreshed(folder: Path, run: int, old: Rows, new: Rows, chunks: int) -> JobOutput:
    to, loaded = output(folder, run), staging(folder)
    loaded.remove()
    loaded.write_rows(changes(old, new), chunks)
    first = to.done + 1
    for number in range(chunks):
        merge_chunk(to, loaded.chunk(number), KEYS, first + number)
    return to


def test_a_chunk_is_a_range_of_the_key(tmp_path: Path) -> None:
    loaded = staging(tmp_path)
    rows: Rows = {(None if i % 7 == 0 else "ab"[i % 2], i): str(i) for i in range(100)}
    loaded.write_rows(changes({}, rows), 3)
    chunks = [loaded.chunk(number) for number in range(4)]
    assert [chunk.num_rows for chunk in chunks] == [34, 34, 32, 0]
    keys = [sorted((row["region"] is None, row["region"] or "", row["id"]) for row in c.to_pylist()) for c in chunks]
    assert keys[0][-1] < keys[1][0]
    assert keys[1][-1] < keys[2][0]


def test_a_refresh_writes_what_differs_and_nothing_else(tmp_path: Path) -> None:
    old: Rows = {("a" if i % 2 else None, i): f"word {i}" for i in range(1000)}
    refreshed(tmp_path, 1, {}, old, 2)
    assert held(tmp_path) == old
    new = {key: (f"other {key[1]}" if key[1] % 100 == 1 else word) for key, word in old.items() if key[1] % 200 != 2}
    new |= {("b", i): "new" for i in range(5)}
    before = DeltaTable(str(tmp_path / "table")).version()
    refreshed(tmp_path, 2, old, new, 4)
    assert held(tmp_path) == new
    kinds = [row["_change_type"] for row in seen_changes(tmp_path, before + 1)]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "update_preimage": 10,
        "update_postimage": 10,
        "delete": 5,
        "insert": 5,
    }


def test_a_merge_that_was_killed_goes_on_with_its_chunk(tmp_path: Path) -> None:
    old: Rows = {("a", i): "old" for i in range(300)}
    refreshed(tmp_path, 1, {}, old, 1)
    new: Rows = {("a", i): "new" if i % 3 else "old" for i in range(10, 330)}
    loaded, first = staging(tmp_path), output(tmp_path, 2)
    begin, before = first.done + 1, first.table.version()
    loaded.remove()
    loaded.write_rows(changes(old, new), 5)
    merge_chunk(first, loaded.chunk(0), KEYS, begin)
    merge_chunk(first, loaded.chunk(1), KEYS, begin + 1)
    second = output(tmp_path, 3)
    assert second.done == begin + 1
    with pytest.raises(FencedError):
        merge_chunk(first, loaded.chunk(2), KEYS, begin + 2)
    for number in range(second.done - begin + 1, 5):
        merge_chunk(second, staging(tmp_path).chunk(number), KEYS, begin + number)
    assert held(tmp_path) == new
    kinds = [row["_change_type"] for row in seen_changes(tmp_path, before + 1)]
    assert kinds.count("update_postimage") == sum(1 for key, word in new.items() if key in old and old[key] != word)


def test_a_chunk_without_rows_is_reported_too(tmp_path: Path) -> None:
    to, loaded = output(tmp_path, 1), staging(tmp_path)
    loaded.write_rows(changes({}, {("a", 1): "x"}), 1)
    merge_chunk(to, loaded.chunk(1), KEYS, 0)
    assert output(tmp_path, 2).done == 0


def test_how_many_chunks() -> None:
    assert chunk_count(0, 0, 10**9) == 0
    assert chunk_count(1, 50, 0) == 1
    assert chunk_count(1, 50, 10**9) == 1
    assert chunk_count(20_000, 10**6, 9 * CHUNK_TABLE_ROWS) == 9
    assert chunk_count(1_000_000, 10**8, 0) == 1_000_000 // CHUNK_ROWS


def test_few_long_rows_are_divided_into_chunks_by_their_size() -> None:
    assert chunk_count(150_000, 150_000 * 8192, 150_000) == 150_000 * 8192 // CHUNK_BYTES + 1
    assert chunk_count(3, 10 * CHUNK_BYTES, 0) == 3
    assert chunk_count(10**6, 10**20, 0) == 10_000


def test_long_rows_that_were_compared_in_memory_are_merged_in_several_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging_module, "CHUNK_BYTES", 100_000)
    new: Rows = {("a", number): f"{number:010000}" for number in range(60)}
    staged = staging(tmp_path).write_table(changes({}, new), 0)
    assert staged.rows == 60
    chunks = [staging(tmp_path).chunk(number) for number in range(staged.chunks)]
    assert sum(chunk.num_rows for chunk in chunks) == 60
    assert len(chunks) > 5
    assert max(chunk.nbytes for chunk in chunks) < 150_000


def test_the_range_of_a_key_and_where_it_ends() -> None:
    rows = pa.table({"n": [3, 1, 2], "t": ["b'c", "a", "b"], "d": [date(2026, 1, 2), date(2026, 1, 1), None]})
    assert key_range(rows, "n") == "(t.`n` >= 1 AND t.`n` <= 3)"
    assert key_range(rows, "t") == "(t.`t` >= 'a' AND t.`t` <= 'b''c')"
    assert key_range(rows, "d") == ""
    assert key_range(rows.slice(0, 2), "d") == "(t.`d` >= DATE '2026-01-01' AND t.`d` <= DATE '2026-01-02')"
    assert position_of(rows, ("n",)) == '{"n": 3}'
    assert position_of(rows.slice(0, 2), ("d", "n")) == '{"d": "2026-01-02", "n": 3}'
    assert position_of(rows.slice(0, 0), ("n",)) is None


def test_chunks_are_what_was_staged(tmp_path: Path) -> None:
    new: Rows = {("a", number): "word" for number in range(10)}
    staged = staging(tmp_path)
    staged.write_rows(changes({}, new), 2)
    staged._require_staged(10)
    with pytest.raises(
        MiscountError, match="10 rows are to be written, but the stored part of the batch has at least 11"
    ):
        staged._require_staged(11)
    assert [staged.chunk(number).num_rows for number in (0, 1, 2)] == [5, 5, 0]
    next(Path(staged.path).rglob("*.parquet")).unlink()
    with pytest.raises(MiscountError, match="2 files, of which the driver does not find 1 in"):
        staged._require_staged(10)


def test_keys_for_which_python_has_no_value() -> None:
    """Other writers of a table have dates after the year 9999, and texts that are not UTF-8."""
    far = pa.array([3_000_000, 4_000_000], pa.int32()).cast(pa.date32())
    late = pa.array([260_000_000_000_000_000, 250_000_000_000_000_000], pa.timestamp("us", tz="UTC"))
    raw = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff")]
    )
    for name, values, position in (("day", far, "12921"), ("at", late, "10209"), ("word", raw, "ff")):
        rows = pa.table({name: values, KEEP: [True, True]})
        assert key_range(rows, name) == ""
        found = position_of(rows, [name])
        assert found is not None
        assert position in found
