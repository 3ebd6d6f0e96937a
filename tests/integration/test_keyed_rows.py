"""What records come to in a table with a primary key, against a dictionary that takes them one after the other."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import pytest

from rw_sql.metastore.records import IF_NOT_NULL, IGNORE, OVERWRITE
from rw_sql.plan.desired import KeyedRows
from rw_sql.runtime.views.keyed import last_of_each, settled
from rw_sql.syntax.maintained import KEEP

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

COLUMNS = "id INT, part STRING, v INT, w INT, note STRING"
HIDDEN = "_rw_run BIGINT, _rw_batch BIGINT, _rw_split STRING, _rw_offset BIGINT"
Row = tuple[object, ...]
Rows = dict[Row, Row]


def records(draw: random.Random, count: int, *, deletes: bool) -> list[Row]:
    """Records in the order in which a log got them: a run that reads on, and one that reads some of it again."""
    found: list[Row] = []
    for run, batch, split in itertools.product((1, 2), (0, 1), ("t:0", "t:1")):
        for place in range(count):
            offset = batch * count + place
            key = (draw.choice((1, 2, None)), draw.choice(("a", "b")))
            values = tuple(draw.choice((None, 1, 2, 3)) for _ in range(2))
            op = -1 if deletes and draw.random() < 0.25 else 1
            found.append((*key, *values, draw.choice((None, "x", "y")), run, batch, split, offset, op))
    return found


def newer(old: Row, new: Row, places: Iterable[int]) -> bool:
    """RisingWave's comparison of versions: column by column, NULL first, equal is new enough."""
    for at in places:
        one, other = ((value is not None, value or 0) for value in (old[at], new[at]))
        if one != other:
            return one < other
    return True


def replay(rows: Rows, log: Iterable[Row], conflict: str, versions: tuple[int, ...]) -> Rows:
    """The table by the book."""
    then = dict(rows)
    for record in log:
        key, row = record[:2], record[:5]
        old = then.get(key)
        if record[9] == -1:
            then.pop(key, None)
        elif old is None:
            then[key] = row
        elif conflict != IGNORE and newer(old, row, versions):
            then[key] = row
            if conflict == IF_NOT_NULL:
                then[key] = tuple(o if n is None else n for o, n in zip(old, row, strict=True))
    return then


def frame_of(spark: SparkSession, log: list[Row], *, deletes: bool) -> DataFrame:
    shuffled = random.Random(len(log)).sample(log, len(log))
    whole = spark.createDataFrame(shuffled, f"{COLUMNS}, {HIDDEN}, _rw_op BIGINT")
    return whole if deletes else whole.drop("_rw_op")


def applied(rows: Rows, changes: DataFrame) -> Rows:
    """The table after changed rows, each with KEEP. A row that is there already must not be among them."""
    then = dict(rows)
    for *values, is_kept in changes.collect():
        row = tuple(values)
        if is_kept:
            assert then.get(row[:2]) != row
            then[row[:2]] = row
        else:
            del then[row[:2]]
    return then


@pytest.mark.parametrize(
    ("conflict", "versions", "deletes"),
    [
        (OVERWRITE, ("v",), True),
        (OVERWRITE, ("v", "w"), False),
        (IGNORE, (), True),
        (IF_NOT_NULL, (), True),
        (IF_NOT_NULL, ("v", "w"), True),
    ],
)
def test_rows_in_conflict(spark: SparkSession, conflict: str, versions: tuple[str, ...], deletes: bool) -> None:
    rules = KeyedRows(primary_key=("id", "part"), conflict=conflict, version_columns=versions, is_append_only=False)
    places = tuple({"v": 2, "w": 3}[name] for name in versions)
    draw = random.Random(f"{conflict} by {versions}")
    rows = replay({}, records(draw, 1, deletes=False)[:4], conflict, places)
    log = records(draw, 6, deletes=deletes)
    own = spark.createDataFrame(list(rows.values()), COLUMNS)
    expected = replay(rows, log, conflict, places)
    assert expected.keys() - rows.keys(), "some keys are new"
    assert applied(rows, settled(frame_of(spark, log, deletes=deletes), own, rules)) == expected


def test_the_last_record_of_each_key_counts(spark: SparkSession) -> None:
    log = records(random.Random(1), 8, deletes=True)
    expected = replay({}, log, OVERWRITE, ())
    last = last_of_each(frame_of(spark, log, deletes=True), ("id", "part"))
    assert last.columns == ["id", "part", "v", "w", "note", KEEP]
    found = {tuple(row)[:2]: tuple(row)[:5] for row in last.where(KEEP).collect()}
    assert found == expected
    gone = {tuple(row)[:2] for row in last.where(f"NOT {KEEP}").collect()}
    assert gone == {record[:2] for record in log} - expected.keys()
