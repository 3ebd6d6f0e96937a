"""The Iceberg sink's writer writes each batch once, whichever process has written it before and whatever others
commit."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations, product
from math import inf, nan
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rw_sql.connectors.iceberg import catalog
from rw_sql.connectors.iceberg.sink import IcebergSink
from rw_sql.connectors.sink import (
    DELETE,
    OP,
    UPDATE,
    RefusedRowsError,
    SinkError,
    SinkLook,
    SinkShape,
    TargetUnfitError,
)
from tests.connectors.iceberg.lake import NAME, Lake
from tests.support.sink_batches import ARROW, batch, shape

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rw_sql.connectors.iceberg.sink import IcebergWriter

WORDS = ARROW.remove(2)
MADE = {"create_table_if_not_exists": "true"}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(folder=tmp_path)


def opened(
    lake: Lake, of: SinkShape, run: int, *, identity: str = "me", generation: int = 1
) -> tuple[IcebergWriter, int]:
    writer = IcebergSink().open({**lake.options, **MADE}, of, identity)
    done = writer.fence(run, generation)
    return writer, done


def test_a_later_run_knows_what_is_there_and_an_earlier_one_is_kept_out(lake: Lake) -> None:
    first, done = opened(lake, shape(), 1)
    assert done == -1
    first.write(batch((1, "a")), 0)
    first.write(batch((2, "b")), 3)
    second, done = opened(lake, shape(), 2)
    assert done == 3
    with pytest.raises(SinkError, match="run 2 has taken over from run 1"):
        first.write(batch((3, "late")), 4)
    second.write(batch((3, "c")), 4)
    with pytest.raises(SinkError, match="batch 4 is already in the table"):
        second.write(batch((3, "c")), 4)
    with pytest.raises(SinkError, match="run 2 has taken over"):
        opened(lake, shape(), 1)
    assert lake.rows() == [(1, "a"), (2, "b"), (3, "c")]
    summary = lake.table().current_snapshot().summary  # type: ignore[union-attr]
    assert summary is not None
    assert (summary["rw_sql.sink"], summary["rw_sql.run"], summary["rw_sql.batch"]) == ("me", "2", "4")


def test_a_part_of_a_batch_does_not_count_as_the_batch(lake: Lake) -> None:
    writer, _ = opened(lake, shape("upsert", "id"), 1)
    writer.write(batch((1, "a"), (2, "b")), 0)
    writer.write_part(batch((1, "a", DELETE), (3, "c")), 1)
    assert lake.rows() == [(2, "b"), (3, "c")]
    # A kill follows, and the next run divides the batch in another way.
    again, done = opened(lake, shape("upsert", "id"), 2)
    assert done == 0
    with pytest.raises(SinkError, match="run 2 has taken over"):
        writer.write_part(batch((4, "late")), 1)
    again.write_part(batch((1, "a", DELETE)), 1)
    again.write_part(batch((2, "e", UPDATE)), 1)
    again.write(batch((3, "c")), 1)
    assert lake.rows() == [(2, "e"), (3, "c")]
    assert opened(lake, shape("upsert", "id"), 3)[1] == 1


def test_a_table_that_was_made_anew_is_not_written(lake: Lake) -> None:
    sink, options = IcebergSink(), {**lake.options, **MADE}
    assert sink.marked_batch(options, "me", 1) is None
    writer, _ = opened(lake, shape(), 1)
    writer.write(batch((1, "a")), 0)
    assert sink.marked_batch(options, "me", 1) is not None
    assert sink.marked_batch(options, "other", 1) is None
    catalog.open_catalog(sink.spec, options).drop_table(NAME)
    with pytest.raises(SinkError):
        writer.write(batch((2, "b")), 1)
    assert sink.marked_batch(options, "me", 1) is None
    opened(lake, shape(), 1, identity="other")
    with pytest.raises(TargetUnfitError):
        writer.write(batch((2, "b")), 1)
    assert sink.marked_batch(options, "me", 1) is None
    assert lake.rows() == []


@pytest.mark.parametrize("runs", [(1,), (1, 2)], ids=["of this run", "of an earlier run"])
def test_an_older_copy_of_the_table_is_not_written(lake: Lake, runs: tuple[int, ...]) -> None:
    sink, options = IcebergSink(), {**lake.options, **MADE}
    writer, _ = opened(lake, shape(), 1)
    assert sink.marked_batch(options, "me", 1) == -1
    writer.write(batch((1, "a")), 0)
    older = lake.table().metadata_location
    for run in runs[1:]:
        writer, _ = opened(lake, shape(), run)
    writer.write(batch((2, "b")), 1)
    assert (sink.marked_batch(options, "me", 1), sink.marked_batch(options, "me", 2)) == (1, -1)
    made = catalog.open_catalog(sink.spec, options)
    made.drop_table(NAME)
    made.register_table(NAME, older)
    with pytest.raises(TargetUnfitError, match="older copy"):
        writer.write(batch((3, "c")), 2)
    assert sink.marked_batch(options, "me", 1) == 0
    assert lake.rows() == [(1, "a")]


def test_a_commit_under_way_when_another_run_takes_over_fails(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = opened(lake, shape(), 1)
    first.write(batch((1, "a")), 0)
    checked = first._forbid_retries
    fenced: list[IcebergWriter] = []

    def take_over() -> None:
        """The other run begins after the first one has seen the table, and before it commits."""
        checked()
        if not fenced:
            marks = first._marks()
            fenced.append(opened(lake, shape(), 2)[0])
            monkeypatch.setattr(first, "_marks", lambda: marks)

    monkeypatch.setattr(first, "_forbid_retries", take_over)
    refreshed = type(first._table).refresh

    def refresh(table: Any) -> Any:
        """After the conflict the first run sees what the other one wrote."""
        if fenced:
            monkeypatch.undo()
        return refreshed(table)

    monkeypatch.setattr(type(first._table), "refresh", refresh)
    with pytest.raises(SinkError, match="run 2 has taken over from run 1"):
        first.write(batch((2, "late")), 1)
    assert lake.rows() == [(1, "a")]


def test_sinks_and_generations_do_not_know_of_each_other(lake: Lake) -> None:
    one, _ = opened(lake, shape(), 1, identity="one")
    one.write(batch((1, "a")), 7)
    other, done = opened(lake, shape(), 1, identity="other")
    assert done == -1
    other.write(batch((2, "b")), 0)
    one.write(batch((3, "c")), 8)
    assert opened(lake, shape(), 2, identity="one", generation=2)[1] == -1
    assert lake.rows() == [(1, "a"), (2, "b"), (3, "c")]


def test_the_marks_outlive_the_snapshots(lake: Lake) -> None:
    writer, _ = opened(lake, shape(), 1)
    writer.write(batch((1, "a")), 5)
    table = lake.table()
    table.append(pa.Table.from_pylist([{"id": 9, "word": "theirs"}], WORDS))
    old = [snapshot.snapshot_id for snapshot in lake.table().snapshots()][:-1]
    lake.table().maintenance.expire_snapshots().by_ids(old).commit()
    assert opened(lake, shape(), 2)[1] == 5


def test_a_commit_of_somebody_else_in_between_is_no_obstacle(lake: Lake) -> None:
    writer, _ = opened(lake, shape("upsert", "id"), 1)
    lake.table().append(pa.Table.from_pylist([{"id": 9, "word": "theirs"}], WORDS))
    writer.write(batch((1, "a"), (2, "b"), (1, "c", UPDATE)), 0)
    writer.write(batch((2, "b", DELETE), (9, "ours", UPDATE), (4, "gone", DELETE)), 1)
    assert lake.rows() == [(1, "c"), (9, "ours")]


def test_keys_of_two_columns_and_nulls(lake: Lake) -> None:
    writer, _ = opened(lake, shape("upsert", "id", "word"), 1)
    writer.write(batch((1, "a"), (1, None), (None, "a")), 0)
    writer.write(batch((1, "a"), (1, None, DELETE), (None, "a")), 1)
    assert lake.rows() == [(1, "a"), (None, "a")]


@pytest.mark.parametrize("kind", [pa.int32(), pa.float32(), pa.float64()], ids=str)
def test_rows_whose_keys_are_not_in_the_batch_stay(lake: Lake, kind: pa.DataType) -> None:
    """Every set of two keys of two columns deletes the rows with these keys, and no other row."""
    name = {"int32": "integer", "float": "float", "double": "double"}[str(kind)]
    of = replace(shape("upsert", "id", "word"), schema=shape().schema.replace('"integer"', f'"{name}"'))
    arrow = ARROW.set(0, pa.field("id", kind))
    numbers = [None, 1, 2] if name == "integer" else [None, 1.0, inf, -inf, nan]
    keys = list(product(numbers, (None, "a", "b")))
    writer, _ = opened(lake, of, 1)

    def write(pairs: Sequence[tuple[Any, str | None]], op: str, number: int) -> None:
        writer.write(pa.Table.from_pylist([{"id": id_, "word": word, OP: op} for id_, word in pairs], arrow), number)

    write(keys, UPDATE, 0)
    for number, gone in enumerate(Random(1).sample(sorted(combinations(keys, 2), key=str), 12)):
        write(gone, DELETE, 2 * number + 1)
        assert sorted(map(str, lake.rows())) == sorted(str(key) for key in keys if key not in gone), gone
        write(gone, UPDATE, 2 * number + 2)


@pytest.mark.parametrize("kind", ["float", "double"])
def test_keys_that_are_numbers_with_a_point(lake: Lake, kind: str) -> None:
    of = replace(shape("upsert", "id"), schema=shape().schema.replace('"integer"', f'"{kind}"'))
    arrow = ARROW.set(0, pa.field("id", pa.float32() if kind == "float" else pa.float64()))
    numbers = [0.0, -1.5, 3.4028234663852886e38, -3.4028234663852886e38, inf, -inf, nan, None]
    writer, _ = opened(lake, of, 1)
    for at, word in enumerate("ab"):
        rows = [{"id": number, "word": word, OP: UPDATE} for number in numbers]
        writer.write(pa.Table.from_pylist(rows, arrow), at)
    assert list(map(str, lake.rows())) == sorted(str((number, "b")) for number in numbers)
    writer.write(pa.Table.from_pylist([{"id": inf, "word": None, OP: DELETE}], arrow), 2)
    assert sorted(str(id_) for id_, _ in lake.rows()) == sorted(str(number) for number in numbers if number != inf)


def test_many_keys_at_once(lake: Lake) -> None:
    for number, keys in enumerate((("id",), ("id", "word"))):
        writer, _ = opened(lake, shape("upsert", *keys), number + 1, identity=f"k{number}")
        rows = [(id_, "w") for id_ in range(500)]
        writer.write(batch(*rows), 0)
        writer.write(batch(*((id_, "w", DELETE) for id_, _ in rows)), 1)
        assert lake.rows() == []


def test_a_null_that_the_table_does_not_take(lake: Lake) -> None:
    lake.create(pa.schema([pa.field("id", pa.int32(), nullable=False), ("word", pa.string())]))
    writer, _ = opened(lake, shape(), 1)
    with pytest.raises(RefusedRowsError) as refused:
        writer.write(batch((1, "a"), (None, "b"), (None, "c", DELETE), (3, None)), 0)
    assert [(each.index, each.column, each.reason) for each in refused.value.refusals] == [
        (1, "id", "the table does not allow NULL")
    ]
    writer.write(batch((1, "a"), (3, None)), 0)
    assert lake.rows() == [(1, "a"), (3, None)]


def test_nothing_is_written_after_a_cancel(lake: Lake) -> None:
    writer, _ = opened(lake, shape(), 1)
    writer.cancel()
    with pytest.raises(SinkError, match="stopped"):
        writer.write(batch((1, "a")), 0)
    assert lake.rows() == []


def test_the_look_writes_nothing_and_tells_what_does_not_fit(lake: Lake) -> None:
    sink = IcebergSink()
    # The catalog of a database without tables.
    assert sink.look({**lake.options, **MADE}, shape()) == SinkLook()
    assert sink.look(lake.options, shape()).missing == f'table "{NAME}"'
    lake.catalog().create_namespace("db")
    missing = sink.look(lake.options, shape())
    assert (missing.missing, missing.hint) == (
        f'table "{NAME}"',
        "create it, or set create_table_if_not_exists = 'true'",
    )
    assert sink.look({**lake.options, **MADE}, shape()) == SinkLook()
    assert lake.catalog().list_tables("db") == []
    lake.create(WORDS)
    assert sink.look(lake.options, shape()) == SinkLook()
    lake.catalog().drop_table(NAME)
    lake.create(pa.schema([("id", pa.int64()), ("word", pa.string())]))
    assert sink.look(lake.options, shape()).misfit == f'column "id" of table {NAME} is int64, not int32'
    lake.catalog().drop_table(NAME)
    lake.create(pa.schema([("id", pa.int32())]))
    assert sink.look(lake.options, shape()).misfit == f'table {NAME} has no column "word"'
    lake.catalog().drop_table(NAME)
    lake.create(pa.schema([*WORDS, pa.field("must", pa.int32(), nullable=False)]))
    assert sink.look(lake.options, shape()).misfit == f'column "must" of table {NAME} does not allow NULL'


def test_a_table_that_is_gone_or_has_changed(lake: Lake) -> None:
    writer, _ = opened(lake, shape(), 1)
    with lake.table().update_schema() as update:
        update.delete_column("word")
    with pytest.raises(SinkError, match="word"):
        writer.write(batch((1, "a")), 0)
    lake.catalog().drop_table(NAME)
    with pytest.raises(SinkError, match="does not exist"):
        writer.write(batch((1, "a")), 0)


DATED = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (("id", "integer"), ("a day", "date"), ("at", "timestamp"), ("word", "string"))
        ],
    }
)


def dated(*ids: int, op: str = UPDATE) -> pa.Table:
    """Rows with values for which Python has no equivalent where the id is even."""
    is_far = [id_ % 2 == 0 for id_ in ids]
    return pa.table(
        {
            "id": pa.array(ids, pa.int32()),
            "a day": pa.array([3_000_000 if far else 19_000 for far in is_far], pa.int32()).cast(pa.date32()),
            "at": pa.array([-(10**17) if far else 10**15 for far in is_far]).cast(pa.timestamp("us", "UTC")),
            "word": pa.array([b"\xff" if far else b"a" for far in is_far]).view(pa.string()),
            OP: [op] * len(ids),
        }
    )


def with_ids(rows: pa.Table, *ids: int) -> pa.Table:
    return rows.set_column(0, "id", pa.array(ids, pa.int32()))


def lake_rows(lake: Lake) -> pa.Table:
    return lake.table().scan().to_arrow().sort_by("id").cast(dated(1).schema.remove(4))


def test_values_for_which_python_has_no_value_are_written(lake: Lake) -> None:
    writer, _ = opened(lake, SinkShape(name="k", type="append-only", schema=DATED), 1)
    bounded = []
    for number, rows in enumerate((dated(1, 2), dated(4), dated(3, 5), dated(7, 8))):
        writer.write(rows, number)
        (task,) = (each for each in lake.table().scan().plan_files() if each.file.file_path not in bounded)
        bounded.append(task.file.file_path)
        with_bounds = {lake.table().schema().find_column_name(id_) for id_ in task.file.lower_bounds or {}}
        assert with_bounds == ({"id", "a day", "at", "word"} if number == 2 else {"id"})
    assert lake_rows(lake).equals(dated(1, 2, 3, 4, 5, 7, 8).drop_columns([OP]))
    # No attempt left a file behind, and the table's own settings are unchanged.
    assert {path.name for path in lake.folder.rglob("*.parquet")} == {path.rpartition("/")[2] for path in bounded}
    assert not any(key.startswith("write.metadata.metrics") for key in lake.table().properties)


def test_rows_in_a_file_with_such_values_are_replaced_and_deleted(lake: Lake) -> None:
    of = SinkShape(name="k", type="upsert", schema=DATED, keys=("id",))
    for run in (1, 2):
        writer, _ = opened(lake, of, run)
        for number, rows in enumerate((dated(1, 2, 3, 4), dated(2), dated(3), dated(4, op=DELETE), dated(7))):
            writer.write(rows, 10 * run + number)
        assert lake_rows(lake).equals(dated(1, 2, 3, 7).drop_columns([OP]))


@pytest.mark.parametrize("column", ["a day", "word"])
def test_partitions_for_which_python_has_no_value(lake: Lake, column: str) -> None:
    of = SinkShape(name="k", type="append-only", schema=DATED)
    opened(lake, of, 1)
    with lake.table().update_spec() as update:
        update.add_identity(column)
    writer, _ = opened(lake, of, 2)
    with pytest.raises(RefusedRowsError) as refused:
        writer.write(dated(1, 2, 3), 0)
    assert [(each.index, each.column) for each in refused.value.refusals] == [(1, column)]
    writer.write(dated(1, 3), 0)
    assert lake.table().scan().to_arrow()["id"].to_pylist() == [1, 3]


def test_a_row_is_deleted_although_python_has_no_value_for_its_partition(lake: Lake) -> None:
    """Only rows that are written belong to a partition."""
    of = SinkShape(name="k", type="upsert", schema=DATED, keys=("id",))
    opened(lake, of, 1)
    with lake.table().update_spec() as update:
        update.add_identity("a day")
    writer, _ = opened(lake, of, 2)
    good = dated(1, 3)
    for number, id_ in ((0, 1), (1, 2)):
        writer.write(with_ids(good, id_, 5), number)
    # A later row of the batch replaces a refused one; rows are numbered as in the given batch.
    rows = pa.concat_tables([with_ids(dated(2, op=DELETE), 2), with_ids(dated(4), 7), with_ids(dated(1), 7), dated(8)])
    with pytest.raises(RefusedRowsError, match="outside of the years 1 to 9999") as refused:
        writer.write(rows, 2)
    assert [(each.index, each.column) for each in refused.value.refusals] == [(3, "a day")]
    writer.write(rows.slice(0, 3), 2)
    assert sorted(lake.table().scan().to_arrow()["id"].to_pylist()) == [1, 5, 7]


def test_values_that_are_found_in_the_last_attempt_of_a_commit_are_an_error(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, the batch would count as written."""
    of = SinkShape(name="k", type="upsert", schema=DATED, keys=("id",))
    writer, _ = opened(lake, of, 1)
    writer.write(dated(1, 2), 0)
    monkeypatch.setattr("rw_sql.connectors.iceberg.sink._ATTEMPTS", 1)
    with pytest.raises(SinkError):
        writer.write(dated(1), 1)
    monkeypatch.undo()
    writer.write(dated(1), 1)
    assert lake_rows(lake).equals(dated(1, 2).drop_columns([OP]))


def test_keys_for_which_python_has_no_value(lake: Lake) -> None:
    """They are refused as rows, so that ``on_error = 'skip'`` can leave them out."""
    schema = {"type": "struct", "fields": [{"name": "day", "type": "date", "nullable": True, "metadata": {}}]}
    of = SinkShape(name="k", type="upsert", schema=json.dumps(schema), keys=("day",))
    writer, _ = opened(lake, of, 1)
    days = pa.array([19_000, 3_000_000, 19_001], pa.int32()).cast(pa.date32())
    with pytest.raises(RefusedRowsError, match="outside of the years 1 to 9999") as refused:
        writer.write(pa.table({"day": days, OP: [UPDATE] * 3}), 0)
    assert [(each.index, each.column) for each in refused.value.refusals] == [(1, "day")]
    writer.write(pa.table({"day": days.take(pa.array([0, 2])), OP: [UPDATE] * 2}), 0)
