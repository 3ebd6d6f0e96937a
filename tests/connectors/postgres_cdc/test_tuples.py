"""Rows of pgoutput and lines of COPY as JSON, compared with Python's own json, and messages that are broken."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rw_sql.connectors.changes import TableProgress
from rw_sql.connectors.postgres_cdc import followed, pgoutput, tuples
from rw_sql.connectors.postgres_cdc.decoder import Decoded, Decoder, KnownTable
from rw_sql.connectors.postgres_cdc.pgoutput import BrokenMessageError, Relation, RelationColumn, Transaction
from rw_sql.connectors.postgres_cdc.tables import CatalogColumn
from rw_sql.connectors.postgres_cdc.tuples import (
    BrokenTupleError,
    json_rows,
    split_lines,
    unchanged_names,
    unescaped,
    walk,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

TEXTS = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=12) | st.sampled_from(
    ["", "\\N", "\\", '"', "\x0b", "\\u000b", "\x01\x1f\x7f", "\t\n\r\b\f"]
)
ROWS = st.integers(1, 4).flatmap(
    lambda width: st.lists(
        st.lists(TEXTS | st.none() | st.just(...), min_size=width, max_size=width), min_size=1, max_size=40
    )
)
"""Rows of cells: a text, None for NULL, or ... for an unchanged value."""


def tuple_data(row: Sequence[object]) -> bytes:
    """TupleData as PostgreSQL writes it."""
    made = struct.pack(">H", len(row))
    for cell in row:
        if isinstance(cell, str):
            data = cell.encode()
            made += b"t" + struct.pack(">I", len(data)) + data
        else:
            made += b"n" if cell is None else b"u"
    return made


def copy_line(row: Sequence[str | None]) -> bytes:
    """A line of COPY … TO STDOUT (CopyAttributeOutText)."""
    escapes = {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\x0b": "\\v"}
    cells = ["\\N" if cell is None else "".join(escapes.get(letter, letter) for letter in cell) for cell in row]
    return ("\t".join(cells) + "\n").encode()


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_rows_of_the_stream(rows: list[list[object]]) -> None:
    names = [f'c"{at}' for at in range(len(rows[0]))]
    pieces = [tuple_data(row) for row in rows]
    lengths = np.array([len(piece) for piece in pieces])
    buffer = np.frombuffer(b"".join(pieces), dtype=np.uint8)
    cells, ends = walk(buffer, np.cumsum(lengths) - lengths, len(names))
    assert ends.tolist() == np.cumsum(lengths).tolist()
    wanted = [{name: cell for name, cell in zip(names, row, strict=True) if cell is not ...} for row in rows]
    assert [json.loads(text) for text in json_rows(cells, names).to_pylist()] == wanted
    assert [each or [] for each in unchanged_names(cells, names).to_pylist()] == [
        [name for name, cell in zip(names, row, strict=True) if cell is ...] for row in rows
    ]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4).flatmap(lambda width: st.lists(
    st.lists(TEXTS | st.none(), min_size=width, max_size=width), min_size=1, max_size=40)))  # fmt: skip
def test_lines_of_copy(rows: list[list[str | None]]) -> None:
    names = [f"c{at}" for at in range(len(rows[0]))]
    cells = split_lines(b"".join(copy_line(row) for row in rows), len(names))
    made = json_rows(cells, names).to_pylist()
    assert [json.loads(text) for text in made] == [dict(zip(names, row, strict=True)) for row in rows]
    for at, row in enumerate(rows):
        for column, cell in enumerate(row):
            value = cells.value(column, at)
            assert (None if value is None else unescaped(value).decode()) == cell
    # Keys of a chunk are compared with keys of the stream as texts.
    pieces = [tuple_data(row) for row in rows]
    lengths = np.array([len(piece) for piece in pieces])
    streamed, _ = walk(np.frombuffer(b"".join(pieces), dtype=np.uint8), np.cumsum(lengths) - lengths, len(names))
    assert json_rows(streamed, names).to_pylist() == made


def test_blocks_of_rows_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuples, "_BLOCK_BYTES", 64)
    rows = [(str(at), 'say "x"' if at % 3 else None) for at in range(500)]
    cells = split_lines(b"".join(copy_line(row) for row in rows), 2)
    made = json_rows(cells, ["a", "b"]).to_pylist()
    assert [json.loads(text) for text in made] == [{"a": a, "b": b} for a, b in rows]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (struct.pack(">H", 2) + b"nn", "a row has 2 columns instead of 1"),
        (struct.pack(">H", 1) + b"b" + struct.pack(">I", 1) + b"x", "a value in binary form"),
        (struct.pack(">H", 1) + b"t" + struct.pack(">I", 9) + b"x", "a row ends early"),
        (struct.pack(">H", 1), "broken row"),
        (b"\0", "a row has 0 columns instead of 1"),
    ],
)
def test_a_broken_row(data: bytes, message: str) -> None:
    with pytest.raises(BrokenTupleError, match=message):
        walk(np.frombuffer(data, dtype=np.uint8), np.array([0]), 1)


def relation_message(oid: int, name: str, columns: Sequence[tuple[str, bool]]) -> bytes:
    made = b"R" + struct.pack(">I", oid) + b"public\0" + name.encode() + b"\0d" + struct.pack(">H", len(columns))
    for column, is_key in columns:
        made += bytes([is_key]) + column.encode() + b"\0" + struct.pack(">Ii", 25, -1)
    return made


def known(relation: Relation, position: int | None) -> KnownTable | None:
    return None if relation.name == "other" else KnownTable(f"public.{relation.name}", relation, ("id",), {})


def decoded(*messages: bytes) -> list[dict[str, object]]:
    into = Decoded()
    transaction = Transaction(7, 1_000_000, 100, list(messages), 0, len(messages))
    Decoder("shop", known).decode([transaction], into)
    return [record for batch in into.batches for record in batch.to_pylist()]


def row_message(kind: bytes, oid: int, *tuples_of: tuple[bytes, Sequence[object]]) -> bytes:
    return kind + struct.pack(">I", oid) + b"".join(mark + tuple_data(row) for mark, row in tuples_of)


COLUMNS = (("id", True), ("word", False))


def test_messages_in_one_order_with_all_tables() -> None:
    made = decoded(
        b"O" + struct.pack(">Q", 5) + b"origin\0",
        relation_message(1, "a", COLUMNS),
        relation_message(2, "b", COLUMNS),
        relation_message(3, "other", COLUMNS),
        row_message(b"I", 1, (b"N", ["1", "x"])),
        row_message(b"I", 3, (b"N", ["1", "x"])),
        row_message(b"I", 2, (b"N", ["1", None])),
        row_message(b"U", 1, (b"N", ["1", ...])),
        row_message(b"U", 1, (b"K", ["1", None]), (b"N", ["2", "y"])),
        row_message(b"D", 2, (b"K", ["1", None])),
        row_message(b"I", 1, (b"N", ["3", "z"])),
        b"T" + struct.pack(">IB", 2, 0) + struct.pack(">II", 1, 3),
        b"M\x01" + struct.pack(">Q", 9) + b"somebody\0" + struct.pack(">I", 1) + b"x",
        relation_message(1, "a", (*COLUMNS, ("more", False))),
        row_message(b"I", 1, (b"N", ["4", "z", "m"])),
    )
    assert [(each["table"], each["op"], each["key"], each["row"], each["unchanged"]) for each in made] == [
        ("public.a", "c", None, '{"id":"1","word":"x"}', None),
        ("public.b", "c", None, '{"id":"1","word":null}', None),
        ("public.a", "u", None, '{"id":"1"}', ["word"]),
        ("public.a", "u", '{"id":"1"}', '{"id":"2","word":"y"}', None),
        ("public.b", "d", '{"id":"1"}', None, None),
        ("public.a", "c", None, '{"id":"3","word":"z"}', None),
        ("public.a", "t", None, None, None),
        ("public.a", "c", None, '{"id":"4","word":"z","more":"m"}', None),
    ]
    indexes = [each["_rw_index"] for each in made]
    assert indexes == [4, 6, 7, 8, 9, 10, 11, 14]
    assert {each["_rw_offset"] for each in made} == {100}


def test_old_values_fill_unchanged_ones() -> None:
    made = decoded(
        relation_message(1, "a", COLUMNS),
        row_message(b"U", 1, (b"O", ["1", "large"]), (b"N", ["1", ...])),
        row_message(b"U", 1, (b"K", ["long key", None]), (b"N", [..., "y"])),
    )
    assert [(each["key"], each["row"], each["unchanged"]) for each in made] == [
        (None, '{"id":"1","word":"large"}', None),
        (None, '{"id":"long key","word":"y"}', None),
    ]


def test_messages_that_nothing_announced() -> None:
    with pytest.raises(BrokenMessageError, match="a row of the unknown relation 9"):
        decoded(row_message(b"I", 9, (b"N", ["1", "x"])))
    with pytest.raises(BrokenMessageError, match="a message of the unknown kind 'Z'"):
        decoded(b"Zzz")
    with pytest.raises(BrokenMessageError, match="broken Relation message"):
        pgoutput.parse_relation(relation_message(1, "a", COLUMNS)[:-3])


def test_changes_that_are_ignored_need_no_table_and_later_ones_no_other_relation() -> None:
    """The server describes a relation once. Its table may have had another form at the position of the description."""
    asked: list[tuple[str, int | None]] = []

    def on_relation(relation: Relation, position: int | None) -> KnownTable | None:
        asked.append((relation.name, position))
        return known(relation, position)

    decoder = Decoder("shop", on_relation, lambda relation, _: 20 if relation.name == "a" else -1)
    described = [relation_message(oid, name, COLUMNS) for oid, name in ((1, "a"), (2, "b"))]
    into = Decoded()

    def change(position: int, id_: str) -> Transaction:
        rows = [row_message(b"I", oid, (b"N", [id_, "x"])) for oid in (1, 2)]
        rows.append(b"T" + struct.pack(">IB", 1, 0) + struct.pack(">I", 1))
        messages = [*described, *rows] if position == 10 else rows
        return Transaction(7, 1_000_000, position, messages, 0, len(messages))

    decoder.decode([change(10, "1")], into)
    decoder.refresh()
    decoder.decode([change(20, "2"), change(21, "3"), change(30, "4")], into)
    decoder.refresh()
    made = [record for batch in into.batches for record in batch.to_pylist()]
    ops = [(each["table"], each["op"], each["_rw_offset"]) for each in made]
    assert [each for each in ops if each[0] == "public.b"] == [("public.b", "c", at) for at in (10, 20, 21, 30)]
    assert [each[1:] for each in ops if each[0] == "public.a"] == [("c", 21), ("t", 21), ("c", 30), ("t", 30)]
    assert asked == [("b", 10), ("b", None), ("a", 21), ("a", None), ("b", None)]


def test_a_relation_is_ignored_until_its_table_has_its_present_form(monkeypatch: pytest.MonkeyPatch) -> None:
    def column(name: str, kind: int) -> CatalogColumn:
        return CatalogColumn(
            name=name, type=kind, modifier=-1, type_name="", is_required=False, is_generated=name == "made",
            default=None, is_readable=True,
        )  # fmt: skip

    now = {7: (column("id", 20), column("word", 25), column("made", 25))}
    monkeypatch.setattr(followed, "columns_of", lambda _, oid: now.get(oid, ()))
    progress = TableProgress(table="public.a", key_columns=("id",), identity="7/8/9", traits={followed.BEGIN: "50"})

    def ignored(oid: int, name: str, kinds: Sequence[int], position: int, *, is_key: bool = True) -> int:
        columns = tuple(
            RelationColumn(column, kind, -1, is_key and column == "id")
            for column, kind in zip(("id", "word"), kinds, strict=False)
        )
        relation, connection = Relation(oid, "public", name, "d", columns), cast("Any", None)
        names, tables = {("public", "a"): "public.a"}, {"public.a": progress}
        return followed.ignored_to(connection, relation, names, tables, position)

    assert ignored(7, "a", (20, 25), 10) == -1, "the present form"
    assert ignored(7, "a", (23, 25), 10) == 50, "a column of another type"
    assert ignored(7, "a", (20,), 10) == 50, "fewer columns"
    assert ignored(7, "a", (20, 25), 10, is_key=False) == 50, "another key"
    assert ignored(6, "a", (20, 25), 10) == 50, "another table of this name"
    assert ignored(7, "b", (20, 25), 10) == 50, "the table under another name"
    assert ignored(6, "b", (20, 25), 10) == -1, "a table that is not read"
    assert ignored(7, "a", (23, 25), 51) == -1
    assert followed.after_begin(progress).traits == {}


def test_a_transaction_in_a_file_has_its_messages_in_order() -> None:
    transaction = Transaction(1, 0)
    for number in range(10):
        transaction.messages.append(str(number).encode() * (number + 1))
        if number in (3, 6):
            transaction.spill()
    pieces = list(transaction.pieces(4, 1_000_000))
    assert b"".join(b"".join(piece) for piece in pieces) == b"".join(str(n).encode() * (n + 1) for n in range(10))
    assert max(map(len, pieces)) <= 4
