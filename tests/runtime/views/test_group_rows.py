"""Groups that Arrow combines have the values that a plain computation gives."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rw_sql.runtime.views.group_rows import Combination, combine

if TYPE_CHECKING:
    from collections.abc import Callable

FUNCTIONS = {
    "k": "key",
    "j": "key",
    "n": "sum",
    "paid": "sum",
    "mean": "sum",
    "low": "min",
    "high": "max",
    "word": "max",
}
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("j", pa.int32()),
        ("n", pa.int64()),
        ("paid", pa.decimal128(20, 2)),
        ("mean", pa.float64()),
        ("low", pa.date32()),
        ("high", pa.float64()),
        ("word", pa.string()),
    ]
)
OF: dict[str, Callable[[Any, Any], Any]] = {"sum": lambda a, b: a + b, "min": min, "max": max}

Row = dict[str, Any]


def drawn(random: Random, count: int) -> list[Row]:
    def some(value: Any) -> Any:
        return None if random.random() < 0.25 else value

    return [
        {
            "k": some(random.choice(("", "a", "ä"))),
            "j": some(random.randint(0, 2)),
            "n": some(random.randint(-(10**15), 10**15)),
            "paid": some(Decimal(random.randint(-(10**9), 10**9)) / 100),
            "mean": some(random.randint(-8, 8) / 4),
            "low": some(random.randint(0, 5)),
            "high": some(random.choice((0.5, -1.0, float("inf")))),
            "word": some(random.choice(("", "Z", "a", "ä😀"))),
        }
        for _ in range(count)
    ]


def plain(rows: list[Row], functions: dict[str, str] = FUNCTIONS) -> dict[tuple[Any, ...], Row]:
    """The groups of rows, by their keys."""
    keys = [name for name, function in functions.items() if function == "key"]
    groups: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = tuple(row[name] for name in keys)
        known = groups.setdefault(key, {**row, **dict.fromkeys(row.keys() - keys)})
        for name in row.keys() - keys:
            a, b = known[name], row[name]
            known[name] = b if a is None else a if b is None else OF[functions[name]](a, b)
    return groups


def table(rows: list[Row], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=schema)


def by_key(found: pa.Table) -> dict[tuple[Any, ...], Row]:
    return {(row["k"], row["j"]): row for row in found.to_pylist()}


def required(groups: pa.Table, added: pa.Table, functions: dict[str, str] = FUNCTIONS) -> Combination:
    found = combine(groups, added, functions)
    assert found is not None
    return found


def test_random_batches_give_the_groups_of_all_rows(seed: int) -> None:
    random = Random(seed)
    for _ in range(40):
        rows: list[Row] = []
        groups = SCHEMA.empty_table()
        for _ in range(5):
            new = drawn(random, random.choice((0, 1, 3, 30)))
            found = required(groups, table(new))
            rows += new
            wanted = by_key(table(list(plain(rows).values())))
            assert by_key(found.groups) == wanted
            assert found.groups.num_rows == len(wanted)
            before = by_key(groups)
            assert by_key(found.changed) == {key: row for key, row in wanted.items() if before.get(key) != row}
            groups = found.groups


@pytest.mark.parametrize(
    ("kind", "largest"), [(pa.int64(), 2**63 - 1), (pa.decimal128(12, 2), Decimal("9999999999.99"))]
)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_that_may_exceed_its_type_is_left_to_spark(kind: pa.DataType, largest: Any, sign: int) -> None:
    schema = pa.schema([("k", pa.string()), ("n", kind)])
    functions = {"k": "key", "n": "sum"}
    groups = table([{"k": "a", "n": sign * largest}, {"k": "b", "n": sign}], schema)
    assert combine(groups, table([{"k": "a", "n": sign}], schema), functions) is None
    half = table([{"k": "b", "n": sign * (largest // 2)}], schema)
    small = table([{"k": "b", "n": sign}], schema)
    assert required(small, half, functions).groups["n"].to_pylist() == [sign * (largest // 2) + sign]


def test_nan_is_left_to_spark_where_values_are_compared() -> None:
    schema = pa.schema([("k", pa.string()), ("x", pa.float64())])
    nan = table([{"k": "a", "x": float("nan")}], schema)
    one = table([{"k": "a", "x": 1.0}], schema)
    for function in ("min", "max"):
        functions = {"k": "key", "x": function}
        assert combine(one, nan, functions) is None
        assert combine(nan, one, functions) is None
    (total,) = required(one, nan, {"k": "key", "x": "sum"}).groups["x"].to_pylist()
    assert total != total


def test_groups_without_other_columns_are_distinct_rows() -> None:
    schema = pa.schema([("k", pa.string()), ("j", pa.int32())])
    functions = {"k": "key", "j": "key"}
    known, new, empty = ({"k": "a", "j": 1}, {"k": None, "j": 1}, {"k": None, "j": None})
    found = required(table([known], schema), table([new, known, new, empty], schema), functions)
    assert by_key(found.groups) == by_key(table([known, new, empty], schema))
    assert by_key(found.changed) == by_key(table([new, empty], schema))


def test_a_group_that_a_batch_does_not_touch_is_not_combined() -> None:
    """Its values may be of those that are left to Spark."""
    schema = pa.schema([("k", pa.string()), ("x", pa.float64()), ("n", pa.int64())])
    functions = {"k": "key", "x": "max", "n": "sum"}
    groups = table([{"k": "a", "x": float("nan"), "n": 2**63 - 1}, {"k": "b", "x": 1.0, "n": 1}], schema)
    found = required(groups, table([{"k": "b", "x": 2.0, "n": 1}], schema), functions)
    assert found.changed.to_pylist() == [{"k": "b", "x": 2.0, "n": 2}]
    untouched, touched = sorted(found.groups.to_pylist(), key=lambda row: str(row["k"]))
    assert (untouched["n"], repr(untouched["x"]), touched) == (2**63 - 1, "nan", {"k": "b", "x": 2.0, "n": 2})


def test_a_key_may_have_the_name_of_an_aggregate() -> None:
    schema = pa.schema([("n_sum", pa.string()), ("n", pa.int64()), ("c0", pa.string()), ("k0", pa.int64())])
    functions = {"n_sum": "key", "n": "sum", "c0": "key", "k0": "count"}
    row = {"n_sum": "a", "n": 1, "c0": "b", "k0": 1}
    found = required(table([row], schema), table([row, row | {"c0": None}], schema), functions)
    assert found.changed.to_pylist() == [row | {"n": 2, "k0": 2}, row | {"c0": None}]


def test_groups_without_rows_are_removed(seed: int) -> None:
    random = Random(seed)
    schema = pa.schema([("k", pa.string()), ("n", pa.int64()), ("rows", pa.int64())])
    functions = {"k": "key", "n": "sum", "rows": "rows"}
    for _ in range(30):
        there: list[tuple[str, int]] = []
        groups = schema.empty_table()
        for _ in range(6):
            changes: list[Row] = []
            for _ in range(random.choice((1, 3, 12))):
                if there and random.random() < 0.5:
                    key, n = there.pop(random.randrange(len(there)))
                    changes.append({"k": key, "n": -n, "rows": -1})
                else:
                    there.append((random.choice("abc"), random.randint(-5, 5)))
                    changes.append({"k": there[-1][0], "n": there[-1][1], "rows": 1})
            found = required(groups, table(changes, schema), functions)
            wanted = {key: (sum(n for k, n in there if k == key), [k for k, _ in there].count(key)) for key, _ in there}
            assert {row["k"]: (row["n"], row["rows"]) for row in found.groups.to_pylist()} == wanted
            before = {row["k"]: (row["n"], row["rows"]) for row in groups.to_pylist()}
            written = {row["k"]: (row["n"], row["rows"]) for row in found.changed.to_pylist() if row["_rw_keep"]}
            deleted = {row["k"] for row in found.changed.to_pylist() if not row["_rw_keep"]}
            assert written == {key: group for key, group in wanted.items() if before.get(key) != group}
            assert deleted == before.keys() - wanted.keys()
            groups = found.groups
