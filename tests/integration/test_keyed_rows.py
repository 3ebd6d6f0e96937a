"""The rows that records give in a table with a primary key, compared with a dictionary that applies them one after the
other."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.metastore.records import IF_NOT_NULL, IGNORE, OVERWRITE
from rw_sql.model.job_specs import KeyedRows
from rw_sql.runtime.views.keyed import settled
from rw_sql.runtime.views.last_records import is_exact, last_of_each, last_rows
from rw_sql.runtime.views.unchanged import settled_moves, with_unknown
from rw_sql.syntax.query.maintained_form import KEEP

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

COLUMNS = "id INT, part STRING, v INT, w INT, note STRING"
HIDDEN = "_rw_run BIGINT, _rw_batch BIGINT, _rw_split STRING, _rw_offset BIGINT"
Row = tuple[object, ...]
Rows = dict[Row, Row]


def records(draw: random.Random, count: int, *, deletes: bool) -> list[Row]:
    """Records in the order of a log: from a run that continues, and from a run that reads some of them again."""
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
    """The table by definition: the records of the log are applied one by one to the rows of their keys."""
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
    """The table after changed rows, each with KEEP. A row that the table already has must not be among them."""
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


@pytest.mark.parametrize("deletes", [True, False])
@pytest.mark.parametrize("key", [("id", "part"), ("note",), ("part", "v", "w")])
def test_a_small_batch_has_the_same_last_records(spark: SparkSession, key: tuple[str, ...], deletes: bool) -> None:
    frame = frame_of(spark, records(random.Random(2), 8, deletes=deletes), deletes=deletes)
    more = ("_rw_op",) if deletes else ()
    assert is_exact(frame, key)
    wanted, found = last_of_each(frame, key, more).toArrow(), last_rows(frame, key, more, is_exact=True)
    assert found.schema == wanted.schema
    by_text = {str(row) for row in wanted.to_pylist()}
    assert len(by_text) == wanted.num_rows == found.num_rows
    assert {str(row) for row in found.to_pylist()} == by_text


def test_the_last_records_by_a_key_of_floats(spark: SparkSession) -> None:
    log = [(key, number, 1, 0, "t:0", number) for number, key in enumerate((0.0, -0.0, float("nan"), float("nan")))]
    frame = spark.createDataFrame(log, f"id DOUBLE, v INT, {HIDDEN}")
    assert not is_exact(frame, ("id",))
    assert sorted(last_rows(frame, ("id",), is_exact=False)["v"].to_pylist()) == [1, 3]


def test_the_last_records_of_logs_without_batches(spark: SparkSession) -> None:
    log = [(1, 1, 1, None, "t:0", 7), (1, 2, 1, 0, "t:0", 3), (1, 3, 1, None, "t:0", 9)]
    frame = spark.createDataFrame(log, f"id INT, v INT, {HIDDEN}")
    found = last_rows(frame, ("id",), is_exact=True)["v"].to_pylist()
    assert found == last_of_each(frame, ("id",)).toArrow()["v"].to_pylist() == [2]


UNCHANGED_COLUMNS = "id INT, v INT, note STRING, doc STRUCT<a: INT, b: STRING>"
PATHS = (("id", "id"), ("v", "v"), ("note", "note"), ("doc", "doc"))
Told = tuple[dict[str, object], frozenset[str]]


def unchanged_records(draw: random.Random, count: int, *, moves: bool) -> list[Row]:
    """Records of which most leave values out, some delete, and some give a row another key."""
    found: list[Row] = []
    for offset in range(count):
        word, key = draw.random(), draw.randint(1, 6)
        place = (1, 0, "t:0", offset)
        if word < 0.15:
            found.append((key, None, None, None, *place, -1, None))
            continue
        paths = [path for path in ("v", "note", "doc", "doc.a", "doc.b") if draw.random() < 0.4]
        paths = [path for path in paths if not (path.startswith("doc.") and "doc" in paths)]
        doc = (
            None
            if "doc" in paths
            else (None if "doc.a" in paths else offset, None if "doc.b" in paths else f"b{offset}")
        )
        values = (None if "v" in paths else offset, None if "note" in paths else f"n{offset}", doc)
        if moves and word < 0.5 and paths:
            found.append(
                (draw.choice([other for other in range(1, 7) if other != key]), None, None, None, *place, -1, None)
            )
            paths = [*paths, ""]
        found.append((key, *values, *place, 1, paths or None))
    return found


def replayed_unchanged(log: Iterable[Row]) -> dict[object, Told]:
    """The table by definition: each record takes its omitted values from the existing row."""
    then: dict[object, Told] = {}
    gone: tuple[object, Told | None] = (None, None)
    for key, v, note, doc, *_, offset, op, paths in log:
        if op == -1:
            gone = (offset, then.pop(key, None))
            continue
        marks = set(paths or ()) - {""}  # type: ignore[call-overload]
        base = gone[1] if "" in (paths or ()) else then.get(key)  # type: ignore[operator]
        assert "" not in (paths or ()) or gone[0] == offset  # type: ignore[operator]
        then.pop(key, None)
        row: dict[str, object] = {"v": v, "note": note}
        row |= {"doc": None} if doc is None else {"doc.a": doc[0], "doc.b": doc[1]}  # type: ignore[index]
        old, unknown = base if base is not None else ({}, frozenset(marks))
        for mark in marks:
            for path in [p for p in row if p == mark or p.startswith(mark + ".")]:
                del row[path]
            row |= {p: value for p, value in old.items() if p == mark or p.startswith(mark + ".")}
        if "doc.a" in row or "doc.b" in row:
            row.pop("doc", None)
        covered = {p for p in unknown if any(p == mark or p.startswith(mark + ".") for mark in marks)}
        covered |= {mark for mark in marks if any(mark == p or mark.startswith(p + ".") for p in unknown)}
        then[key] = (row, frozenset(covered))
    return then


def as_told(row: dict[str, Any]) -> Told:
    flat: dict[str, object] = {"v": row["v"], "note": row["note"]}
    doc = row["doc"]
    flat |= {} if doc is None else {"doc.a": doc["a"], "doc.b": doc["b"]}
    return {name: value for name, value in flat.items() if value is not None}, frozenset(row["_rw_unknown"] or ())


@pytest.mark.long
@pytest.mark.parametrize("moves", [False, True])
def test_what_did_not_change_stays(spark: SparkSession, moves: bool) -> None:
    rules = KeyedRows(primary_key=("id",), conflict=OVERWRITE, version_columns=(), is_append_only=False, paths=PATHS)
    draw = random.Random(f"unchanged {moves}")
    log = unchanged_records(draw, 120, moves=moves)
    schema = f"{UNCHANGED_COLUMNS}, {HIDDEN}, _rw_op BIGINT, _rw_unchanged ARRAY<STRING>"
    table: dict[object, dict[str, Any]] = {}
    # Two batches: the second begins with the rows that the first left.
    for batch in (log[:60], log[60:]):
        frame = with_unknown(spark.createDataFrame(random.Random(1).sample(batch, len(batch)), schema))
        own = spark.createDataFrame(
            [tuple(row.values()) for row in table.values()], f"{UNCHANGED_COLUMNS}, _rw_unknown ARRAY<STRING>"
        )
        moved = settled_moves(frame, own, rules)
        assert (moved is not None) == moves
        for row in (settled(frame, own, rules) if moved is None else moved).collect():
            values = row.asDict(recursive=True)
            if values.pop(KEEP):
                assert table.get(row.id) != values
                table[row.id] = values
            else:
                del table[row.id]
    expected = replayed_unchanged(log)
    assert any(unknown for _, unknown in expected.values()), "some values were never told"
    assert {key: as_told(row) for key, row in table.items()} == {
        key: ({name: value for name, value in row.items() if value is not None}, unknown)
        for key, (row, unknown) in expected.items()
    }
