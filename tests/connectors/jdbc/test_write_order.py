"""Rows of a batch that conflict only until other rows of the batch are written are no refused rows."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest

from rw_sql.connectors.jdbc import writer as jdbc_writer
from rw_sql.connectors.jdbc.sink import JdbcSink
from rw_sql.connectors.jdbc.write_order import _sorted
from rw_sql.connectors.jdbc.writer import JdbcWriter
from rw_sql.connectors.sink import DELETE, OP, UPDATE, RefusedRowsError, SinkError, SinkShape
from rw_sql.runtime.sinks.part_writer import PartWriter
from tests.support.postgres import PASSWORD, PostgresInfo
from tests.support.sink_batches import batch, shape

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.connectors.sink import SinkWriter

UPSERT = shape("upsert", "id")


def test_a_number_follows_the_numbers_that_it_waits_for() -> None:
    assert list(_sorted(3, [])) == [0, 1, 2]
    assert list(_sorted(4, [(3, 0), (0, 2), (2, 1)])) == [3, 0, 2, 1]
    assert list(_sorted(5, [(1, 3), (3, 1), (4, 0), (1, 2)])) == [4, 0, 1, 2, 3]


class Target:
    """A table (id PRIMARY KEY, word) with rows, and its sink."""

    def __init__(self, server: PostgresInfo, columns: str, **options: str) -> None:
        self.server, self.name = server, f"t_{uuid.uuid4().hex[:8]}"
        server.run(f"CREATE TABLE {self.name} ({columns.replace('$t', self.name)})")
        self.options = {
            "jdbc.url": server.url, "user": "postgres", "password": PASSWORD, "table.name": self.name, **options
        }  # fmt: skip

    def writer(self, of: SinkShape = UPSERT) -> SinkWriter:
        return JdbcSink().open(self.options, of, "me")

    def write(self, *rows: Any, of: SinkShape = UPSERT) -> list[tuple[int, str | None]]:
        """Writes a batch; returns the refused rows."""
        opened = self.writer(of)
        try:
            opened.write(batch(*rows), 0)
        except RefusedRowsError as error:
            return [(each.index, each.column) for each in error.refusals]
        finally:
            opened.close()
        return []

    def rows(self) -> list[Any]:
        return self.server.run(f"SELECT id, word::text FROM {self.name} ORDER BY id")


def attempts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of rows that the writer tries to write together, after a batch has failed."""
    tried: list[int] = []
    attempt = JdbcWriter._attempt

    def note(writer: JdbcWriter, rows: pa.Table) -> Any:
        tried.append(rows.num_rows)
        return attempt(writer, rows)

    monkeypatch.setattr(JdbcWriter, "_attempt", note)
    return tried


@pytest.fixture(params=["stop", "skip"])
def make(postgres: PostgresInfo, request: pytest.FixtureRequest) -> Callable[[str], Target]:
    """Makes a target, for each value of ``on_error``."""
    return lambda columns: Target(postgres, columns, on_error=request.param)


@pytest.mark.postgres
@pytest.mark.parametrize(
    "columns",
    [
        "id INT PRIMARY KEY, word TEXT UNIQUE",
        "id INT PRIMARY KEY, word TEXT, UNIQUE NULLS NOT DISTINCT (word)",
        "id INT PRIMARY KEY, word TEXT, EXCLUDE (word WITH =)",
        "id INT PRIMARY KEY, word TEXT, UNIQUE (word) INCLUDE (id)",
    ],
)
def test_a_unique_value_moves_from_one_key_to_another(make: Callable[[str], Target], columns: str) -> None:
    target = make(columns)
    assert target.write((1, "x"), (2, "z"), (3, "q")) == []
    assert target.write((2, "x", UPDATE), (1, "y", UPDATE), (4, "z")) == []
    assert target.rows() == [(1, "y"), (2, "x"), (3, "q"), (4, "z")]
    # A value of a deleted row is free, and a value of a row that keeps it is not.
    assert target.write((5, "y"), (1, "y", DELETE)) == []
    assert target.write((6, "q"), (7, "p")) == [(0, "word")]
    assert target.rows() == [(2, "x"), (3, "q"), (4, "z"), (5, "y")]


@pytest.mark.postgres
@pytest.mark.parametrize("index", ["(lower(word))", "(word) WHERE id < 100"])
def test_a_value_moves_that_only_an_index_makes_unique(make: Callable[[str], Target], index: str) -> None:
    target = make("id INT PRIMARY KEY, word TEXT")
    target.server.run(f"CREATE UNIQUE INDEX ON {target.name} {index}")
    assert target.write((1, "x"), (2, "z"), (3, "q")) == []
    assert target.write((3, "z", UPDATE), (2, "x", UPDATE), (1, "y", UPDATE)) == []
    assert target.rows() == [(1, "y"), (2, "x"), (3, "z")]


@pytest.mark.postgres
def test_a_long_chain_of_moves_is_written_at_once(postgres: PostgresInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a ranking, in which every row takes the rank of the next one."""
    target = Target(postgres, "id INT PRIMARY KEY, word TEXT UNIQUE")
    ids = list(range(200))
    Random(1).shuffle(ids)
    assert target.write(*((id_, f"{id_:03}") for id_ in ids)) == []
    tried = attempts(monkeypatch)
    assert target.write(*((id_, f"{id_ + 1:03}", UPDATE) for id_ in ids)) == []
    assert tried == [200]
    assert target.rows() == [(id_, f"{id_ + 1:03}") for id_ in range(200)]


@pytest.mark.postgres
def test_the_search_for_one_refused_row_ends_after_many_conflicts(
    postgres: PostgresInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target(postgres, "id INT PRIMARY KEY, word TEXT UNIQUE", on_error="stop")
    assert target.write(*((id_, f"{id_}") for id_ in range(100))) == []
    monkeypatch.setattr(jdbc_writer, "_MOST_CONFLICTS", 2)
    tried = attempts(monkeypatch)
    ((at, column),) = target.write((1000, "good"), *((100 + id_, f"{id_}") for id_ in range(100)))
    assert (at > 0, column) == (True, "word")
    assert len(tried) < 50


@pytest.mark.postgres
@pytest.mark.parametrize("order", [(1, 2, 3, 4, 5), (5, 4, 3, 2, 1), (3, 1, 4, 5, 2), (1, 3, 2, 5, 4)])
def test_a_batch_that_is_valid_is_written_despite_many_conflicts(
    postgres: PostgresInfo, monkeypatch: pytest.MonkeyPatch, order: tuple[int, ...]
) -> None:
    target = Target(postgres, "id INT PRIMARY KEY, word TEXT, EXCLUDE (word WITH =)", on_error="stop")
    assert target.write(*((id_, f"{id_}") for id_ in order)) == []
    monkeypatch.setattr(jdbc_writer, "_MOST_CONFLICTS", 2)
    assert target.write(*((id_, f"{id_ + 1}", UPDATE) for id_ in order)) == []
    assert target.rows() == [(id_, f"{id_ + 1}") for id_ in range(1, 6)]


def fail_to_sort(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Every call of holders_first exceeds the time limit; returns the calls."""
    calls: list[None] = []

    def cancel(*_: Any, **_keys: Any) -> Any:
        calls.append(None)
        raise psycopg.errors.QueryCanceled("canceling statement due to statement timeout")

    monkeypatch.setattr(jdbc_writer, "holders_first", cancel)
    return calls


@pytest.mark.postgres
def test_a_batch_without_conflicts_is_searched_in_its_own_order(
    make: Callable[[str], Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = make("id INT PRIMARY KEY, word TEXT UNIQUE CHECK (word <> 'bad')")
    calls = fail_to_sort(monkeypatch)
    assert target.write((1, "x"), (2, "bad"), (3, "y")) == [(1, "word")]
    assert calls == []


@pytest.mark.postgres
def test_a_search_goes_on_without_an_order_that_takes_too_long(
    make: Callable[[str], Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = make("id INT PRIMARY KEY, word TEXT UNIQUE CHECK (word <> 'bad')")
    assert target.write((1, "a"), (2, "b"), (3, "c")) == []
    calls = fail_to_sort(monkeypatch)
    moves = ((1, "b", UPDATE), (2, "c", UPDATE), (3, "d", UPDATE))
    assert target.write(*moves, (4, "bad")) == [(3, "word")]
    assert len(calls) == 1
    assert target.write(*moves) == []
    assert len(calls) == 2
    assert target.rows() == [(1, "b"), (2, "c"), (3, "d")]


@pytest.mark.postgres
def test_a_search_that_takes_too_long_names_the_option_for_more_time(
    postgres: PostgresInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target(postgres, "id INT PRIMARY KEY, word TEXT CHECK (word <> 'bad')")

    def cancel(*_: Any) -> Any:
        raise psycopg.errors.QueryCanceled("canceling statement due to statement timeout")

    monkeypatch.setattr(JdbcWriter, "_attempt", cancel)
    opened = target.writer()
    with pytest.raises(SinkError, match=r"ALTER SINK … CONNECTOR WITH \(jdbc.query.timeout = '\d+'\)"):
        opened.write(batch((1, "bad")), 0)
    opened.close()


@pytest.mark.postgres
def test_a_swap_needs_a_deferrable_constraint(make: Callable[[str], Target]) -> None:
    plain = make("id INT PRIMARY KEY, word TEXT UNIQUE")
    assert plain.write((1, "x"), (2, "y"), (3, "z")) == []
    skips = plain.options["on_error"] == "skip"
    swap = ((1, "y", UPDATE), (2, "x", UPDATE))
    assert plain.write(*swap, (3, "q", UPDATE)) == [(0, "word"), (1, "word")][: 2 if skips else 1]
    assert plain.rows() == [(1, "x"), (2, "y"), (3, "z")]
    for kind in ("DEFERRABLE", "DEFERRABLE INITIALLY DEFERRED"):
        target = make(f"id INT PRIMARY KEY, word TEXT UNIQUE {kind} CHECK (word <> 'bad')")
        assert target.write((1, "x"), (2, "y")) == []
        # Both rows are good, although each alone would be refused.
        assert target.write(*swap, (3, "bad")) == [(2, "word")]
        assert target.write(*swap, (3, "z")) == []
        assert target.rows() == [(1, "y"), (2, "x"), (3, "z")]


@pytest.mark.postgres
def test_a_value_that_a_refused_row_keeps_is_not_free(postgres: PostgresInfo) -> None:
    target = Target(postgres, "id INT PRIMARY KEY, word TEXT UNIQUE CHECK (word <> 'bad')", on_error="skip")
    assert target.write((1, "x"), (2, "y")) == []
    assert target.write((3, "q"), (2, "x", UPDATE), (1, "bad", UPDATE)) == [(1, "word"), (2, "word")]
    assert target.write((3, "q")) == []
    assert target.rows() == [(1, "x"), (2, "y"), (3, "q")]


PARENTS = "id INT PRIMARY KEY, word INT REFERENCES $t (id)"


@pytest.mark.postgres
@pytest.mark.parametrize("of", [UPSERT, shape()], ids=["upsert", "append-only"])
def test_a_row_comes_before_the_row_to_which_it_refers(postgres: PostgresInfo, of: SinkShape) -> None:
    target = Target(postgres, PARENTS, on_error="skip")
    rows = [(1, "3"), (2, "2"), (3, "4"), (4, None)]
    assert target.write(*rows, (5, "no number"), (6, "7"), of=of) == [(4, "word"), (5, "word")]
    assert target.write(*rows, of=of) == []
    assert target.rows() == rows


@pytest.mark.postgres
def test_a_row_is_deleted_to_which_another_row_has_referred(make: Callable[[str], Target]) -> None:
    target = make(PARENTS)
    assert target.write((1, None), (2, None), (3, "1")) == []
    assert target.write((1, None, DELETE), (3, "2", UPDATE)) == []
    assert target.rows() == [(2, None), (3, "2")]
    assert [at for at, _ in target.write((2, None, DELETE), (4, None))] == [0]
    assert target.rows() == [(2, None), (3, "2")]


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("columns", "accepts"),
    [
        ("id INT PRIMARY KEY, word TEXT", True),
        ("id NUMERIC PRIMARY KEY, word TEXT REFERENCES $t_words (word)", True),
        ("id INT PRIMARY KEY, word TEXT, UNIQUE (id)", True),
        ("id INT PRIMARY KEY, word TEXT UNIQUE", False),
        ("id INT PRIMARY KEY, word TEXT, UNIQUE (id, word)", False),
        ("id INT PRIMARY KEY, word TEXT, EXCLUDE (word WITH =)", False),
        ("id INT PRIMARY KEY, word INT REFERENCES $t", False),
        ("id REAL PRIMARY KEY, word TEXT", False),
        ("id NUMERIC(9, 1) PRIMARY KEY, word TEXT", False),
    ],
)
def test_a_batch_is_divided_only_if_rows_do_not_depend_on_each_other(
    postgres: PostgresInfo, columns: str, accepts: bool
) -> None:
    name = f"t_{uuid.uuid4().hex[:8]}_words"
    postgres.run(f"CREATE TABLE {name} (word TEXT PRIMARY KEY)")
    opened = Target(postgres, columns.replace("$t_words", name)).writer()
    assert isinstance(opened, PartWriter)
    assert opened.accepts_parts() == accepts
    opened.close()
    assert opened.accepts_parts()
    with pytest.raises(SinkError):
        opened.write_part(batch((1, "a")), 0)


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("column", "on_error", "accepts"),
    [
        ("TEXT", "stop", True),
        ("VARCHAR(9)", "skip", True),
        ("TEXT", "replace", False),
        ("UUID", "stop", False),
        ("CHAR(9)", "stop", False),
        ("TEXT COLLATE $c", "stop", False),
    ],
)
def test_a_batch_is_divided_only_if_different_keys_stay_different(
    postgres: PostgresInfo, column: str, on_error: str, accepts: bool
) -> None:
    collation = f"c_{uuid.uuid4().hex[:8]}"
    made = "(provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    postgres.run(f"CREATE COLLATION {collation} {made}")
    columns = f"id INT, word {column.replace('$c', collation)} PRIMARY KEY"
    opened = Target(postgres, columns, on_error=on_error).writer(shape("upsert", "word"))
    assert isinstance(opened, PartWriter)
    assert opened.accepts_parts() == accepts
    opened.close()


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("column", "kind", "arrow", "keys"),
    [
        ("TEXT[]", {"type": "array", "elementType": "string"}, pa.list_(pa.string()), [["a"], ["b"], ["a"], [None]]),
        (
            "JSONB",
            {"type": "map", "keyType": "string", "valueType": "integer"},
            pa.map_(pa.string(), pa.int32()),
            [[("a", 1)], [("b", 1)], [("a", 1)], []],
        ),
    ],
    ids=["array", "map"],
)
def test_keys_that_are_nested(postgres: PostgresInfo, column: str, kind: Any, arrow: pa.DataType, keys: Any) -> None:
    target = Target(postgres, f"id {column} PRIMARY KEY, word TEXT")
    fields = json.loads(UPSERT.schema)["fields"]
    fields[0]["type"] = kind
    of = replace(UPSERT, schema=json.dumps({"type": "struct", "fields": fields}))
    opened = target.writer(of)
    for number in range(2):
        words = [f"{at}{number}" for at in range(4)]
        opened.write(pa.table({"id": pa.array(keys, arrow), "word": words, OP: [UPDATE] * 4}), number)
        assert sorted(word for _, word in target.rows()) == [f"1{number}", f"2{number}", f"3{number}"]
    opened.write(pa.table({"id": pa.array(keys[:1], arrow), "word": ["gone"], OP: [DELETE]}), 2)
    assert sorted(word for _, word in target.rows()) == ["11", "31"]
    opened.close()
