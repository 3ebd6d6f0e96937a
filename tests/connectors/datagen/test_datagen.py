"""The generator returns the same rows wherever reading starts, with the requested types and ranges."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rw_sql.connectors.base import ENDLESS, SplitState
from rw_sql.connectors.datagen.plan import plan_rows
from rw_sql.connectors.datagen.reader import DatagenStreamReader, ReadMaxRows
from rw_sql.connectors.datagen.rows import RowPlan, SplitRange, make_batch, make_batches, row_plan
from rw_sql.connectors.datagen.source import DatagenConnector
from rw_sql.connectors.spec import load_spec
from rw_sql.connectors.support.records.record_columns import RECORD_SCHEMA
from rw_sql.errors import SqlError

DATAGEN = DatagenConnector()
SPEC = load_spec("datagen")
COLUMNS = {
    "id": "BIGINT",
    "small": "SMALLINT",
    "price": "NUMERIC(10, 2)",
    "ratio": "DOUBLE",
    "single": "REAL",
    "name": "CHARACTER VARYING",
    "is_open": "BOOLEAN",
    "day": "DATE",
    "at": "TIMESTAMP",
    "at_zone": "TIMESTAMP WITH TIME ZONE",
    "address": 'STRUCT<street CHARACTER VARYING, "house no" INT>',
    "tags": "CHARACTER VARYING[]",
}
OPTIONS = {
    "datagen.split.num": "3",
    "datagen.rows.total": "1000",
    "fields.id.kind": "sequence",
    "fields.id.start": "1",
    "fields.price.min": "-5",
    "fields.price.max": "5.55",
    "fields.name.length": "7",
    "fields.address.street.length": "3",
    "fields.tags.length": "2",
    "fields.ratio.null": "0.25",
}


def plan(options: dict[str, str], columns: dict[str, str] | None = None) -> RowPlan:
    DATAGEN.check_options(options)
    DATAGEN.check_columns(options, columns or {})
    return plan_rows(SPEC, options, columns)


def documents(of: RowPlan, *ranges: SplitRange) -> list[dict[str, Any]]:
    return [json.loads(value) for batch in make_batches(of, ranges) for value in batch.column("value").to_pylist()]


def whole(of: RowPlan) -> list[dict[str, Any]]:
    return documents(of, *(SplitRange(str(n), n, 0, of.split_total(n) or 0) for n in range(of.splits)))


@pytest.mark.long
@given(st.integers(0, 400), st.integers(0, 60), st.integers(0, 2))
def test_rows_are_the_same_wherever_reading_starts(start: int, count: int, split: int) -> None:
    made = plan(OPTIONS, COLUMNS)
    all_of_it = make_batch(made, [SplitRange("s", split, 0, 500)])
    assert make_batch(made, [SplitRange("s", split, start, start + count)]) == all_of_it.slice(start, count)


def test_rows_are_the_same_in_batches_of_any_kind() -> None:
    made = plan({"datagen.split.num": "3", "datagen.rows.total": "60000"}, {"name": "CHARACTER VARYING"})
    ranges = [SplitRange(str(n), n, 0, 20_000) for n in range(3)]
    together = list(make_batches(made, ranges))
    assert len(together) > 1
    assert max(batch.num_rows for batch in together) <= 20_000
    one_by_one = [make_batch(made, [one]) for one in ranges]
    assert [row for b in together for row in b.column("value").to_pylist()] == [
        row for b in one_by_one for row in b.column("value").to_pylist()
    ]


def test_wide_rows_come_in_small_batches() -> None:
    made = plan({"datagen.rows.total": "300", "fields.s.length": "100000"}, {"s": "CHARACTER VARYING"})
    batches = list(make_batches(made, [SplitRange("1-0", 0, 0, 300)]))
    assert sum(batch.num_rows for batch in batches) == 300
    assert max(batch.nbytes for batch in batches) < 2**25


def test_the_plan_survives_its_own_text() -> None:
    made = plan(OPTIONS, COLUMNS)
    assert row_plan(made.to_json()) == made


def test_another_seed_makes_other_rows_and_the_number_of_splits_does_not() -> None:
    columns = {"v": "BIGINT"}
    base = {"datagen.rows.total": "100"}

    def values(**options: str) -> set[str]:
        return {json.dumps(row) for row in whole(plan({**base, **options}, columns))}

    assert values() == values(**{"datagen.split.num": "7"})
    assert len(values() & values(**{"datagen.seed": "1"})) < 5
    assert len(values() & values(**{"fields.v.seed": "1"})) < 5


def test_values_are_of_their_types_and_in_their_ranges() -> None:
    rows = whole(plan(OPTIONS, COLUMNS))
    assert sorted(row["id"] for row in rows) == list(range(1, 1001))
    assert all(0 <= row["small"] <= 32767 for row in rows)
    assert all(-5 <= row["price"] <= 5.55 and round(row["price"], 2) == row["price"] for row in rows)
    assert min(row["price"] for row in rows) < -4
    assert max(row["price"] for row in rows) > 5
    assert 150 < sum(row["ratio"] is None for row in rows) < 350
    assert all(row["ratio"] is None or 0 <= row["ratio"] < 32767 for row in rows)
    assert all(len(row["name"]) == 7 and row["name"].isalnum() for row in rows)
    assert len({row["name"] for row in rows}) == 1000
    assert 400 < sum(row["is_open"] for row in rows) < 600
    assert {row["day"] for row in rows} == {"2025-12-31"}
    origin = datetime.datetime(2026, 1, 1)
    ages = [origin - datetime.datetime.fromisoformat(row["at"]) for row in rows]
    assert datetime.timedelta() <= min(ages)
    assert max(ages) <= datetime.timedelta(days=1)
    assert all(row["at_zone"].endswith("Z") for row in rows)
    assert all(len(row["address"]["street"]) == 3 and isinstance(row["address"]["house no"], int) for row in rows)
    assert all(len(row["tags"]) == 2 and row["tags"][0] != row["tags"][1] for row in rows)


def test_batches_have_the_reader_s_columns() -> None:
    batch = make_batch(plan({"datagen.rows.total": "4"}, {"v": "INT"}), [SplitRange("1-0", 0, 1, 3)])
    assert batch.schema == RECORD_SCHEMA
    assert batch.column("_rw_split").to_pylist() == ["1-0", "1-0"]
    assert batch.column("_rw_offset").to_pylist() == [1, 2]
    assert batch.column("key").to_pylist() == [None, None]


def test_timestamps_follow_the_rate() -> None:
    made = plan(
        {"datagen.rows.per.second": "4", "datagen.split.num": "2", "datagen.origin": "2026-01-31 08:00:00+01:00"}
    )
    times = make_batch(made, [SplitRange("2-1", 1, 0, 2)]).column("timestamp").to_pylist()
    start = datetime.datetime(2026, 1, 31, 7, tzinfo=datetime.UTC)
    assert times == [start + datetime.timedelta(seconds=0.25), start + datetime.timedelta(seconds=0.75)]
    relative = {"fields.t.max_past_mode": "relative", "fields.t.max_past": "0s", "datagen.rows.per.second": "1"}
    assert documents(plan(relative, {"t": "TIMESTAMP"}), SplitRange("1-0", 0, 2, 3)) == [
        {"t": "2026-01-01T00:00:02.000000"}
    ]
    based = {"fields.t.basetime": "2023-04-01T16:39:57-08:00", "fields.t.max_past": "0s"}
    assert documents(plan(based, {"t": "TIMESTAMP WITH TIME ZONE"}), SplitRange("1-0", 0, 0, 1)) == [
        {"t": "2023-04-02T00:39:57.000000Z"}
    ]


def test_a_sequence_with_an_end_ends_the_source() -> None:
    options = {"fields.id.kind": "sequence", "fields.id.start": "5", "fields.id.end": "14", "datagen.split.num": "3"}
    ends = [split.end for split in DATAGEN.look(options).splits.values()]
    assert ends == [4, 3, 3]
    assert sorted(row["id"] for row in whole(plan(options, {"id": "INT"}))) == list(range(5, 15))


def test_without_columns_the_options_name_the_fields() -> None:
    options = {"fields.id.kind": "sequence", "fields.s.length": "2", "fields.f.max": "1.0", "fields.t.max_past": "1h"}
    (row,) = documents(plan(options, {"data": "BYTEA"}), SplitRange("1-0", 0, 0, 1))
    assert {name: type(value) for name, value in row.items()} == {"id": int, "s": str, "f": float, "t": str}


@pytest.mark.parametrize(
    "bounds",
    [("-9223372036854775808", "9223372036854775807"), ("9223372036854775806", "9223372036854775807"), ("-3", "-3")],
)
def test_the_widest_and_narrowest_ranges(bounds: tuple[str, str]) -> None:
    low, high = bounds
    rows = whole(plan({"datagen.rows.total": "50", "fields.v.min": low, "fields.v.max": high}, {"v": "BIGINT"}))
    assert all(int(low) <= row["v"] <= int(high) for row in rows)
    assert len({row["v"] for row in rows}) == min(50, int(high) - int(low) + 1)


@pytest.mark.parametrize(
    ("options", "columns", "code", "message"),
    [
        ({"fields.x.kind": "random"}, {"v": "INT"}, "RW205", 'property "fields.x.kind" names no column of the source'),
        ({"fields.v.kind": "sequence"}, {"v": "BOOLEAN"}, "RW208", "cannot be sequence for a column of type BOOLEAN"),
        ({"fields.v.min": "5", "fields.v.max": "1"}, {"v": "INT"}, "RW208", "must not be greater than"),
        ({"fields.v.max": "40000"}, {"v": "SMALLINT"}, "RW208", "outside the range of type SMALLINT"),
        ({"fields.v.max": "1.5"}, {"v": "INT"}, "RW208", "must be a whole number for a column of type INT"),
        ({"fields.v.length": "1001"}, {"v": "INT[]"}, "RW208", "must be at most 1000 for an array"),
        ({}, {"v": "BYTEA", "w": "INTERVAL"}, "RW206", "cannot generate values of type INTERVAL"),
        ({"fields.v.basetime": "2026-13-01"}, {"v": "TIMESTAMP"}, "RW208", "must be a time"),
    ],
)
def test_columns_and_options_that_do_not_fit(
    options: dict[str, str], columns: dict[str, str], code: str, message: str
) -> None:
    with pytest.raises(SqlError) as caught:
        DATAGEN.check_columns(options, columns)
    assert caught.value.code == code
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("written", "split"), [("0", "4-0"), ("03", "4-3"), ("4-2", "4-2"), ("2-1", "2-1"), (" 1 ", "4-1")]
)
def test_splits_as_statements_write_them(written: str, split: str) -> None:
    assert DATAGEN.resolve_split({"datagen.split.num": "4"}, written) == split


def test_what_is_no_split() -> None:
    with pytest.raises(SqlError) as caught:
        DATAGEN.resolve_split({"datagen.split.num": "4"}, "orders:0")
    assert caught.value.hint == "its splits are '4-0' to '4-3'"


def test_what_the_upstream_tells() -> None:
    bounded = DATAGEN.look({"datagen.rows.total": "10", "datagen.split.num": "4"})
    assert [(s.split, s.start, s.end, s.is_endless) for s in bounded.splits.values()] == [
        ("4-0", 0, 3, False),
        ("4-1", 0, 3, False),
        ("4-2", 0, 2, False),
        ("4-3", 0, 2, False),
    ]
    (paced,) = DATAGEN.look({}).splits.values()
    assert (paced.end, paced.is_endless) == (ENDLESS, True)
    assert DATAGEN.look({"datagen.seed": "2"}).splits["1-0"].incarnation != paced.incarnation
    assert DATAGEN.offsets_at({"datagen.rows.total": "10"}, 1767225600003, ["1-0"]) == {"1-0": 3}
    assert DATAGEN.offsets_at({"datagen.rows.total": "10"}, 0, ["1-0"]) == {"1-0": 0}
    assert DATAGEN.offsets_at({"datagen.rows.total": "10"}, 2**42, ["1-0"]) == {"1-0": 10}


def test_ten_thousand_splits_are_cheap() -> None:
    options = {"datagen.split.num": "10000"}
    began = time.process_time()
    splits = DATAGEN.look(options).splits
    texts = {
        split: DATAGEN.encode_state(SplitState(split=split, offset=found.start)) for split, found in splits.items()
    }
    states = [DATAGEN.decode_state(split, text) for split, text in texts.items()]
    assert len(states) == 10_000
    assert time.process_time() - began < 1


@pytest.mark.long
def test_the_reader_runs_where_the_package_is_not_installed() -> None:
    """The code that Spark sends to its workers must not need this package there."""
    sender = """
import sys
from pyspark import cloudpickle
from rw_sql.connectors.datagen import plan as datagen_plan
from rw_sql.connectors.datagen import reader as datagen_reader
from rw_sql.connectors.datagen import rows as datagen_rows
from rw_sql.connectors.spec import load_spec
from rw_sql.connectors.support.records.record_columns import RECORD_SCHEMA
for module in (datagen_rows, datagen_reader):
    cloudpickle.register_pickle_by_value(module)
plan = datagen_plan.plan_rows(load_spec("datagen"), {"datagen.rows.total": "5"}, {"v": "INT", "t": "STRUCT<a INT>"})
source = datagen_reader.DatagenDataSource(
    {"plan": plan.to_json(), "positions": '{"1-0": 1}', "rate": "", "maxrows": "3", "tasks": "2"}
)
sys.stdout.buffer.write(cloudpickle.dumps(source))
"""
    receiver = """
import sys
sys.modules["rw_sql"] = None
import pickle
reader = pickle.loads(sys.stdin.buffer.read()).streamReader(None)
start = reader.initialOffset()
is_older = reader.latestOffset.__code__.co_argcount == 1  # Spark 4.0 and 4.1
end = reader.latestOffset() if is_older else reader.latestOffset(start, reader.getDefaultReadLimit())
rows = [batch for part in reader.partitions(start, end) for batch in reader.read(pickle.loads(pickle.dumps(part)))]
print(end, sum(batch.num_rows for batch in rows))
"""
    sent = subprocess.run([sys.executable, "-c", sender], capture_output=True, check=True).stdout
    done = subprocess.run([sys.executable, "-c", receiver], input=sent, capture_output=True, check=False)
    assert done.stdout.decode().strip() == "{'1-0': 4} 3", done.stderr.decode()


@pytest.mark.parametrize("kind", ["BIGINT", "INT"])
def test_a_sequence_from_zero_ends_within_64_bits(kind: str) -> None:
    made = plan({"fields.id.kind": "sequence"}, {"id": kind})
    assert (made.total or 0) <= 2**62
    (split,) = DATAGEN.look({"fields.id.kind": "sequence"}).splits.values()
    assert split.end == ENDLESS
    given = {"plan": made.to_json(), "positions": '{"1-0": 0}', "rate": "", "maxrows": "10", "tasks": "1"}
    reader = DatagenStreamReader(given)
    assert reader.latestOffset({"1-0": 0}, ReadMaxRows(1000))["1-0"] in range(1001)


def test_more_rows_than_a_sequence_of_the_type_has_are_refused() -> None:
    options = {"fields.id.kind": "sequence", "datagen.rows.total": "50000"}
    with pytest.raises(SqlError, match="must be at most 32768, because the type of a sequence's column has no more"):
        DATAGEN.check_columns(options, {"id": "SMALLINT"})
    for fits in ({**options, "datagen.rows.total": "32768"}, {**options, "fields.id.end": "100"}):
        DATAGEN.check_columns(fits, {"id": "SMALLINT"})
    DATAGEN.check_columns(options, {"id": "INT"})
