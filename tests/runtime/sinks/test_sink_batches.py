"""The rows of a sink's query, in the order and with the operations that its writer expects."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from rw_sql.connectors.delta.sink import DeltaSink
from rw_sql.connectors.sink import OP, RefusedRowsError
from rw_sql.runtime.delta.rejected_rows import RejectedRows
from rw_sql.runtime.sinks.batches import _without_equal, arranged
from tests.support.sink_batches import SCHEMA, batch, shape

if TYPE_CHECKING:
    from pathlib import Path

FEED = pa.schema(
    [("id", pa.int32()), ("word", pa.string()), ("_change_type", pa.string()), ("_commit_version", pa.int64())]
)
CHANGES = [
    (2, "c", "update_postimage", 5),
    (1, "b", "delete", 6),
    (1, "b", "update_postimage", 5),
    (1, "a", "update_preimage", 5),
    (2, "b", "update_preimage", 5),
    (1, "a", "insert", 4),
]


def told(rows: pa.Table) -> list[tuple[int, str, str]]:
    return [(row["id"], row["word"], row[OP]) for row in rows.to_pylist()]


def feed() -> pa.Table:
    return pa.Table.from_pylist([dict(zip(FEED.names, row, strict=True)) for row in CHANGES], FEED)


def test_a_change_feed_in_the_order_of_its_commits() -> None:
    assert told(arranged(feed(), shape("upsert", "id"))) == [
        (1, "a", "insert"),
        (2, "c", "update"),
        (1, "b", "update"),
        (1, "b", "delete"),
    ]


def test_what_was_there_comes_before_what_is_for_debezium_alone() -> None:
    assert told(arranged(feed(), shape("debezium", "id"))) == [
        (1, "a", "insert"),
        (1, "a", "update_before"),
        (2, "b", "update_before"),
        (2, "c", "update"),
        (1, "b", "update"),
        (1, "b", "delete"),
    ]


MOVES = [
    # Version 5: 1 becomes 2 and 2 becomes 3, 7 changes a word, 8 becomes NULL, 9 is deleted.
    (1, "a", "update_preimage", 5),
    (2, "a", "update_postimage", 5),
    (2, "b", "update_preimage", 5),
    (3, "b", "update_postimage", 5),
    (7, "g", "update_preimage", 5),
    (7, "h", "update_postimage", 5),
    (8, "i", "update_preimage", 5),
    (None, "i", "update_postimage", 5),
    (9, "j", "delete", 5),
    # Version 6: 2 becomes 1 again, and keeps its key in no other version.
    (2, "a", "update_preimage", 6),
    (1, "a", "update_postimage", 6),
]


def test_an_update_that_changes_a_key_deletes_the_old_one() -> None:
    rows = pa.Table.from_pylist([dict(zip(FEED.names, row, strict=True)) for row in MOVES], FEED)
    assert told(arranged(rows, shape("debezium", "id"), keys_move=True)) == [
        (1, "a", "delete"),
        (2, "b", "update_before"),
        (7, "g", "update_before"),
        (8, "i", "delete"),
        (9, "j", "delete"),
        (2, "a", "update"),
        (3, "b", "insert"),
        (7, "h", "update"),
        (None, "i", "insert"),
        (2, "a", "delete"),
        (1, "a", "insert"),
    ]
    old = [(1, "a"), (2, "b"), (7, "g"), (8, "i"), (9, "j")]
    new = [(2, "a"), (3, "b"), (7, "h"), (None, "i")]
    # An upsert needs no delete of a key that has a new row.
    assert [row[:2] for row in told(arranged(rows, shape("upsert", "id"), keys_move=True)) if row[2] == "delete"] == [
        (1, "a"),
        (8, "i"),
        (9, "j"),
        (2, "a"),
    ]
    # Both columns together are another key.
    pairs = told(arranged(rows, shape("debezium", "id", "word"), keys_move=True))
    assert pairs[:9] == [(*row, "delete") for row in old] + [(*row, "insert") for row in new]


REPLACED = [
    # Version 5: 1 changes its word, 2 is deleted and inserted again, 3 becomes 4, 5 is deleted.
    (1, "a", "update_preimage", 5),
    (1, "b", "update_postimage", 5),
    (2, "a", "delete", 5),
    (2, "b", "insert", 5),
    (3, "c", "update_preimage", 5),
    (4, "c", "update_postimage", 5),
    (5, "d", "delete", 5),
    # Version 6: 5 is inserted again.
    (5, "e", "insert", 6),
]


@pytest.mark.parametrize("keys_move", [False, True])
@pytest.mark.parametrize("type_", ["upsert", "debezium"])
def test_a_change_feed_without_rows(type_: str, keys_move: bool) -> None:
    assert told(arranged(FEED.empty_table(), shape(type_, "id"), keys_move=keys_move)) == []


@pytest.mark.parametrize("nested", [None, "struct", "list"])
def test_an_upsert_deletes_only_keys_without_a_new_row_in_the_same_commit(nested: str | None) -> None:
    """If the target refuses the new row, and the sink skips it, the target keeps the old row."""
    rows = pa.Table.from_pylist([dict(zip(FEED.names, row, strict=True)) for row in REPLACED], FEED)
    if nested:
        keys = [[id_] if nested == "list" else {"a": id_} for id_ in rows["id"].to_pylist()]
        rows = rows.set_column(0, "id", pa.array(keys))
    ids = {str(key): id_ for key, (id_, *_) in zip(rows["id"].to_pylist(), REPLACED, strict=True)}
    found = told(arranged(rows, shape("upsert", "id"), keys_move=True))
    assert [(ids[str(key)], word, op) for key, word, op in found] == [
        (3, "c", "delete"),
        (5, "d", "delete"),
        (1, "b", "update"),
        (2, "b", "insert"),
        (4, "c", "update"),
        (5, "e", "insert"),
    ]


def test_a_view_s_upsert_keeps_the_row_of_a_key_that_is_deleted_and_inserted_in_one_commit() -> None:
    kept = [row for row in REPLACED if row[0] not in (3, 4)]
    rows = pa.Table.from_pylist([dict(zip(FEED.names, row, strict=True)) for row in kept], FEED)
    assert told(arranged(rows, shape("upsert", "id"))) == [
        (5, "d", "delete"),
        (1, "b", "update"),
        (2, "b", "insert"),
        (5, "e", "insert"),
    ]


@pytest.mark.parametrize("is_list", [False, True], ids=["struct", "list"])
def test_an_update_that_changes_a_nested_key_deletes_the_old_one(is_list: bool) -> None:
    def nested(id_: int | None) -> object:
        return id_ and ([id_] if is_list else {"a": id_})

    rows = pa.Table.from_pylist([dict(zip(FEED.names, row, strict=True)) for row in MOVES], FEED)
    plain = told(arranged(rows, shape("debezium", "id"), keys_move=True))
    keys = pa.array([nested(id_) for id_ in rows["id"].to_pylist()])
    found = told(arranged(rows.set_column(0, "id", keys), shape("debezium", "id"), keys_move=True))
    assert found == [(nested(id_), *rest) for id_, *rest in plain]


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
def test_the_keys_zero_and_minus_zero_differ(kind: pa.DataType) -> None:
    """The key of a Kafka record is the key's text, and so the topic needs a tombstone of the old key."""
    images = ["update_preimage", "update_postimage"] * 2
    rows = pa.table(
        {
            "id": pa.array([0.0, -0.0, math.nan, math.nan], kind),
            "word": ["a", "a", "b", "c"],
            "_change_type": images,
            "_commit_version": pa.array([5] * 4, pa.int64()),
        }
    )

    def changes(type_: str) -> list[tuple[str, str, str]]:
        return [(str(id_), word, op) for id_, word, op in told(arranged(rows, shape(type_, "id"), keys_move=True))]

    assert changes("upsert") == [("0.0", "a", "delete"), ("-0.0", "a", "update"), ("nan", "c", "update")]
    assert changes("debezium") == [
        ("0.0", "a", "delete"),
        ("nan", "b", "update_before"),
        ("-0.0", "a", "insert"),
        ("nan", "c", "update"),
    ]


KEYS_OF_ZERO = [
    pytest.param(pa.float64(), "double", (0.0, -0.0), id="double"),
    pytest.param(pa.float32(), "float", (0.0, -0.0), id="float"),
    pytest.param(
        pa.struct([("a", pa.list_(pa.float64()))]),
        {
            "type": "struct",
            "fields": [
                {
                    "name": "a",
                    "type": {"type": "array", "elementType": "double", "containsNull": True},
                    "nullable": True,
                    "metadata": {},
                }
            ],
        },
        ({"a": [0.0]}, {"a": [-0.0]}),
        id="nested",
    ),
]


@pytest.mark.parametrize(("arrow", "kind", "zeros"), KEYS_OF_ZERO)
@pytest.mark.parametrize("type_", ["upsert", "debezium"])
def test_an_update_of_a_keyed_table_from_zero_to_minus_zero_deletes_the_old_key(
    arrow: pa.DataType, kind: object, zeros: tuple[object, object], type_: str
) -> None:
    zero, minus_zero = zeros
    names = ("k", "word", "_change_type", "_commit_version")
    changes = [
        (zero, "a", "update_preimage", 5),
        (minus_zero, "a", "update_postimage", 5),
        (minus_zero, "a", "update_preimage", 6),
        (minus_zero, "b", "update_postimage", 6),
    ]
    rows = pa.table(
        [pa.array(column, of) for column, of in zip(zip(*changes, strict=True), (arrow, *FEED.types[1:]), strict=True)],
        names,
    )
    fields = [{"name": "k", "type": kind, "nullable": True, "metadata": {}}, {**json.loads(SCHEMA)["fields"][1]}]
    of = replace(shape(type_, "k"), schema=json.dumps({"type": "struct", "fields": fields}))
    found = [(repr(row["k"]), row["word"], row[OP]) for row in arranged(rows, of).to_pylist()]
    old, new = repr(zero), repr(minus_zero)
    moved = [(old, "a", "delete"), (new, "a", "update" if type_ == "upsert" else "insert")]
    before = [] if type_ == "upsert" else [(new, "a", "update_before")]
    assert found == [*moved, *before, (new, "b", "update")]


def test_an_update_that_the_target_refuses_leaves_its_row(tmp_path: Path) -> None:
    """Here the user's table has the update of row 1 and the move of row 2 to 3, and the sink skips both."""
    of = shape("upsert", "id")
    writer = DeltaSink().open({"location": str(tmp_path / "t")}, of, "me")
    writer.fence(1, 1)
    writer.write(batch((1, "a"), (2, "b")), 0)
    DeltaTable(str(tmp_path / "t")).alter.add_constraint({"known": "word <> 'bad'"})
    changes = [
        (1, "a", "update_preimage", 5),
        (1, "bad", "update_postimage", 5),
        (2, "b", "update_preimage", 5),
        (3, "bad", "update_postimage", 5),
    ]
    rows = pa.Table.from_pylist([dict(zip(FEED.names, row, strict=True)) for row in changes], FEED)
    left = arranged(rows, of, keys_move=True)
    with pytest.raises(RefusedRowsError) as refused:
        writer.write(left, 1)
    rejected = RejectedRows.open(str(tmp_path / "rejected"), of)
    rejected.begin()
    writer.write(rejected.put(left, refused.value.refusals, 1), 1)
    assert rejected.total == 2
    assert DeltaTable(str(tmp_path / "t")).to_pyarrow_table().to_pylist() == [{"id": 1, "word": "a"}]


def test_rows_by_force_leave_deletions_out() -> None:
    assert told(arranged(feed(), shape())) == [(1, "a", "insert"), (2, "c", "update"), (1, "b", "update")]


def test_an_update_that_changes_only_hidden_columns_is_left_out() -> None:
    images = [
        (1, "a", "update_preimage", 7),
        (1, "a", "update_postimage", 7),
        (2, "c", "update_preimage", 7),
        (2, "d", "update_postimage", 7),
        (1, "a", "update_preimage", 8),
        (1, "b", "update_postimage", 8),
        (2, "d", "insert", 9),
    ]
    rows = pa.Table.from_pylist([dict(zip(FEED.names, row, strict=True)) for row in images], FEED)
    new = [(2, "d", "update"), (1, "b", "update"), (2, "d", "insert")]
    assert told(arranged(rows, shape("upsert", "id"))) == new
    assert told(arranged(rows, shape())) == new
    # If rows need not differ, both images of another row may be equal.
    assert len(arranged(rows, shape(), keys_move=True)) == 4
    nested = rows.append_column("parts", pa.array([["x"]] * rows.num_rows))
    assert len(_without_equal(nested, ["id", "word", "parts"])) == rows.num_rows


def test_a_log_in_the_order_in_which_it_was_read() -> None:
    rows = pa.table(
        {
            "id": pa.array([1, 2, 3, 4], pa.int32()),
            "word": ["d", "c", "b", "a"],
            "_rw_run": [2, 1, 1, 1],
            "_rw_split": ["t:0", "t:1", "t:0", "t:0"],
            "_rw_offset": [0, 0, 10, 9],
        }
    )
    assert [row[0] for row in told(arranged(rows, shape()))] == [4, 3, 2, 1]


def test_batches_of_a_log_come_one_after_the_other() -> None:
    rows = pa.table(
        {
            "id": pa.array([1, 2, 3, 4], pa.int32()),
            "word": ["d", "c", "b", "a"],
            "_rw_run": [1, 1, 1, 1],
            "_rw_batch": [2, 1, 1, None],
            "_rw_split": ["t:0", "t:1", "t:0", "t:1"],
            "_rw_offset": [2, 1, 1, 0],
        }
    )
    assert [row[0] for row in told(arranged(rows, shape()))] == [4, 3, 2, 1]


def test_other_rows_as_they_come() -> None:
    rows = pa.table({"word": ["b", "a"], "id": pa.array([2, 1], pa.int32())})
    assert told(arranged(rows, shape("upsert", "id"))) == [(2, "b", "insert"), (1, "a", "insert")]


LOG = {"_rw_run": pa.int64(), "_rw_batch": pa.int64(), "_rw_split": pa.string(), "_rw_offset": pa.int64()}


def logged(*rows: tuple[int, str, int | None, int]) -> pa.Table:
    """Rows of one commit of a log: id, split, index, offset."""
    schema = pa.schema([*FEED, *LOG.items(), ("_rw_index", pa.int64())])
    return pa.Table.from_pylist(
        [
            {"id": id_, "_rw_run": 1, "_rw_batch": 2, "_rw_split": split, "_rw_offset": offset, "_rw_index": index}
            for id_, split, index, offset in rows
        ],
        schema,
    ).drop_columns(["_change_type", "_commit_version"])


def test_rows_of_a_file_with_one_offset_are_in_the_order_of_the_file() -> None:
    rows = logged((4, "b", 0, 0), (3, "a", 0, 9), (2, "a", 1, 0), (1, "a", 0, 0))
    assert arranged(rows, shape("upsert", "id"))["id"].to_pylist() == [1, 2, 3, 4]


def test_a_row_from_before_the_index_existed_precedes_a_row_with_an_index() -> None:
    rows = logged((2, "a", 0, 0), (1, "a", None, 0))
    assert arranged(rows, shape("upsert", "id"))["id"].to_pylist() == [1, 2]
