"""The rows of a sink's query, in the order and with the operations that its writer expects."""

from __future__ import annotations

import pyarrow as pa
import pytest

from rw_sql.connectors.sink import OP
from rw_sql.runtime.sinks.batches import _without_equal, arranged
from tests.support.sink_batches import shape

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
    assert [row[:2] for row in told(arranged(rows, shape("upsert", "id"), keys_move=True)) if row[2] == "delete"] == [
        *old,
        (2, "a"),
    ]
    # Both columns together are another key.
    pairs = told(arranged(rows, shape("debezium", "id", "word"), keys_move=True))
    assert pairs[:9] == [(*row, "delete") for row in old] + [(*row, "insert") for row in new]


@pytest.mark.parametrize("is_list", [False, True], ids=["struct", "list"])
def test_an_update_that_changes_a_nested_key_deletes_the_old_one(is_list: bool) -> None:
    def nested(id_: int | None) -> object:
        return id_ and ([id_] if is_list else {"a": id_})

    rows = pa.Table.from_pylist([dict(zip(FEED.names, row, strict=True)) for row in MOVES], FEED)
    plain = told(arranged(rows, shape("debezium", "id"), keys_move=True))
    keys = pa.array([nested(id_) for id_ in rows["id"].to_pylist()])
    found = told(arranged(rows.set_column(0, "id", keys), shape("debezium", "id"), keys_move=True))
    assert found == [(nested(id_), *rest) for id_, *rest in plain]


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
