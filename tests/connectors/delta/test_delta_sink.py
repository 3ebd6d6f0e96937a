"""The Delta sink's writer writes each batch once, whichever process has written it before and whatever others
commit."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction, write_deltalake
from deltalake.schema import PrimitiveType

from rw_sql.connectors.delta.sink import _UNWRITABLE, DeltaSink
from rw_sql.connectors.sink import DELETE, OP, UPDATE, SinkError, SinkShape, TargetUnfitError
from rw_sql.runtime.sinks.part_writer import PartWriter
from tests.support.s3_store import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, S3Store
from tests.support.sink_batches import ARROW, batch, shape

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.connectors.sink import SinkWriter

WORDS = ARROW.remove(2)


def opened(path: Path, of: SinkShape, run: int, *, identity: str = "me", generation: int = 1) -> tuple[SinkWriter, int]:
    writer = DeltaSink().open({"location": str(path)}, of, identity)
    done = writer.fence(run, generation)
    assert done is not None
    return writer, done


def rows(path: Path) -> list[tuple[int, str]]:
    return sorted((row["id"], row["word"]) for row in DeltaTable(str(path)).to_pyarrow_table().to_pylist())


def test_a_later_run_knows_what_is_there_and_an_earlier_one_is_kept_out(tmp_path: Path) -> None:
    first, done = opened(tmp_path / "t", shape(), 1)
    assert done == -1
    first.write(batch((1, "a")), 0)
    first.write(batch((2, "b")), 3)
    second, done = opened(tmp_path / "t", shape(), 2)
    assert done == 3
    with pytest.raises(SinkError, match="run 2 has taken over from run 1"):
        first.write(batch((3, "late")), 4)
    second.write(batch((3, "c")), 4)
    with pytest.raises(SinkError, match="batch 4 is already in the table"):
        second.write(batch((3, "c")), 4)
    with pytest.raises(SinkError, match="run 2 has taken over"):
        opened(tmp_path / "t", shape(), 1)
    assert rows(tmp_path / "t") == [(1, "a"), (2, "b"), (3, "c")]


def test_sinks_and_generations_do_not_know_of_each_other(tmp_path: Path) -> None:
    one, _ = opened(tmp_path / "t", shape(), 1, identity="one")
    one.write(batch((1, "a")), 7)
    other, done = opened(tmp_path / "t", shape(), 1, identity="other")
    assert done == -1
    other.write(batch((2, "b")), 0)
    one.write(batch((3, "c")), 8)
    assert opened(tmp_path / "t", shape(), 2, identity="one", generation=2)[1] == -1
    assert rows(tmp_path / "t") == [(1, "a"), (2, "b"), (3, "c")]


def test_the_marks_outlive_the_log(tmp_path: Path) -> None:
    writer, _ = opened(tmp_path / "t", shape(), 1)
    writer.write(batch((1, "a")), 0)
    table = DeltaTable(str(tmp_path / "t"))
    write_deltalake(table, batch((9, "theirs")).select(["id", "word"]), mode="append")
    table.create_checkpoint()
    for commit in sorted((tmp_path / "t" / "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()
    assert opened(tmp_path / "t", shape(), 2)[1] == 0


@pytest.mark.parametrize("commits", [None, 0, 12], ids=["deleted", "made anew", "made anew with more commits"])
def test_a_table_that_was_made_anew_is_not_written(tmp_path: Path, commits: int | None) -> None:
    sink, options = DeltaSink(), {"location": str(tmp_path / "t")}
    assert sink.marked_batch(options, "me", 1) is None
    writer, _ = opened(tmp_path / "t", shape(), 1)
    writer.write(batch((1, "a")), 0)
    assert sink.marked_batch(options, "me", 1) is not None
    assert sink.marked_batch(options, "other", 1) is None
    theirs = batch((9, "theirs")).select(["id", "word"])
    shutil.rmtree(tmp_path / "t")
    for _ in range(0 if commits is None else commits + 1):
        write_deltalake(str(tmp_path / "t"), theirs, mode="append")
    with pytest.raises(TargetUnfitError, match="was deleted"):
        writer.write(batch((2, "b")), 1)
    assert sink.marked_batch(options, "me", 1) is None
    if commits is None:
        assert not (tmp_path / "t").exists()
    else:
        assert rows(tmp_path / "t") == [(9, "theirs")] * (commits + 1)


def _in_place(path: Path) -> None:
    """What CREATE OR REPLACE TABLE does: the log continues, with an empty table of another id."""
    schema = DeltaTable(str(path)).schema()
    DeltaTable.create(str(path), schema, mode="overwrite")


@pytest.mark.parametrize("is_running", [True, False])
def test_a_table_that_was_replaced_in_place_is_not_written(tmp_path: Path, is_running: bool) -> None:
    sink, options = DeltaSink(), {"location": str(tmp_path / "t")}
    writer, _ = opened(tmp_path / "t", shape(), 1)
    writer.write(batch((1, "a")), 0)
    writer, _ = opened(tmp_path / "t", shape(), 2)
    writer.write(batch((2, "b")), 1)
    assert sink.marked_batch(options, "me", 1) == 1
    _in_place(tmp_path / "t")
    assert DeltaTable(str(tmp_path / "t")).transaction_version("me/1") == 1
    assert sink.marked_batch(options, "me", 1) is None
    act = partial(writer.write, batch((3, "c")), 2) if is_running else partial(opened, tmp_path / "t", shape(), 3)
    with pytest.raises(TargetUnfitError, match="was replaced by another table"):
        act()
    assert rows(tmp_path / "t") == []
    # Another sink, such as the same one created again, may write the table.
    again, _ = opened(tmp_path / "t", shape(), 1, identity="again")
    again.write(batch((1, "a")), 0)
    assert sink.marked_batch(options, "again", 1) == 0


def test_a_table_that_was_replaced_before_the_first_batch_is_written(tmp_path: Path) -> None:
    opened(tmp_path / "t", shape(), 1)
    _in_place(tmp_path / "t")
    writer, _ = opened(tmp_path / "t", shape(), 2)
    writer.write(batch((1, "a")), 0)
    assert rows(tmp_path / "t") == [(1, "a")]
    assert DeltaSink().marked_batch({"location": str(tmp_path / "t")}, "me", 1) == 0


def test_a_table_that_an_older_version_has_written_is_the_same(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path / "t"), Schema.from_arrow(WORDS))
    marks = [Transaction("me", (1 << 32) + 8), Transaction("me/1", 7)]
    write_deltalake(
        str(tmp_path / "t"),
        batch((1, "a")).select(["id", "word"]),
        mode="append",
        commit_properties=CommitProperties(app_transactions=marks),
    )
    assert DeltaSink().marked_batch({"location": str(tmp_path / "t")}, "me", 1) == 7
    writer, done = opened(tmp_path / "t", shape(), 2)
    assert done == 7
    writer.write(batch((2, "b")), 8)
    _in_place(tmp_path / "t")
    assert DeltaSink().marked_batch({"location": str(tmp_path / "t")}, "me", 1) is None


@pytest.mark.parametrize("runs", [(1,), (1, 2)], ids=["of this run", "of an earlier run"])
def test_an_older_copy_of_the_table_is_not_written(tmp_path: Path, runs: tuple[int, ...]) -> None:
    sink, options = DeltaSink(), {"location": str(tmp_path / "t")}
    writer, _ = opened(tmp_path / "t", shape(), 1)
    assert sink.marked_batch(options, "me", 1) == -1
    writer.write(batch((1, "a")), 0)
    shutil.copytree(tmp_path / "t", tmp_path / "older")
    for run in runs[1:]:
        writer, _ = opened(tmp_path / "t", shape(), run)
    writer.write(batch((2, "b")), 1)
    assert (sink.marked_batch(options, "me", 1), sink.marked_batch(options, "me", 2)) == (1, -1)
    shutil.rmtree(tmp_path / "t")
    shutil.copytree(tmp_path / "older", tmp_path / "t")
    with pytest.raises(TargetUnfitError, match="older copy"):
        writer.write(batch((3, "c")), 2)
    assert sink.marked_batch(options, "me", 1) == 0
    assert rows(tmp_path / "t") == [(1, "a")]


def test_a_table_in_a_bucket_that_was_made_anew_is_not_written(tmp_path: Path) -> None:
    store = S3Store(tmp_path)
    try:
        location = f"{store.warehouse()}/t"
        options = {
            "location": location,
            "s3.endpoint": store.endpoint,
            "s3.access.key": ACCESS_KEY,
            "s3.secret.key": SECRET_KEY,
            "s3.region": REGION,
        }
        sink = DeltaSink()
        writer = sink.open(options, shape(), "me")
        assert writer.fence(1, 1) == -1
        writer.write(batch((1, "a")), 0)
        storage = sink.storage(options)
        theirs = batch((9, "theirs")).select(["id", "word"])
        write_deltalake(location, theirs, mode="append", storage_options=storage)
        writer.write(batch((2, "b")), 1)
        assert sink.marked_batch(options, "me", 1) is not None
        keys = [each["Key"] for each in store.client.list_objects_v2(Bucket=BUCKET)["Contents"]]
        store.client.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in keys]})
        for _ in range(12):
            write_deltalake(location, theirs, mode="append", storage_options=storage)
        with pytest.raises(TargetUnfitError, match="created again"):
            writer.write(batch((3, "c")), 2)
        assert sink.marked_batch(options, "me", 1) is None
    finally:
        store.stop()


def test_a_table_whose_commits_were_cleaned_up_is_the_same(tmp_path: Path) -> None:
    writer, _ = opened(tmp_path / "t", shape(), 1)
    writer.write(batch((1, "a")), 0)
    for _ in range(3):
        write_deltalake(str(tmp_path / "t"), batch((9, "theirs")).select(["id", "word"]), mode="append")
    DeltaTable(str(tmp_path / "t")).create_checkpoint()
    for commit in sorted((tmp_path / "t" / "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()
    writer.write(batch((2, "b")), 1)
    assert rows(tmp_path / "t") == [(1, "a"), (2, "b"), *[(9, "theirs")] * 3]


def test_a_part_of_a_batch_does_not_count_as_the_batch(tmp_path: Path) -> None:
    writer, _ = opened(tmp_path / "t", shape("upsert", "id"), 1)
    assert isinstance(writer, PartWriter)
    writer.write(batch((1, "a"), (2, "b")), 0)
    writer.write_part(batch((1, "a", DELETE), (3, "c")), 1)
    assert rows(tmp_path / "t") == [(2, "b"), (3, "c")]
    # A kill follows, and the next run divides the batch in another way.
    again, done = opened(tmp_path / "t", shape("upsert", "id"), 2)
    assert done == 0
    assert isinstance(again, PartWriter)
    with pytest.raises(SinkError, match="run 2 has taken over"):
        writer.write_part(batch((4, "late")), 1)
    again.write_part(batch((1, "a", DELETE)), 1)
    again.write_part(batch((2, "e", UPDATE)), 1)
    again.write(batch((3, "c")), 1)
    assert rows(tmp_path / "t") == [(2, "e"), (3, "c")]
    assert DeltaSink().marked_batch({"location": str(tmp_path / "t")}, "me", 1) == 1
    assert opened(tmp_path / "t", shape("upsert", "id"), 3)[1] == 1


def test_a_commit_of_somebody_else_in_between_is_no_obstacle(tmp_path: Path) -> None:
    writer, _ = opened(tmp_path / "t", shape("upsert", "id"), 1)
    write_deltalake(str(tmp_path / "t"), batch((9, "theirs")).select(["id", "word"]), mode="append")
    writer.write(batch((1, "a"), (2, "b"), (1, "c", UPDATE)), 0)
    writer.write(batch((2, "b", DELETE), (9, "ours", UPDATE), (4, "gone", DELETE)), 1)
    assert rows(tmp_path / "t") == [(1, "c"), (9, "ours")]


def test_a_row_of_two_keys_is_replaced(tmp_path: Path) -> None:
    writer, _ = opened(tmp_path / "t", shape("upsert", "id", "word"), 1)
    writer.write(batch((1, "a"), (1, None), (None, "a")), 0)
    writer.write(batch((1, "a"), (1, None, DELETE), (None, "a")), 1)
    found = DeltaTable(str(tmp_path / "t")).to_pyarrow_table().to_pylist()
    assert sorted(found, key=str) == [{"id": 1, "word": "a"}, {"id": None, "word": "a"}]


def test_a_null_key_is_a_key(tmp_path: Path) -> None:
    writer, _ = opened(tmp_path / "t", shape("upsert", "id"), 1)
    writer.write(batch((None, "a")), 0)
    writer.write(batch((None, "b")), 1)
    assert DeltaTable(str(tmp_path / "t")).to_pyarrow_table().to_pylist() == [{"id": None, "word": "b"}]


def test_nothing_is_written_after_a_cancel(tmp_path: Path) -> None:
    writer, _ = opened(tmp_path / "t", shape(), 1)
    writer.cancel()
    with pytest.raises(SinkError, match="stopped"):
        writer.write(batch((1, "a")), 0)
    assert rows(tmp_path / "t") == []


def test_the_look_writes_nothing_and_tells_what_does_not_fit(tmp_path: Path) -> None:
    sink, there = DeltaSink(), {"location": str(tmp_path / "a" / "t")}
    assert sink.look(there, shape()).misfit is None
    assert not (tmp_path / "a").exists()
    DeltaTable.create(there["location"], Schema.from_arrow(WORDS))
    assert sink.look(there, shape()).misfit is None
    wrong = Schema.from_arrow(pa.schema([("id", pa.int64()), ("word", pa.string())]))
    DeltaTable.create(str(tmp_path / "wrong"), wrong)
    assert sink.look({"location": str(tmp_path / "wrong")}, shape()).misfit == (
        f'column "id" of the table at {tmp_path}/wrong is long, not integer'
    )
    DeltaTable.create(str(tmp_path / "narrow"), Schema.from_arrow(pa.schema([("id", pa.int32())])))
    assert "has no column" in (sink.look({"location": str(tmp_path / "narrow")}, shape()).misfit or "")
    keeps = {"delta.setTransactionRetentionDuration": "interval 7 days"}
    DeltaTable.create(str(tmp_path / "forgets"), Schema.from_arrow(WORDS), configuration=keeps)
    found = sink.look({"location": str(tmp_path / "forgets")}, shape())
    assert "discards the record of written batches after interval 7 days" in (found.misfit or "")
    assert found.hint == (
        f"ALTER TABLE delta.`{tmp_path}/forgets` UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')"
    )
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    assert "is not a Delta table" in (sink.look({"location": str(tmp_path / "full")}, shape()).misfit or "")
    assert "is a file" in (sink.look({"location": str(tmp_path / "full" / "letter.txt" / "x")}, shape()).misfit or "")


def test_zero_and_negative_zero_are_one_key(tmp_path: Path) -> None:
    schema = json.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": "id", "type": "double", "nullable": True, "metadata": {}},
                {"name": "word", "type": "string", "nullable": True, "metadata": {}},
            ],
        }
    )
    writer, _ = opened(tmp_path / "t", replace(shape("upsert", "id"), schema=schema), 1)
    rows_of = pa.schema([("id", pa.float64()), ("word", pa.string()), (OP, pa.string())])
    for number, (first, second) in enumerate(((0.0, -0.0), (-0.0, 0.0))):
        given = [{"id": first, "word": "a", OP: UPDATE}, {"id": second, "word": f"b{number}", OP: UPDATE}]
        writer.write(pa.Table.from_pylist(given, rows_of), number)
    assert rows(tmp_path / "t") == [(0.0, "b1")]


@pytest.mark.parametrize(
    ("kind", "arrow", "keys"),
    [
        ({"type": "array", "elementType": "string", "containsNull": True}, pa.list_(pa.string()), [["a"], [None], []]),
        (
            {"type": "struct", "fields": [{"name": "x", "type": "integer", "nullable": True, "metadata": {}}]},
            pa.struct([("x", pa.int32())]),
            [{"x": 1}, {"x": None}, {"x": 2}],
        ),
        (
            {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": True},
            pa.map_(pa.string(), pa.int32()),
            [[("a", 1)], [("a", 2)], []],
        ),
    ],
    ids=["array", "struct", "map"],
)
def test_keys_that_are_nested(tmp_path: Path, kind: object, arrow: pa.DataType, keys: list[object]) -> None:
    fields = json.loads(shape().schema)["fields"]
    fields[0]["type"] = kind
    of = replace(shape("upsert", "id"), schema=json.dumps({"type": "struct", "fields": fields}))
    writer, _ = opened(tmp_path / "t", of, 1)
    given = [*keys, None, keys[0], None]
    for number in range(2):
        words = [f"{at}{number}" for at in range(len(given))]
        writer.write(pa.table({"id": pa.array(given, arrow), "word": words, OP: [UPDATE] * len(given)}), number)
        found = DeltaTable(str(tmp_path / "t")).to_pyarrow_table()
        assert sorted(found["word"].to_pylist()) == [f"{at}{number}" for at in (1, 2, 4, 5)]
    writer.write(pa.table({"id": pa.array([None, keys[0]], arrow), "word": ["", ""], OP: [DELETE] * 2}), 2)
    assert sorted(DeltaTable(str(tmp_path / "t")).to_pyarrow_table()["word"].to_pylist()) == ["11", "21"]


def test_a_table_that_becomes_append_only_is_unfit_for_an_upsert(tmp_path: Path) -> None:
    options = {"location": str(tmp_path / "t")}
    writer, _ = opened(tmp_path / "t", shape("upsert", "id"), 1)
    writer.write(batch((1, "a")), 0)
    DeltaTable(options["location"]).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(TargetUnfitError, match="append-only"):
        writer.write(batch((1, "b", UPDATE)), 1)
    look = DeltaSink().look(options, shape("upsert", "id"))
    assert look.misfit == f"the table at {tmp_path / 't'} is append-only, so rows cannot be replaced or deleted"
    assert "UNSET TBLPROPERTIES ('delta.appendOnly')" in (look.hint or "")
    assert DeltaSink().look(options, shape()).misfit is None
    opened(tmp_path / "t", shape(), 1, identity="other")[0].write(batch((2, "b")), 0)
    assert rows(tmp_path / "t") == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("feature", sorted(_UNWRITABLE))
def test_a_table_with_a_feature_that_delta_rs_does_not_write_is_unfit(tmp_path: Path, feature: str) -> None:
    options = {"location": str(tmp_path / "t")}
    DeltaTable.create(options["location"], Schema.from_json(shape().schema))
    log = tmp_path / "t" / "_delta_log" / "00000000000000000000.json"
    of_readers = [feature] if feature == "typeWidening" else []
    protocol = {
        "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": of_readers, "writerFeatures": [feature]
    }  # fmt: skip
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    changed = [{"protocol": protocol} if "protocol" in line else line for line in lines]
    log.write_text("\n".join(json.dumps(line) for line in changed) + "\n", "utf-8")
    look = DeltaSink().look(options, shape())
    assert (look.misfit or "").endswith(f"table features with which this sink cannot write it: {feature}")
    with pytest.raises(TargetUnfitError, match="nsupported table features"):
        opened(tmp_path / "t", shape(), 1)


@pytest.mark.parametrize("name", ["a`b", "`", 'say "x"', "``a``", "a.b", "t.x", "Ä b"])
def test_names_of_columns_with_quotes(tmp_path: Path, name: str) -> None:
    schema = {"type": "struct", "fields": [{"name": name, "type": "long", "nullable": True, "metadata": {}},
              {"name": "word`", "type": "string", "nullable": True, "metadata": {}}]}  # fmt: skip
    of = SinkShape(name="s", type="upsert", schema=json.dumps(schema), keys=(name,))
    writer, _ = opened(tmp_path / "t", of, 1)
    for number, rows_of in enumerate(([(1, "a"), (2, "b")], [(2, "c"), (3, "d")])):
        made = pa.table({OP: [UPDATE] * 2, name: [row[0] for row in rows_of], "word`": [row[1] for row in rows_of]})
        writer.write(made, number)
    found = DeltaTable(str(tmp_path / "t")).to_pyarrow_table().sort_by(name).to_pylist()
    assert found == [{name: 1, "word`": "a"}, {name: 2, "word`": "c"}, {name: 3, "word`": "d"}]


def test_hints_quote_odd_names(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    DeltaTable.create(path, Schema([Field("a b", PrimitiveType("long"))]))
    fields: list[dict[str, object]] = [
        {"name": name, "type": "integer", "nullable": True, "metadata": {}} for name in ("a b", "c`d")
    ]
    schemas = [json.dumps({"type": "struct", "fields": part}) for part in (fields, fields[1:])]
    looks = [DeltaSink().look({"location": path}, replace(shape(), schema=schema)) for schema in schemas]
    assert looks[0].hint == "CAST it in the sink's query: CREATE SINK … AS SELECT CAST(`a b` AS …) …"
    assert looks[1].hint == f"ALTER TABLE delta.`{path}` ADD COLUMN `c``d` …, or set another location"
