"""A merge opens only files that may contain its keys, and changes the same rows as one that opens all."""

from __future__ import annotations

import json
import struct
from datetime import date
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rw_sql.runtime.delta.delta_log import read_actions
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.delta.key_range import MOST_CHARACTERS, key_range
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.syntax.query.maintained_form import KEEP

if TYPE_CHECKING:
    from pathlib import Path

LONG, DATE, TEXT = pa.int64(), pa.date32(), pa.string()

KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "long": (LONG, [None, -(2**63), -(2**63) + 1, -1, 0, 1, 7, 2**53 + 1, 2**63 - 1]),
    "integer": (pa.int32(), [None, -(2**31), -1, 0, 3, 2**31 - 1]),
    "byte": (pa.int8(), [-128, -1, 0, 127]),
    "date": (
        DATE,
        [None, date(1, 1, 1), date(1582, 10, 10), date(1969, 12, 31), date(2026, 2, 28), date(9999, 12, 31)],
    ),
    "string": (
        TEXT,
        [
            *[
                None,
                "",
                " ",
                "a",
                "A",
                "a ",
                "b'c",
                "''",
                "\\",
                "\\'",
                "a\nb",
                "a\0b",
                "--",
                "%",
                "_",
                "ß",
                "é",
                "𝄞",
                "\ue000",
            ],
            *["x" * MOST_CHARACTERS, "x" * (MOST_CHARACTERS - 1) + "y", "\U0010ffff" * 40],
        ],
    ),
    "double": (pa.float64(), [None, -1.5, -0.0, 0.0, 3.25, 1e300]),
}


def opened(path: Path, kind: str, columns: int) -> JobOutput:
    fields = [{"name": f"k{at}", "type": kind, "nullable": True, "metadata": {}} for at in range(columns)]
    fields.append({"name": "n", "type": "long", "nullable": True, "metadata": {}})
    schema = json.dumps({"type": "struct", "fields": fields})
    return JobOutput.open(Warehouse.at(str(path)), str(path / "t"), schema, job="mv-1", run=1, epoch=1)


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("name", list(KEYS))
def test_merges_equal_a_dict(name: str, columns: int, tmp_path: Path) -> None:
    kind, values = KEYS[name]
    random = Random(f"{name} {columns}")
    output = opened(tmp_path, name, columns)
    expected: dict[tuple[Any, ...], int] = {}
    keys = [f"k{at}" for at in range(columns)]
    for batch in range(7):
        given = {tuple(random.choice(values) for _ in keys) for _ in range(random.randint(1, 4))}
        kept = {key: random.random() < 0.7 for key in given}
        rows = pa.table(
            {
                **{each: pa.array([key[at] for key in kept], kind) for at, each in enumerate(keys)},
                "n": pa.array([batch] * len(kept), LONG),
                KEEP: list(kept.values()),
            }
        )
        output.upsert_rows(rows, keys, batch)
        for key, is_kept in kept.items():
            expected.pop(key, None)
            if is_kept:
                expected[key] = batch
        found = output.table.to_pyarrow_table().to_pylist()
        assert {tuple(row[each] for each in keys): row["n"] for row in found} == expected
        assert len(found) == len(expected)


@pytest.mark.parametrize(
    ("kind", "stored"), [("double", (pa.uint64(), pa.float64())), ("float", (pa.uint32(), pa.float32()))]
)
def test_all_nan_are_one_key(kind: str, stored: tuple[pa.DataType, pa.DataType], tmp_path: Path) -> None:
    """As in Spark. The processor's own NaN has a sign bit; the NaN of most languages has none."""
    bits, floats = stored
    ordinary = {"double": 0x7FF8 << 48, "float": 0x7FC0 << 16}[kind]
    with_sign = ordinary | 1 << (bits.bit_width - 1)
    output = opened(tmp_path, kind, 1)
    for batch, given in enumerate((ordinary, with_sign, ordinary)):
        buffer = pa.py_buffer(struct.pack({"double": "<Q", "float": "<I"}[kind], given))
        key = pa.Array.from_buffers(floats, 1, [None, buffer])
        output.upsert_rows(pa.table({"k0": key, "n": pa.array([batch], LONG)}), ["k0"], batch)
        assert output.table.to_pyarrow_table()["n"].to_pylist() == [batch]


def test_files_without_the_keys_are_not_opened(tmp_path: Path) -> None:
    output = opened(tmp_path, "long", 1)
    for batch in range(5):
        ids = list(range(batch * 10, batch * 10 + 10))
        output.upsert_rows(pa.table({"k0": pa.array(ids, LONG), "n": pa.array(ids, LONG)}), ["k0"], batch)
    rows = pa.table({"k0": pa.array([23, 25], LONG), "n": pa.array([0, 0], LONG)})
    output.upsert_rows(rows, ["k0"], 5)
    actions = read_actions(output.warehouse, output.path, output.table.version())
    (info,) = [action["commitInfo"] for action in actions if "commitInfo" in action]
    assert info["operationMetrics"]["num_target_files_scanned"] == 1
    assert output.table.to_pyarrow_table().num_rows == 50


def test_a_condition_does_not_repeat_long_texts() -> None:
    assert key_range(pa.table({"k": ["x" * MOST_CHARACTERS]}), "k") == ""
    assert key_range(pa.table({"k": ["x"]}), "k") == "(t.`k` >= 'x' AND t.`k` <= 'x')"
