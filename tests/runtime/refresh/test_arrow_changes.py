"""The comparison of an upstream with a table in memory, against a comparison of Python's dictionaries."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from rw_sql.runtime.refresh.arrow_changes import changed_rows_in_memory
from rw_sql.syntax.query.maintained_form import KEEP

NAN = float("nan")
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [None, 0, 1, -1, 2**63 - 1],
    pa.int8(): [None, 0, 1, -128],
    pa.string(): [None, "", "a", "ä", "a "],
    pa.bool_(): [None, True, False],
    pa.float64(): [None, 0.0, -0.0, 1.5, NAN, math.inf, -math.inf],
    pa.float32(): [None, 0.0, NAN, 0.5],
    pa.decimal128(10, 2): [None, Decimal("0.00"), Decimal("1.10"), Decimal("-1.10")],
    pa.date32(): [None, dt.date(1970, 1, 1), dt.date(2024, 2, 29)],
    pa.timestamp("us", tz="UTC"): [None, dt.datetime(2024, 1, 1, tzinfo=dt.UTC)],
    pa.binary(): [None, b"", b"\x00", b"a"],
}
SCHEMA = pa.schema([("k", pa.int64()), ("w", pa.string()), *((f"v{n}", kind) for n, kind in enumerate(VALUES))])


def table(rows: list[dict[str, Any]]) -> pa.Table:
    """A table in chunks of a few rows, as the files of a table are."""
    parts = [pa.Table.from_pylist(rows[at : at + 7], schema=SCHEMA) for at in range(0, len(rows), 7)]
    return pa.concat_tables(parts) if parts else SCHEMA.empty_table()


def plain(row: dict[str, Any], names: list[str]) -> tuple[Any, ...]:
    """The values of a row in a form in which NaN equals NaN."""
    return tuple("NaN" if isinstance(row[name], float) and math.isnan(row[name]) else row[name] for name in names)


def drawn(draw: random.Random, keys: tuple[str, ...], number: int) -> dict[tuple[Any, ...], dict[str, Any]]:
    rows = {}
    for _ in range(number):
        row: dict[str, Any] = {"k": draw.randrange(60), "w": draw.choice(["x", "y", "", "ä"])}
        row |= {f"v{n}": draw.choice(values) for n, values in enumerate(VALUES.values())}
        rows[tuple(row[key] for key in keys)] = row
    return rows


@pytest.mark.parametrize("keys", [("k",), ("k", "w")])
@pytest.mark.parametrize("seed", range(20))
def test_the_differences_are_those_of_two_dictionaries(seed: int, keys: tuple[str, ...]) -> None:
    draw = random.Random(seed)
    old = drawn(draw, keys, draw.choice([1, 20, 80]))
    new = {key: dict(row) for key, row in old.items() if draw.random() < 0.8}
    for row in new.values():
        if draw.random() < 0.3:
            number, values = draw.choice(list(enumerate(VALUES.values())))
            row[f"v{number}"] = draw.choice(values)
    new |= {key: row for key, row in drawn(draw, keys, draw.choice([0, 10])).items() if key not in old}
    fresh, before = list(new.values()), list(old.values())
    draw.shuffle(fresh)
    draw.shuffle(before)
    found = changed_rows_in_memory(table(fresh), table(before), keys)
    assert found is not None
    assert found.schema.names == [*SCHEMA.names, KEEP]
    names = SCHEMA.names
    kept = {plain(row, names) for row in found.to_pylist() if row[KEEP]}
    changed = [row for key, row in new.items() if key not in old or plain(row, names) != plain(old[key], names)]
    assert kept == {plain(row, names) for row in changed}
    gone = [row for row in found.to_pylist() if not row[KEEP]]
    assert {tuple(row[key] for key in keys) for row in gone} == set(old) - set(new)
    assert all(row[name] is None for row in gone for name in names if name not in keys)
    assert found.num_rows == len(changed) + len(gone)


def one(key: int | None, word: str = "x") -> dict[str, Any]:
    return dict.fromkeys(SCHEMA.names) | {"k": key, "w": word}


@pytest.mark.parametrize(
    ("fresh", "before"),
    [
        ([one(1), one(1)], [one(1)]),
        ([one(2), one(2)], [one(1)]),
        ([one(1), one(None)], [one(1)]),
        ([one(1)], [one(None)]),
        ([one(1), one(2)], [one(1), one(1), one(2)]),
    ],
    ids=[
        "a key of the table twice",
        "a new key twice",
        "a key is NULL",
        "a key of the table is NULL",
        "the table itself has a key twice",
    ],
)
def test_keys_that_arrow_cannot_match_are_left_to_spark(
    fresh: list[dict[str, Any]], before: list[dict[str, Any]]
) -> None:
    assert changed_rows_in_memory(table(fresh), table(before), ("k",)) is None
    assert changed_rows_in_memory(table(fresh), table(before), ("k", "w")) is None


def test_a_key_is_no_floating_point_number() -> None:
    assert changed_rows_in_memory(table([one(1)]), table([one(1)]), ("v4",)) is None


def test_all_rows_may_be_gone_or_new() -> None:
    rows = [one(number) for number in range(20)]
    gone = changed_rows_in_memory(table([]), table(rows), ("k",))
    new = changed_rows_in_memory(table(rows), table([]), ("k",))
    assert gone is not None
    assert new is not None
    assert (gone[KEEP].to_pylist(), new[KEEP].to_pylist()) == ([False] * 20, [True] * 20)
