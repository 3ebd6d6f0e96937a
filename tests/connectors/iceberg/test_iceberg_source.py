"""The Iceberg source without Spark: offsets, appended rows, snapshots that change rows or are gone, and types."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.iceberg import history, reader
from rw_sql.connectors.iceberg.source import SKIP_CHANGES, IcebergConnector
from rw_sql.errors import UPSTREAM_MISSING, SqlError
from tests.connectors.iceberg.lake import COLUMNS, NAME, Lake

if TYPE_CHECKING:
    from pathlib import Path

ICEBERG = IcebergConnector()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(folder=tmp_path)
    made.create()
    return made


def at(offset: int, incarnation: str | None = None) -> dict[str, SplitState]:
    return {NAME: SplitState(split=NAME, offset=offset, incarnation=incarnation)}


def stretches(lake: Lake, offset: int, **more: str) -> list[tuple[int, int, bool]]:
    found = ICEBERG.stretches({**lake.options, **more}, at(offset))
    return [(left.start, left.end, left.is_whole) for left in found]


def read(parts: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The rows of parts, as another process reads them: from the table's files alone."""
    tables = [found for part in parts for found in reader.IcebergPartReader().read({}, part)]
    return sorted(tuple(row.values()) for table in tables for row in table.to_pylist())


def appended(lake: Lake, start: int, end: int) -> list[tuple[Any, ...]]:
    table = lake.table()
    found = [each for each in history.snapshots(table, start, end) if each.operation == history.APPEND]
    parts, count = reader.appended(table, found, ["id", "word"])
    rows = read(parts)
    assert len(rows) == count
    return rows


def test_the_columns_of_a_missing_table_are_an_error_of_their_own(lake: Lake) -> None:
    assert list(ICEBERG.columns(lake.options)) == ["id", "word"]
    with pytest.raises(SqlError, match="there is no Iceberg table") as caught:
        ICEBERG.columns({**lake.options, "table.name": "other"})
    assert caught.value.code == UPSTREAM_MISSING.code


def test_offsets_are_sequence_numbers(lake: Lake) -> None:
    ICEBERG.check_options(lake.options)
    split = ICEBERG.look(lake.options).splits[NAME]
    assert (split.start, split.end) == (0, 0)
    assert stretches(lake, 0) == []
    lake.append((1, "a"), (2, "b"))
    lake.append((3, "c"))
    seen = ICEBERG.look(lake.options).splits[NAME]
    assert (seen.start, seen.end, seen.incarnation) == (0, 3, str(lake.table().metadata.table_uuid))
    assert seen.incarnation == split.incarnation
    # The first read is the table as it is, and no position lies within it.
    assert stretches(lake, 0) == [(0, 3, True)]
    assert stretches(lake, 2) == [(2, 3, False)]
    assert stretches(lake, 3) == []
    assert appended(lake, 1, 3) == [(1, 1, "a"), (1, 2, "b"), (2, 3, "c")]
    assert appended(lake, 2, 3) == [(2, 3, "c")]
    whole, count = reader.whole_table(lake.table(), 2, ["word", "ID"])
    assert count == 2
    assert sorted(table.column_names for part in whole for table in reader.read_files(lake.table(), part)) == [
        ["_rw_offset", "id", "word"]
    ]
    assert read(whole) == [(0, 1, "a"), (0, 2, "b")]


def test_snapshots_that_change_rows(lake: Lake) -> None:
    for number in range(3):
        lake.append((number, "a"))
    lake.table().delete("id = 1")  # 4
    lake.append((4, "d"))  # 5
    assert stretches(lake, 2) == [(2, 4, False)]
    with pytest.raises(SqlError) as refused:
        stretches(lake, 4)
    assert f"snapshot 4 of {NAME} changes existing rows (delete)" in refused.value.render()
    assert f"INJECT SOURCE OFFSETS … VALUES ('{NAME}' = 5)" in refused.value.render()
    assert stretches(lake, 5) == [(5, 6, False)]
    assert stretches(lake, 2, **{SKIP_CHANGES: "true"}) == [(2, 6, False)]
    assert appended(lake, 3, 6) == [(3, 2, "a"), (5, 4, "d")]
    # As the table is: without the deleted row.
    assert read(reader.whole_table(lake.table(), 6, ["id"])[0]) == [(0, 0), (0, 2), (0, 4)]


def test_manifests_have_the_numbers_of_rows(lake: Lake) -> None:
    for rows in (3, 2, 4):
        lake.append(*((number, "a") for number in range(rows)))
    assert ICEBERG.logged_records(lake.options, {NAME: (0, 4)}) == 9
    assert ICEBERG.logged_records(lake.options, {NAME: (0, 2)}) == 3
    assert ICEBERG.logged_records(lake.options, {NAME: (1, 4)}) == 9
    assert ICEBERG.logged_records(lake.options, {NAME: (2, 3)}) == 2
    assert ICEBERG.logged_records(lake.options, {}) is None
    lake.table().delete("id = 1")  # 4
    lake.append((9, "b"))  # 5
    assert ICEBERG.logged_records({**lake.options, SKIP_CHANGES: "true"}, {NAME: (3, 6)}) == 5
    assert ICEBERG.logged_records(lake.options, {NAME: (0, 6)}) == 7
    with pytest.raises(SqlError, match="changes existing rows"):
        ICEBERG.logged_records(lake.options, {NAME: (3, 6)})


def test_snapshots_that_were_expired(lake: Lake) -> None:
    for number in range(5):
        lake.append((number, "a"))
    ids = {snapshot.sequence_number: snapshot.snapshot_id for snapshot in lake.table().snapshots()}
    lake.table().maintenance.expire_snapshots().by_ids([ids[1], ids[2]]).commit()
    with pytest.raises(SqlError) as lost:
        stretches(lake, 2)
    said = lost.value.render()
    assert f"EXPIRED {NAME}: the position is sequence number 2, but the snapshots before 3 have expired" in said
    # What was read before is not missed.
    assert stretches(lake, 3) == [(3, 6, False)]
    assert appended(lake, 3, 5) == [(3, 2, "a"), (4, 3, "a")]
    assert ICEBERG.record_times(lake.options, {NAME: 2}) == {}


def test_a_table_that_was_rolled_back(lake: Lake) -> None:
    for number in range(3):
        lake.append((number, "a"))
    table = lake.table()
    second = next(each.snapshot_id for each in table.snapshots() if each.sequence_number == 2)
    table.manage_snapshots().rollback_to_snapshot(second).commit()
    for _ in range(2):
        with pytest.raises(SqlError, match=f"snapshot 3 of {NAME} was read and then rolled back"):
            stretches(lake, 4)
        assert stretches(lake, 3) == ([(3, 5, False)] if ICEBERG.look(lake.options).splits[NAME].end == 5 else [])
        # The next snapshot has the next number, so that the position is within bounds again.
        lake.append((9, "b"))


def test_another_branch_has_offsets_without_rows(lake: Lake) -> None:
    lake.append((1, "a"))
    table = lake.table()
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()  # type: ignore[union-attr]
    lake.table().append(pa.Table.from_pylist([{"id": 9, "word": "x"}], COLUMNS), branch="audit")  # 2
    assert stretches(lake, 2) == []
    lake.append((3, "c"))
    assert stretches(lake, 2) == [(2, 4, False)]
    assert appended(lake, 2, 4) == [(3, 3, "c")]


def test_an_older_state_of_the_table_is_not_the_range(lake: Lake) -> None:
    """Another server of a catalog may answer with a state from before the snapshots of the range."""
    lake.append((1, "a"))
    nothing: Any = None  # The check comes before Spark.
    for start in (0, 1, 2):
        with pytest.raises(OSError, match=f"returns table {NAME} at offset 2, but returned it at offset 3 before"):
            ICEBERG.read_batch(nothing, lake.options, {NAME: (start, 3)}, columns={"id": "bigint"})


def test_a_table_created_again_or_gone(lake: Lake) -> None:
    lake.append((1, "a"))
    before = ICEBERG.look(lake.options).splits[NAME].incarnation
    lake.catalog().drop_table(NAME)
    told = ICEBERG.look(lake.options)
    assert (told.part, told.missing) == ("table", (NAME,))
    lake.create()
    lake.append((2, "b"))
    with pytest.raises(OSError, match=f"RECREATED {NAME}"):
        ICEBERG.stretches(lake.options, at(1, before))


def test_what_cannot_be_reached_is_reported_without_secrets(tmp_path: Path) -> None:
    given = {
        "catalog.type": "jdbc",
        "catalog.uri": "jdbc:postgresql://127.0.0.1:1/lake",
        "catalog.jdbc.user": "ann",
        "catalog.jdbc.password": "s3 cret",
        "warehouse.path": "file:///none",
        "table.name": "db.orders",
    }
    ICEBERG.check_options(given)
    error = ICEBERG.look(given).error
    assert error is not None
    assert "127.0.0.1" in error
    assert "s3" not in error
    rest = {"catalog.type": "rest", "catalog.uri": "http://127.0.0.1:1", "table.name": "db.orders"}
    ICEBERG.check_options(rest)
    assert "http://127.0.0.1:1" in str(ICEBERG.look(rest).error)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"catalog.uri": "http://h"}, "must begin with jdbc:postgresql: or jdbc:sqlite:"),
        ({"catalog.type": "rest"}, "must begin with http"),
        ({"catalog.token": "t"}, "\"catalog.token\" has no meaning with catalog.type = 'jdbc'"),
        ({"warehouse.path": None}, 'missing property "warehouse.path"'),
        ({"catalog.type": "glue"}, "must be rest or jdbc"),
    ],
)
def test_options_that_do_not_fit(lake: Lake, change: dict[str, str | None], message: str) -> None:
    changed = {key: value for key, value in {**lake.options, **change}.items() if value is not None}
    with pytest.raises(SqlError, match=message):
        ICEBERG.check_options(changed)


def test_times(lake: Lake) -> None:
    lake.append((1, "a"))
    lake.append((2, "b"))
    first, second = (snapshot.timestamp_ms for snapshot in lake.table().snapshots())
    assert ICEBERG.offsets_at(lake.options, 0, [NAME]) == {NAME: 1}
    assert ICEBERG.offsets_at(lake.options, second, [NAME])[NAME] in (1, 2)
    assert ICEBERG.offsets_at(lake.options, second + 1, [NAME]) == {NAME: 3}
    assert ICEBERG.record_times(lake.options, {NAME: 1}) == {NAME: first}


def test_a_time_before_the_oldest_kept_snapshot_is_refused(lake: Lake) -> None:
    for number in range(3):
        lake.append((number, "a"))
    kept = {snapshot.sequence_number: snapshot for snapshot in lake.table().snapshots()}
    lake.table().maintenance.expire_snapshots().by_ids([kept[1].snapshot_id]).commit()
    second = kept[2].timestamp_ms
    with pytest.raises(SqlError) as lost:
        ICEBERG.offsets_at(lake.options, second - 1, [NAME])
    said = lost.value.render()
    assert f"{NAME} no longer has all snapshots since that time: " in said
    assert "its oldest snapshot has the sequence number 2 and was committed at " in said
    assert f"INJECT SOURCE OFFSETS SOURCE_NAME VALUES ('{NAME}' = 0) ALLOW DUPLICATES reads all rows" in said
    assert f"VALUES ('{NAME}' = 2)" in said
    assert ICEBERG.offsets_at(lake.options, second, [NAME]) == {NAME: 2}
    assert ICEBERG.offsets_at(lake.options, kept[3].timestamp_ms + 1, [NAME]) == {NAME: 4}


def test_a_schema_that_has_grown(lake: Lake) -> None:
    lake.append((1, "a"))
    with lake.table().update_schema() as update:
        from pyiceberg.types import DoubleType

        update.add_column("more", DoubleType())
        update.rename_column("word", "name")
    grown = pa.schema([("id", pa.int64()), ("name", pa.string()), ("more", pa.float64())])
    lake.table().append(pa.Table.from_pylist([{"id": 2, "name": "b", "more": 0.5}], grown))
    table = lake.table()
    parts, _ = reader.appended(table, history.snapshots(table, 1, 3), ["id", "name", "more"])
    found = [
        tuple(row.values()) for part in parts for each in reader.read_files(table, part) for row in each.to_pylist()
    ]
    # By field ids: the renamed column has its old values.
    assert sorted(found) == [(1, 1, "a", None), (2, 2, "b", 0.5)]


def test_types(tmp_path: Path) -> None:
    lake = Lake(folder=tmp_path)
    moment = datetime.datetime(2026, 1, 31, 8, 0, 0, 5, tzinfo=datetime.UTC)
    one = uuid.UUID(int=7)
    values: dict[str, tuple[pa.DataType, Any, Any]] = {
        "b": (pa.bool_(), True, True),
        "i": (pa.int32(), -1, -1),
        "f": (pa.float32(), 0.5, 0.5),
        "d": (pa.decimal128(38, 9), Decimal("1.500000000"), Decimal("1.500000000")),
        "day": (pa.date32(), moment.date(), moment.date()),
        "clock": (pa.time64("us"), datetime.time(1, 2, 3), "01:02:03.000000"),
        "bare": (pa.timestamp("us"), moment.replace(tzinfo=None), moment.replace(tzinfo=None)),
        "zoned": (pa.timestamp("us", tz="UTC"), moment, moment),
        "id": (pa.uuid(), one, str(one)),
        "raw": (pa.binary(), b"\x00", b"\x00"),
        "fixed": (pa.binary(2), b"ab", b"ab"),
        "ids": (pa.list_(pa.uuid()), [one], [str(one)]),
        "inner": (pa.struct([("a", pa.int64()), ("t", pa.string())]), {"a": 1, "t": "x"}, {"a": 1, "t": "x"}),
        "by": (pa.map_(pa.string(), pa.int64()), [("k", 1)], [("k", 1)]),
    }
    schema = pa.schema([(name, kind) for name, (kind, _, _) in values.items()])
    table = lake.create(schema)

    def stored(kind: pa.DataType, value: Any) -> pa.Array[Any]:
        if kind == pa.uuid():
            return pa.array([value.bytes, None], kind)
        if kind == pa.list_(pa.uuid()):
            return pa.ListArray.from_arrays([0, 1, 1], stored(pa.uuid(), value[0]).slice(0, 1))
        return pa.array([value, None], kind)

    table.append(pa.table([stored(kind, value) for kind, value, _ in values.values()], schema=schema))
    table = lake.table()
    parts, _ = reader.whole_table(table, 2, list(values))
    (found,) = [each for part in parts for each in reader.read_files(table, part)]
    from pyspark.sql.pandas.types import from_arrow_schema

    from_arrow_schema(found.schema)  # Spark has a type for each.
    row, empty = found.to_pylist()
    assert {name: row[name] for name in values} == {name: wanted for name, (_, _, wanted) in values.items()}
    assert {name for name in values if empty[name]} <= {"ids"}


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"ID": "BIGINT", "word": "STRING"}, None),
        ({"id": "DECIMAL(19,0)"}, None),
        ({"wrod": "STRING"}, f'table {NAME} has no column "wrod"'),
        ({"id": "INT"}, f'column "id" of table {NAME} is BIGINT'),
        ({"id": "STRING"}, f'column "id" of table {NAME} is BIGINT'),
        ({"id": "DECIMAL(18,0)"}, f'column "id" of table {NAME} is BIGINT'),
        ({"word": "BINARY"}, f'column "word" of table {NAME} is STRING'),
    ],
)
def test_declared_columns_are_compared(lake: Lake, declared: dict[str, str], message: str | None) -> None:
    misfit = ICEBERG.column_misfit(lake.options, declared)
    assert (misfit.message if misfit is not None else None) == message
    assert ICEBERG.column_misfit({**lake.options, "table.name": "none"}, declared) is None
