"""The bounds of records from a query's predicates, in the form that Spark writes them over the reader's columns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rw_sql.plan.queries.scan_bounds import ScanBounds, below, bounds_of, hull, narrowed


@pytest.mark.parametrize(
    ("condition", "bounds"),
    [
        ("(offset >= 5L)", ScanBounds(low=5)),
        ("(CAST(CAST(offset AS STRING) AS BIGINT) > 5L)", ScanBounds(low=6)),
        ("((offset < 10L) AND (5L <= offset))", ScanBounds(low=5, high=10)),
        ("(offset BETWEEN 3 AND 4)", ScanBounds(low=3, high=5)),
        ("(CAST(offset AS STRING) = '7')", ScanBounds(low=7, high=8)),
        ("(CAST(offset AS STRING) > '7')", ScanBounds()),
        ("(CAST(offset AS DOUBLE) > 7)", ScanBounds()),
        ("(CAST(offset AS INT) > 7)", ScanBounds()),
        ("(CAST(CAST(partition AS STRING) AS INT) = 3)", ScanBounds(partitions=frozenset({"3"}))),
        ("((offset + 1L) > 7L)", ScanBounds()),
        ("(NOT (offset = 5L))", ScanBounds()),
        ("(offset IN (4L, 9L))", ScanBounds(low=4, high=10)),
        ("((offset = 4L) OR (offset = 9L))", ScanBounds(low=4, high=10)),
        ("((offset = 4L) OR (value = 'x'))", ScanBounds()),
        ("(CAST(partition AS STRING) = '1')", ScanBounds(partitions=frozenset({"1"}))),
        ("(CAST(partition AS STRING) IN ('1', '2'))", ScanBounds(partitions=frozenset({"1", "2"}))),
        ("(partition > 1)", ScanBounds()),
        ("(timestamp >= TIMESTAMP '1970-01-01 00:00:01.5')", ScanBounds(since_ms=1500)),
        ("(timestamp < TIMESTAMP '1970-01-01 00:00:01.5')", ScanBounds()),
        (
            "(CASE WHEN (unix_millis(timestamp) <> -1L) THEN timestamp END > TIMESTAMP '1970-01-01 00:00:01.5')",
            ScanBounds(since_ms=1500),
        ),
        ("(CASE WHEN (x = 1) THEN timestamp ELSE y END > TIMESTAMP '1970-01-01 00:00:01.5')", ScanBounds()),
        ("(CASE x WHEN 1 THEN timestamp END > TIMESTAMP '1970-01-01 00:00:01.5')", ScanBounds()),
        ("(offset >= ", ScanBounds()),
        ("isnotnull(offset)", ScanBounds()),
        ("(_rw_row.offset >= 7L)", ScanBounds()),
        ("(_rw_row.partition = 3)", ScanBounds()),
    ],
)
def test_conditions_bound_what_is_read(condition: str, bounds: ScanBounds) -> None:
    assert bounds_of([condition]) == bounds


@pytest.mark.parametrize(
    ("zone", "milliseconds"),
    [
        ("UTC", 7_200_000),
        ("Europe/Berlin", 3_600_000),
        ("America/New_York", 25_200_000),
        ("+05:45", -13_500_000),
        ("GMT-03:30", 19_800_000),
        ("Z", 7_200_000),
        ("Nowhere/Town", None),
    ],
)
def test_times_are_read_in_the_zone_that_they_are_written_in(zone: str, milliseconds: int | None) -> None:
    condition = "(timestamp >= TIMESTAMP '1970-01-01 02:00:00')"
    assert bounds_of([condition], zone) == ScanBounds(since_ms=milliseconds)


def test_of_two_moments_at_the_end_of_summer_time_the_earlier_is_a_bound() -> None:
    found = bounds_of(["(timestamp >= TIMESTAMP '2026-10-25 02:30:00')"], "Europe/Berlin")
    assert found == bounds_of(["(timestamp >= TIMESTAMP '2026-10-25 00:30:00')"])


def test_all_conditions_hold_of_one_read_and_any_of_several() -> None:
    one = bounds_of(["offset >= 5", "offset < 20", "partition = 1"])
    other = bounds_of(["offset >= 15", "offset < 30", "partition = 2"])
    assert one == ScanBounds(low=5, high=20, partitions=frozenset({"1"}))
    assert hull([one, other]) == ScanBounds(low=5, high=30, partitions=frozenset({"1", "2"}))
    assert hull([one, ScanBounds()]).is_open
    assert hull([]).is_open


def test_ranges_are_narrowed_to_the_bounds() -> None:
    ranges = {"t:0": (0, 100), "t:1": (50, 60), "t:2": (0, 10)}
    partitions = {"t:0": "0", "t:1": "1", "t:2": "2"}
    bounds = ScanBounds(low=10, high=70, partitions=frozenset({"0", "1"}))
    assert narrowed(ranges, bounds, partitions, {"t:0": 30}) == {"t:0": (30, 70), "t:1": (50, 60)}


numbers = st.integers(0, 12)
comparisons = st.builds(
    lambda kind, number, is_mirrored: (
        f"({number} {kind} offset)" if is_mirrored else f"(offset {kind} {number})",
        lambda at, kind=kind, number=number, is_mirrored=is_mirrored: _holds(
            kind, number if is_mirrored else at, at if is_mirrored else number
        ),
    ),
    st.sampled_from(["=", "<", "<=", ">", ">="]),
    numbers,
    st.booleans(),
)
conditions = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.builds(lambda a, b: (f"({a[0]} AND {b[0]})", lambda at: a[1](at) and b[1](at)), inner, inner),
        st.builds(lambda a, b: (f"({a[0]} OR {b[0]})", lambda at: a[1](at) or b[1](at)), inner, inner),
        st.builds(lambda a: (f"(NOT {a[0]})", lambda at: not a[1](at)), inner),
    ),
    max_leaves=6,
)


def _holds(kind: str, left: int, right: int) -> bool:
    return {"=": left == right, "<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[kind]


@given(conditions)
def test_no_record_that_is_asked_for_is_left_out(condition: tuple[str, object]) -> None:
    text, holds = condition
    bounds = bounds_of([text])
    (kept,) = narrowed({"t:0": (0, 13)}, bounds, {"t:0": "0"}, {}).values() or [(0, 0)]
    assert all(kept[0] <= at < kept[1] for at in range(13) if holds(at))  # type: ignore[operator]


def test_conditions_go_through_projections() -> None:
    outputs = {
        "place": "CAST(offset AS STRING)",
        "part": "CAST(partition AS STRING)",
        "offset": "from_json(value).offset",
    }
    conditions = ["((CAST(s.place AS BIGINT) >= 3L) AND (s.part = '1') AND (s.other = 2))", "(s.offset > 7L)"]
    found = bounds_of(below(conditions, outputs))
    # A column of the records that is called offset is not the record's offset.
    assert found == ScanBounds(low=3, partitions=frozenset({"1"}))
    assert below(["(nobody = 1)", "(broken = "], outputs) == []
