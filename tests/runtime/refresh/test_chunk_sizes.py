"""The division of changed rows into chunks, without Spark: by their number, and by their sizes."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rw_sql.runtime.refresh import staging as staging_module
from rw_sql.runtime.refresh.chunk_sizes import chunk_numbers, row_sizes
from tests.runtime.refresh.test_refresh_merging import Rows, changes, staging


@pytest.mark.parametrize("seed", range(20))
def test_a_chunk_ends_before_the_row_that_would_exceed_a_limit(seed: int) -> None:
    draw = random.Random(seed)
    sizes = [draw.choice([0, 1, 5, 30, 200]) for _ in range(draw.choice([1, 10, 300]))]
    numbers = chunk_numbers(np.array(sizes, np.int64), 20, 100).tolist()
    assert numbers[0] == 0
    assert {after - before for before, after in pairwise(numbers)} <= {0, 1}
    for number in range(numbers[-1] + 1):
        at = [place for place, each in enumerate(numbers) if each == number]
        assert len(at) <= 20
        assert len(at) == 1 or sum(sizes[place] for place in at) <= 100
        after = sizes[at[-1] + 1 : at[-1] + 2]
        assert not after or len(at) == 20 or sum(sizes[place] for place in at) + after[0] > 100


def test_the_size_of_a_row_includes_its_texts_and_the_values_of_its_arrays() -> None:
    columns = {
        "t": pa.array(["a" * 100, None, "ä"]),
        "b": pa.array([b"", b"x" * 50, None], pa.large_binary()),
        "l": pa.array([["x" * 10, "y" * 20], None, []]),
        "s": pa.array([{"a": "x" * 30, "b": 1}, None, {"a": None, "b": None}]),
        "m": pa.array([[("k", "v" * 40)], [], None], pa.map_(pa.string(), pa.string())),
        "n": pa.array([1, 2, None]),
    }
    table = pa.table(columns)
    texts = [100 + 10 + 20 + 30 + 1 + 40, 50, 2]
    widths = row_sizes(table) - texts
    assert all(0 < width <= 150 for width in widths)
    twice = pa.concat_tables([table, table.slice(1)])
    assert row_sizes(twice).tolist() == [*row_sizes(table), *row_sizes(table)[1:]]
    assert row_sizes(table.slice(0, 0)).tolist() == []


def test_long_rows_with_adjacent_keys_are_merged_in_several_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging_module, "CHUNK_BYTES", 100_000)
    new: Rows = {("a", number): "short" for number in range(1_000)}
    new |= {("b", number): f"{number:020000}" for number in range(30)}
    staged = staging(tmp_path).write_table(changes({}, new), 0)
    chunks = [staging(tmp_path).chunk(number) for number in range(staged.chunks)]
    assert sum(chunk.num_rows for chunk in chunks) == staged.rows == 1_030
    assert all(chunk.num_rows for chunk in chunks)
    assert max(chunk.nbytes for chunk in chunks) < 2 * 100_000 + 20_000
    assert len(chunks) < 12
