"""Rows that a target refuses are distinguished from an unreachable target, and named by index and column."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType

from rw_sql.cli.servers.kafka_topics import create_topic
from rw_sql.connectors.delta.sink import DeltaSink
from rw_sql.connectors.files.sink import FileSink
from rw_sql.connectors.jdbc.sink import JdbcSink
from rw_sql.connectors.jdbc.url import connect
from rw_sql.connectors.kafka import sink as kafka_sink
from rw_sql.connectors.kafka.sink import KafkaSink, KafkaWriter
from rw_sql.connectors.sink import (
    INSERT,
    OP,
    Refusal,
    RefusedRowsError,
    SinkError,
    SinkLook,
    SinkShape,
    TargetUnfitError,
)
from rw_sql.connectors.support.sink_values import refused_rows
from tests.support.postgres import PASSWORD, PostgresInfo, running_server
from tests.support.sink_batches import batch, shape

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.cli.servers.kafka_broker import BrokerInfo


def refused(writer: Any, rows: pa.Table) -> list[tuple[int, str | None, str]]:
    with pytest.raises(RefusedRowsError) as caught:
        writer.write(rows, 0)
    assert not caught.value.is_rest_written
    return [(each.index, each.column, each.reason) for each in caught.value.refusals]


def test_refused_rows_are_found_by_halves() -> None:
    tried: list[int] = []

    def attempt(rows: pa.Table) -> Refusal | None:
        tried.append(rows.num_rows)
        bad = [n for n in rows["n"].to_pylist() if n in (3, 4, 900)]
        return Refusal(index=0, reason=str(bad[0])) if bad else None

    rows = pa.table({"n": range(1000)})
    assert [each.index for each in refused_rows(rows, attempt)] == [3, 4, 900]
    assert len(tried) < 60
    assert [each.index for each in refused_rows(rows, attempt, only_first=True)] == [3]
    assert refused_rows(rows.slice(0, 3), attempt) == []


VALUES = SinkShape(
    name="k",
    type="append-only",
    schema=json.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": kind, "nullable": True, "metadata": {}}
                for name, kind in (
                    ("id", "integer"), ("short", "string"), ("n", "long"), ("d", "decimal(20,2)"), ("day", "date"),
                    ("mood", "string"), ("doc", "string"), ("u", "string"), ("of", "integer"),
                )
            ],
        }
    ),
)  # fmt: skip
ARROW = pa.schema(
    [
        ("id", pa.int32()), ("short", pa.string()), ("n", pa.int64()), ("d", pa.decimal128(20, 2)),
        ("day", pa.date32()), ("mood", pa.string()), ("doc", pa.string()), ("u", pa.string()), ("of", pa.int32()),
        (OP, pa.string()),
    ]
)  # fmt: skip


def values(*rows: dict[str, Any]) -> pa.Table:
    given = [dict.fromkeys(ARROW.names) | {OP: INSERT} | row for row in rows]
    return pa.Table.from_pylist(given, ARROW)


@pytest.mark.postgres
def test_postgres_names_the_row_and_the_column(postgres: PostgresInfo) -> None:
    name = f"t_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE TYPE {name}_mood AS ENUM ('well', 'ill')")
    postgres.run(f"CREATE DOMAIN {name}_year AS BIGINT CHECK (value > 1900)")
    postgres.run(
        f"CREATE TABLE {name} (id INT NOT NULL UNIQUE, short VARCHAR(3), n SMALLINT CHECK (n <> 13), "
        f"d NUMERIC(6, 2), day DATE, mood {name}_mood, doc JSONB, u UUID, "
        f"of INT REFERENCES {name} (id) DEFERRABLE INITIALLY DEFERRED)"
    )
    given = {"jdbc.url": postgres.url, "user": "postgres", "password": PASSWORD, "table.name": name}
    cases: list[tuple[dict[str, Any], str | None, str]] = [
        ({"short": "a\0b"}, "short", "PostgreSQL's text cannot contain the character NUL (U+0000)"),
        ({"short": "long"}, "short", "value too long for type character varying(3)"),
        ({"n": 70_000}, "n", 'value "70000" is out of range for type smallint'),
        ({"n": 13}, "n", f'new row for relation "{name}" violates check constraint "{name}_n_check"'),
        ({"d": Decimal("123456.00")}, "d", "numeric field overflow"),
        ({"mood": "so so"}, "mood", f'invalid input value for enum {name}_mood: "so so"'),
        ({"doc": "{"}, "doc", "invalid input syntax for type json"),
        ({"doc": '{"a": "\\u0000"}'}, "doc", "unsupported Unicode escape sequence"),
        ({"u": "no"}, "u", 'invalid input syntax for type uuid: "no"'),
        ({"id": None}, "id", f'null value in column "id" of relation "{name}" violates not-null constraint'),
        ({"id": 1}, "id", f'duplicate key value violates unique constraint "{name}_id_key" '
                          "(Key (id)=(1) already exists)"),
        ({"of": 99}, "of", f'insert or update on table "{name}" violates foreign key constraint "{name}_of_fkey" '
                           f'(Key (of)=(99) is not present in table "{name}")'),
    ]  # fmt: skip
    good = [{"id": n, "short": "ok", "day": date(2024, 2, 29)} for n in range(1, 5)]
    rows = values(*good, *({"id": 100 + at} | case for at, (case, _, _) in enumerate(cases)), {"id": 500})
    skipping = JdbcSink().open(given | {"on_error": "skip"}, VALUES, "me")
    assert refused(skipping, rows) == [(4 + at, column, why) for at, (_, column, why) in enumerate(cases)]
    assert postgres.run(f"SELECT * FROM {name}") == []
    # With ``only_first``, only the first refused row is reported; without that row, the batch continues.
    stopping = JdbcSink().open(given, VALUES, "me")
    assert refused(stopping, rows) == [(4, cases[0][1], cases[0][2])]
    skipping.write(rows.take(pa.array([0, 1, 2, 3, rows.num_rows - 1])), 0)
    assert postgres.run(f"SELECT id FROM {name} ORDER BY id") == [(1,), (2,), (3,), (4,), (500,)]
    postgres.run(f"ALTER TABLE {name} RENAME COLUMN short TO shorter")
    with pytest.raises(TargetUnfitError, match='column "short" of relation'):
        skipping.write(rows, 1)
    skipping.close()
    with pytest.raises(SinkError) as away:
        skipping.write(rows, 2)
    assert type(away.value) is SinkError
    stopping.close()


@pytest.mark.postgres
@pytest.mark.parametrize(
    "code", ["AB123", "45000", "insufficient_privilege", "undefined_table", "query_canceled", "internal_error"]
)
@pytest.mark.parametrize("type_", ["append-only", "upsert"])
def test_a_row_that_a_trigger_refuses_with_its_own_code(postgres: PostgresInfo, code: str, type_: str) -> None:
    name = f"t_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE TABLE {name} (id INT PRIMARY KEY, word TEXT)")
    postgres.run(
        f"CREATE FUNCTION {name}_f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF new.word = 'no' THEN "
        f"RAISE EXCEPTION 'not this word' USING ERRCODE = '{code}'; END IF; RETURN new; END $$"
    )
    postgres.run(f"CREATE TRIGGER t BEFORE INSERT ON {name} FOR EACH ROW EXECUTE FUNCTION {name}_f()")
    given = {"jdbc.url": postgres.url, "user": "postgres", "password": PASSWORD, "table.name": name}
    writer = JdbcSink().open(given | {"on_error": "skip"}, shape(type_, *(["id"] if type_ == "upsert" else [])), "me")
    assert refused(writer, batch((1, "a"), (2, "no"), (3, "b"))) == [(1, None, "not this word")]
    writer.write(batch((1, "a"), (3, "b")), 1)
    writer.close()


@pytest.mark.postgres
def test_a_lock_and_a_timeout_refuse_no_row(postgres: PostgresInfo) -> None:
    name = f"t_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE TABLE {name} (id INT, word TEXT)")
    given = {"jdbc.url": postgres.url, "user": "postgres", "password": PASSWORD, "table.name": name}
    writer = JdbcSink().open(given | {"jdbc.query.timeout": "1"}, shape(), "me")
    with connect(given, 8.0) as other:
        other.execute(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE".encode())
        with pytest.raises(SinkError) as late:
            writer.write(batch((1, "a")), 0)
        assert type(late.value) is SinkError
        assert str(late.value) == (
            "canceling statement due to statement timeout: ALTER SINK … CONNECTOR WITH (jdbc.query.timeout = '2') "
            "gives a batch more time"
        )
        writer._connection.execute("SET lock_timeout = '100ms'")
        writer._connection.commit()
        with pytest.raises(SinkError) as locked:
            writer.write(batch((1, "a")), 0)
        assert type(locked.value) is SinkError
        assert "lock timeout" in str(locked.value)
    writer.write(batch((1, "a")), 0)
    writer.close()


@pytest.mark.postgres
@pytest.mark.parametrize("column", ["a b", "a.b", 'a"b', "a%sb", "$1", "日本", "a: b", "a, null", "a", "key", "line 1"])
def test_a_column_with_an_odd_name_is_named(postgres: PostgresInfo, column: str) -> None:
    name, quoted = f"t %s {uuid.uuid4().hex[:8]}", column.replace('"', '""')
    postgres.run(f'CREATE TABLE "{name}" ("{quoted}" INT, "a: " INT)')
    fields = [{"name": each, "type": "string", "nullable": True, "metadata": {}} for each in (column, "a: ")]
    of = SinkShape(name="k", type="append-only", schema=json.dumps({"type": "struct", "fields": fields}))
    given = {"jdbc.url": postgres.url, "user": "postgres", "password": PASSWORD, "table.name": name}
    writer = JdbcSink().open(given | {"on_error": "skip"}, of, "me")
    rows = pa.table({column: ["1", "b: x", ", null"], "a: ": ["1", "1", "1"], OP: [INSERT] * 3})
    assert [(at, named) for at, named, _ in refused(writer, rows)] == [(1, column), (2, column)]
    writer.close()


@pytest.mark.postgres
def test_dates_that_python_does_not_have_are_refused_by_name(
    postgres: PostgresInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"t_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE TABLE {name} (id INT, day DATE)")
    schema = {"type": "struct", "fields": [
        {"name": column, "type": kind, "nullable": True, "metadata": {}}
        for column, kind in (("id", "integer"), ("day", "date"))
    ]}  # fmt: skip
    of = SinkShape(name="k", type="append-only", schema=json.dumps(schema), encode="JSON")
    days = pa.array([0, 10_000_000, None, -1_000_000], pa.int32()).cast(pa.date32())
    rows = pa.table({"id": pa.array([1, 2, 3, 4], pa.int32()), "day": days, OP: [INSERT] * 4})
    why = "a date or time lies outside of the years 1 to 9999"
    given = {"jdbc.url": postgres.url, "user": "postgres", "password": PASSWORD, "table.name": name}
    jdbc = JdbcSink().open(given | {"on_error": "skip"}, of, "me")
    assert refused(jdbc, rows) == [(1, "day", why), (3, "day", why)]

    def lose_the_connection(_: pa.Table, **_known: bool) -> Any:
        raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(jdbc, "_refusals", lose_the_connection)
    with pytest.raises(SinkError) as away:
        jdbc.write(rows, 0)
    assert (type(away.value), str(away.value)) == (SinkError, "the connection is lost")
    jdbc.close()
    assert refused(FileSink().open({"fs.path": str(tmp_path)}, of, "me"), rows) == [(1, "day", why), (3, "day", why)]


@pytest.mark.postgres
def test_an_upsert_names_the_row_that_counts_of_its_key(postgres: PostgresInfo) -> None:
    name = f"t_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE TABLE {name} (id INT PRIMARY KEY, word TEXT CHECK (word <> 'no'))")
    given = {"jdbc.url": postgres.url, "user": "postgres", "password": PASSWORD, "table.name": name}
    writer = JdbcSink().open(given | {"on_error": "skip"}, shape("upsert", "id"), "me")
    rows = batch((1, "a"), (2, "no"), (1, "no"), (2, "b"), (3, "c", "delete"))
    assert [(at, column) for at, column, _ in refused(writer, rows)] == [(2, "word")]
    writer.close()


@pytest.mark.postgres
def test_many_refused_rows_need_few_locks() -> None:
    """Every attempt to find the refused rows uses the same temporary tables, whose locks stay until the end."""
    with running_server(max_locks_per_transaction="10", max_connections="10") as server:
        # A temporary table with a column of texts is three relations.
        server.run("CREATE TABLE t (id INT PRIMARY KEY, word TEXT CHECK (word <> 'no'))")
        server.run("INSERT INTO t SELECT n, 'old' FROM generate_series(1, 20) n")
        given = {"jdbc.url": server.info.url, "user": "postgres", "password": PASSWORD, "table.name": "t"}
        writer = JdbcSink().open(given | {"on_error": "skip"}, shape("upsert", "id"), "me")
        gone = [(id_, None, "delete") for id_ in range(1, 11)]
        rows = batch(*gone, *((id_, "no" if id_ % 40 == 0 else "ok") for id_ in range(100, 3100)))
        found = refused(writer, rows)
        assert [at for at, _, _ in found] == [at for at in range(10, 3010) if (at + 90) % 40 == 0]
        assert {column for _, column, _ in found} == {"word"}
        assert server.run("SELECT count(*) FROM t") == [(20,)]
        left = [at for at in range(rows.num_rows) if at not in {index for index, _, _ in found}]
        writer.write(rows.take(pa.array(left)), 0)
        writer.close()
        assert server.run("SELECT count(*), count(*) FILTER (WHERE id <= 10) FROM t") == [(10 + 2925, 0)]


@pytest.mark.postgres
def test_characters_are_replaced_where_that_is_asked_for(postgres: PostgresInfo) -> None:
    name = f"d_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(
        host="127.0.0.1", port=postgres.port, user="postgres", password=PASSWORD, dbname="postgres", autocommit=True
    ) as admin:
        admin.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0".encode())
    given = {"jdbc.url": postgres.url, "user": "postgres", "password": PASSWORD, "table.name": "t"}
    latin = given | {"jdbc.url": postgres.url.replace("/postgres", f"/{name}")}
    rows = batch((1, "a\0b"), (2, "é漢"))
    expected = {"utf": ["a\ufffdb", "é漢"], "latin": ["a?b", "é?"]}
    for label, options in (("utf", given), ("latin", latin)):
        table = f"t_{uuid.uuid4().hex[:8]}"
        options = options | {"table.name": table}
        with connect(options, 8.0) as connection:
            connection.execute(f"CREATE TABLE {table} (id INT, word VARCHAR(3))".encode())
        plain = JdbcSink().open(options | {"on_error": "skip"}, shape(), "me")
        assert [at for at, _, _ in refused(plain, rows)] == ([0] if label == "utf" else [0, 1])
        plain.close()
        writer = JdbcSink().open(options | {"on_error": "replace"}, shape(), "me")
        writer.write(rows, 0)
        assert refused(writer, batch((3, "long"))) == [(0, "word", "value too long for type character varying(3)")]
        writer.close()
        with connect(options, 8.0) as connection:
            connection.execute("SET client_encoding TO 'UTF8'")
            assert [row[0] for row in connection.execute(f"SELECT word FROM {table} ORDER BY id".encode())] == (
                expected[label]
            )


def test_delta_names_the_row_and_the_column(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    table = DeltaTable.create(
        path, Schema([Field("id", PrimitiveType("integer"), nullable=False), Field("word", PrimitiveType("string"))])
    )
    table.alter.add_constraint({"small": "id < 100"})
    rows = batch((1, "a"), (200, "b"), (None, "c"), (3, "d"))
    for of in (shape("append-only"), shape("upsert", "word")):
        writer = DeltaSink().open({"location": path}, of, f"me {of.type}")
        writer.fence(1, 1)
        assert refused(writer, rows) == [
            (1, "id", 'the constraint "small" CHECK (id < 100) is violated'),
            (2, "id", "the table does not allow NULL"),
        ]
        writer.write(rows.take(pa.array([0, 3])), 0)
    assert sorted(row["id"] for row in DeltaTable(path).to_pyarrow_table().to_pylist()) == [1, 3]
    write_deltalake(path, pa.table({"id": [1], "word": [1]}), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(TargetUnfitError, match="Cast error"):
        writer.write(batch((1, "a")), 1)


@pytest.mark.kafka
def test_kafka_distinguishes_its_own_limit_from_that_of_the_brokers(broker: BrokerInfo, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    given = {"properties.bootstrap.server": broker.bootstrap, "topic": topic_name}
    rows = batch((1, "a"), (2, "x" * 1_500_000), (3, "c"))
    writer = KafkaSink().open(given, shape(encode="JSON"), "me")
    with pytest.raises(RefusedRowsError) as own:
        writer.write(rows, 0)
    (told,) = own.value.refusals
    assert told.index == 1
    assert told.reason.endswith("is larger than this sink's own limit, properties.message.max.bytes = 1000000")
    assert told.hint == "CONNECTOR WITH (properties.message.max.bytes = '3000036')"
    assert not own.value.is_rest_written
    writer.close()
    writer = KafkaSink().open(given | {"properties.message.max.bytes": "3000036"}, shape(encode="JSON"), "me")
    with pytest.raises(RefusedRowsError) as theirs:
        writer.write(rows, 0)
    (told,) = theirs.value.refusals
    assert told.index == 1
    assert f'larger than the brokers accept: the limit is max.message.bytes of topic "{topic_name}"' in told.reason
    assert theirs.value.is_rest_written
    writer.close()


@pytest.mark.kafka
def test_small_records_are_not_refused_because_they_are_sent_together(broker: BrokerInfo, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, 1, {"max.message.bytes": "10000"})
    given = {"properties.bootstrap.server": broker.bootstrap, "topic": topic_name}
    rows = batch(*((number, "x" * 1_000) for number in range(100)), (100, "y" * 20_000), (101, "z"))
    knowing = KafkaSink().open(given, shape(encode="JSON"), "me")
    # As a user who may not ask for the topic's settings.
    trying = KafkaWriter(KafkaSink().spec, given, shape(encode="JSON"))
    for writer in (knowing, trying):
        with pytest.raises(RefusedRowsError) as caught:
            writer.write(rows, 0)
        assert [told.index for told in caught.value.refusals] == [100]
        assert caught.value.is_rest_written
        writer.write(batch(*((number, "x" * 1_000) for number in range(100))), 1)
        writer.close()


@pytest.mark.kafka
def test_a_compacted_topic_takes_no_records_without_a_key(broker: BrokerInfo, topic_name: str) -> None:
    """CREATE SINK finds that, and so does a running sink whose topic is changed."""
    given = {"properties.bootstrap.server": broker.bootstrap, "topic": topic_name}
    create_topic(broker.bootstrap, topic_name, 1, {"cleanup.policy": "compact,delete"})
    why = f'topic "{topic_name}" is compacted, so its records need a key, and this sink has no primary key'
    look = KafkaSink().look(given, shape(encode="JSON"))
    assert (look.misfit, look.hint) == (why, "primary_key = '…' in WITH names the columns of the key")
    assert KafkaSink().look(given, shape("append-only", "id", encode="JSON")) == SinkLook()
    writer = KafkaSink().open(given, shape(encode="JSON"), "me")
    with pytest.raises(TargetUnfitError) as caught:
        writer.write(batch((1, "a"), (2, "b")), 0)
    assert str(caught.value) == why
    writer.close()


@pytest.mark.kafka
def test_brokers_that_do_not_take_a_record_are_not_away(
    broker: BrokerInfo, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the records without a key stand for those that brokers refuse for another reason, such as their schema."""
    create_topic(broker.bootstrap, topic_name, 1, {"cleanup.policy": "compact"})
    given = {"properties.bootstrap.server": broker.bootstrap, "topic": topic_name}
    of = replace(shape("upsert", "id", encode="JSON"), key_encode="TEXT")

    def keys(rows: pa.Table, column: str) -> list[bytes | None]:
        return [None if number in (3, 5) else b"k" for number in rows[column].to_pylist()]

    monkeypatch.setattr(kafka_sink, "plain_keys", keys)
    writer = KafkaSink().open(given, of, "me")
    rows = batch(*((number, "a") for number in range(8)))
    with pytest.raises(RefusedRowsError) as caught:
        writer.write(rows, 0)
    why = f'topic "{topic_name}" does not accept its record: Broker: Broker failed to validate record'
    assert [(told.index, told.reason, told.hint) for told in caught.value.refusals] == [(3, why, None), (5, why, None)]
    assert caught.value.is_rest_written
    writer.write(rows.take(pa.array([0, 1, 2])), 1)
    writer.close()
    counted = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": uuid.uuid4().hex})
    assert counted.get_watermark_offsets(TopicPartition(topic_name, 0), timeout=20)[1] == 6 + 3
    counted.close()
