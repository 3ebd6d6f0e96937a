"""Messages of Canal that change a row several times, and bytes at the edge of what a character can be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.model.definitions import source_definition
from rw_sql.runtime.decoding.decoder import ERROR, OFFSET, decode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

RECORDS = (
    "_rw_split string, _rw_offset long, key binary, value binary, partition string, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
Row = dict[str, Any]


def message(kind: str, data: Sequence[Row], old: Sequence[Row] | None = None) -> Row:
    return {"type": kind, "isDdl": False, "data": list(data), "old": None if old is None else list(old)}


def changes(spark: SparkSession, columns: str, messages: Sequence[Row]) -> list[list[tuple[Any, ...]]]:
    """The changes of each message: the kind, and the values of the columns, or the error."""
    statement = source_definition(
        f"CREATE SOURCE s ({columns}) WITH (connector = 'kafka', topic = 't', properties.bootstrap.server = 'h:1') "
        "FORMAT CANAL ENCODE JSON"
    )
    made = [("t:0", at, None, json.dumps(each).encode(), "0", None, None) for at, each in enumerate(messages)]
    frame = decode(spark.createDataFrame(made, RECORDS).coalesce(1), statement, run=0, batch=0, bucket=0)
    names = [column.name for column in statement.columns]
    found: list[list[tuple[Any, ...]]] = [[] for _ in messages]
    for row in frame.collect():
        told = (row[ERROR],) if row[ERROR] else (row["_rw_op"], *(row[name] for name in names))
        found[row[OFFSET]].append(told)
    return found


def rows(*pairs: tuple[str | None, str]) -> list[Row]:
    return [{"id": id_, "name": name} for id_, name in pairs]


def test_the_last_change_of_a_row_applies(spark: SparkSession) -> None:
    no_key = 'the primary key column "id" is missing'
    cases = [
        (message("INSERT", rows(("1", "a"), ("2", "b"), ("1", "c"))), [(1, 2, "b"), (1, 1, "c")]),
        (message("UPDATE", rows(("1", "a"), ("1", "b"), ("1", "c")), [{}, {}, {}]), [(1, 1, "c")]),
        (message("UPDATE", rows(("1", "a"), ("2", "b")), [{}, {}]), [(1, 1, "a"), (1, 2, "b")]),
        (message("DELETE", rows(("1", "a"), ("1", "a"), ("3", "c"))), [(-1, 1, None), (-1, 3, None)]),
        # A row that moves to another key and back.
        (message("UPDATE", rows(("2", "a"), ("1", "b")), [{"id": "1"}, {"id": "2"}]), [(-1, 2, None), (1, 1, "b")]),
        # A row without a key is an error and replaces no other row.
        (message("INSERT", rows((None, "a"), ("1", "b"), (None, "c"), ("1", "d"))), [(no_key,)] * 2 + [(1, 1, "d")]),
        (message("INSERT", []), []),
    ]  # fmt: skip
    found = changes(spark, "id INT, name VARCHAR, PRIMARY KEY (id)", [each for each, _ in cases])
    assert found == [wanted for _, wanted in cases]


def test_the_last_change_of_a_row_with_a_key_of_several_columns_applies(spark: SparkSession) -> None:
    # With the parts of a key in one text, different keys may look alike.
    keys = [("1", 'x","y'), ("1", "x"), ('1","x', "y"), ("1", "x"), ("null", "x"), ("1", 'x","y')]
    data = [{"a": a, "b": b, "n": str(at)} for at, (a, b) in enumerate(keys)]
    missing = {"a": None, "b": "x", "n": "9"}
    (found,) = changes(
        spark, "a VARCHAR, b VARCHAR, n INT, PRIMARY KEY (a, b)", [message("INSERT", [*data, missing, missing])]
    )
    error = ('the primary key column "a" is missing',)
    assert found == [(1, '1","x', "y", 2), (1, "1", "x", 3), (1, "null", "x", 4), (1, "1", 'x","y', 5), error, error]


def test_a_long_message_takes_no_minutes(spark: SparkSession) -> None:
    count = 5000
    data = rows(*((str(at % (count - 1)), str(at)) for at in range(count)))
    (found,) = changes(spark, "id INT, name VARCHAR, PRIMARY KEY (id)", [message("UPDATE", data, [{}] * count)])
    assert found == [(1, at % (count - 1), str(at)) for at in range(1, count)]


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\x85", "\u2028", "\u2029"])
def test_bytes_are_characters_up_to_255(spark: SparkSession, end: str) -> None:
    texts = [f"a\xff{end}", f"{end}a", end]
    data = [{"id": str(at), "raw": text} for at, text in enumerate(texts)]
    (found,) = changes(spark, "id INT, raw BYTEA, PRIMARY KEY (id)", [message("INSERT", data)])
    if end in ("\u2028", "\u2029"):
        assert found == [(f'column "raw": {text} is not of type BYTEA',) for text in texts]
    else:
        assert found == [(1, at, text.encode("latin-1")) for at, text in enumerate(texts)]
