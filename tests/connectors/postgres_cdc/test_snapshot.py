"""Snapshots beside the stream: changes between the reading of a chunk and the moment it leaves."""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from rw_sql.connectors.changes import CaptureError, TableProgress
from rw_sql.connectors.postgres_cdc import setup
from rw_sql.connectors.postgres_cdc import snapshot as snapshot_module
from rw_sql.connectors.postgres_cdc.connection import lsn_number
from rw_sql.connectors.postgres_cdc.txid_snapshot import Snapshot
from tests.support.postgres import PASSWORD, running_server
from tests.support.postgres_changes import TIMEOUT, Replica, cdc_options, create_tables
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.postgres import PostgresInfo

pytestmark = pytest.mark.postgres

BIG = "repeat('é', 1500)"


@pytest.fixture
def schema() -> str:
    return f"s_{uuid.uuid4().hex[:8]}"


@pytest.fixture
def replica(postgres: PostgresInfo, schema: str) -> Iterator[Replica]:
    """A table of 30 rows with values that are stored apart, to be read in chunks of 10."""
    create_tables(postgres, schema)
    postgres.run(f"INSERT INTO {schema}.plain SELECT i, 'first', {BIG} || i, i FROM generate_series(1, 30) i")
    made = Replica(cdc_options(postgres), [f"{schema}.plain"], chunk_rows=10)
    yield made
    made.drop()


def open_with_chunk(replica: Replica) -> Any:
    """A reader that has read the first chunk, which has not left."""
    reader = replica.open()
    snapshot = reader._snapshot
    assert snapshot is not None
    wait_until(lambda: snapshot.first() is not None, "a chunk is read")
    return snapshot


def change_before_chunk_leaves(replica: Replica, postgres: PostgresInfo, statements: str) -> Any:
    """Opens a reader and runs the statements after the first chunk has been read. The chunk leaves after the stream has
    passed the statements. (The server may report a position between the chunk's own and the statements.)"""
    snapshot = open_with_chunk(replica)
    postgres.run(statements)
    ((position,),) = postgres.run("SELECT pg_current_wal_flush_lsn()::text")
    snapshot.first().position = lsn_number(position)
    return snapshot


def finish(replica: Replica, postgres: PostgresInfo) -> None:
    replica.catch_up(postgres)
    assert replica.differences() == {}


def test_a_row_that_changed_after_its_chunk_was_read_comes_from_the_stream(
    postgres: PostgresInfo, schema: str, replica: Replica
) -> None:
    statements = (
        f"UPDATE {schema}.plain SET word = 'second', big = 'small' WHERE id IN (3, 15)",
        f"DELETE FROM {schema}.plain WHERE id = 4; INSERT INTO {schema}.plain VALUES (4, 'new', 'new', 0)",
        f"DELETE FROM {schema}.plain WHERE id = 5",
    )
    change_before_chunk_leaves(replica, postgres, "; ".join(statements))
    finish(replica, postgres)
    assert [record["op"] for record in replica.log if '"id":"3"' in (record["row"] or "")] == ["u"]


def test_an_unchanged_value_that_no_chunk_gave_is_read_again(
    postgres: PostgresInfo, schema: str, replica: Replica
) -> None:
    change_before_chunk_leaves(replica, postgres, f"UPDATE {schema}.plain SET word = 'second' WHERE id IN (2, 25)")
    finish(replica, postgres)
    rows = [record for record in replica.log if '"id":"2"' in (record["row"] or "")]
    assert [(record["op"], record["unchanged"]) for record in rows] == [("u", ["big"]), ("r", None)]


def test_a_row_whose_key_moves_behind_the_chunks_is_read_again(
    postgres: PostgresInfo, schema: str, replica: Replica
) -> None:
    replica.open()
    wait_until(lambda: bool(replica.step().progress[f"{schema}.plain"].next_key), "the first chunk left")
    reader = replica.reader
    assert reader is not None
    postgres.run(f"UPDATE {schema}.plain SET id = 0 WHERE id = 30")
    finish(replica, postgres)


def test_keys_to_read_again_survive_the_end_of_a_reader(postgres: PostgresInfo, schema: str, replica: Replica) -> None:
    name = f"{schema}.plain"
    snapshot = change_before_chunk_leaves(replica, postgres, f"UPDATE {name} SET word = 'second' WHERE id = 2")
    # The chunk that reads the keys again waits, or it could leave in the same step as the first one.
    snapshot.set_rate(0)
    wait_until(lambda: bool(replica.step(acknowledges=False).progress[name].again), "the chunk left")
    assert replica.progress[name].again == ('{"id":"2"}',)
    replica.close()
    finish(replica, postgres)
    assert replica.progress[name].again == ()


def test_rows_read_before_a_truncate_do_not_come_back(postgres: PostgresInfo, schema: str, replica: Replica) -> None:
    statements = f"TRUNCATE {schema}.plain; INSERT INTO {schema}.plain VALUES (7, 'after', 'x', 1)"
    change_before_chunk_leaves(replica, postgres, statements)
    finish(replica, postgres)
    assert len(replica.rows[f"{schema}.plain"]) == 1


def test_a_transaction_that_was_open_when_a_chunk_was_read_is_not_in_it(
    postgres: PostgresInfo, schema: str, replica: Replica
) -> None:
    name = f"{schema}.plain"
    open_with_chunk(replica)
    with connect_to(postgres) as writer:
        writer.execute(f"UPDATE {name} SET word = 'open' WHERE id <= 25".encode())
        writer.execute(f"INSERT INTO {name} VALUES (-5, 'open', NULL, NULL)".encode())
        wait_until(lambda: replica.step(wait=0.02).progress[name].rows_done >= 20, "two chunks left")
        writer.commit()
    finish(replica, postgres)


def test_a_transaction_that_wrote_before_its_table_was_published(
    postgres: PostgresInfo, schema: str, replica: Replica
) -> None:
    """PostgreSQL leaves such a change out of the stream, and a snapshot before its commit does not have it."""
    name = f"{schema}.texts"
    replica.catch_up(postgres)
    replica.close()
    with connect_to(postgres) as writer:
        writer.execute(f"INSERT INTO {name} VALUES ('a', 1, 'early', NULL, NULL)".encode())
        setup.prepare(replica.options, [name], TIMEOUT)
        replica.add(name)
        replica.open()
        told: list[str] = []
        wait_until(lambda: bool(noted(replica, told)), "the snapshot waits")
        assert told == [f"the snapshot of {name} waits for running transactions that write to the table"]
        assert not replica.progress[name].is_done
        writer.commit()
    finish(replica, postgres)
    assert len(replica.rows[name]) == 1


def test_a_publication_that_is_made_for_an_existing_slot(postgres: PostgresInfo, schema: str, replica: Replica) -> None:
    """A transaction that wrote before would end the stream: publication "…" does not exist."""
    options = cdc_options(postgres)
    postgres.run(f"SELECT pg_create_logical_replication_slot('{options['slot.name']}', 'pgoutput')")
    with connect_to(postgres) as writer:
        writer.execute(f"UPDATE {schema}.plain SET word = 'early'".encode())
        threading.Timer(0.3, writer.commit).start()
        other = Replica(options, [f"{schema}.plain"])
    finish(other, postgres)
    other.drop()


def test_a_commit_that_no_snapshot_sees_yet(schema: str) -> None:
    """With synchronous replication a commit is in the log, and read, while its rows are invisible: a snapshot that
    begins then must not bring their old state back."""
    with running_server(wal_level="logical") as server:
        postgres = server.info
        postgres.run("CREATE TABLE late (id INT PRIMARY KEY, word TEXT)")
        postgres.run("INSERT INTO late SELECT i, 'old' FROM generate_series(1, 5) i")
        options = cdc_options(postgres)
        replica = Replica(options, ["public.late"])
        with connect_to(postgres, autocommit=True) as connection:
            connection.execute(b"ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
            connection.execute(b"SELECT pg_reload_conf()")
        wait_until(lambda: postgres.run("SHOW synchronous_standby_names") == [("nobody",)], "the setting is in force")
        started = threading.Event()

        def write() -> None:
            with connect_to(postgres) as writer:
                writer.execute(b"UPDATE late SET word = 'new' WHERE id = 3")
                started.set()
                writer.commit()

        thread = threading.Thread(target=write)
        thread.start()
        started.wait()
        # The first reader reads the change, though nobody sees it; the table is added after that.
        reader = replica.open()
        reader.set_tables({"public.late": TableProgress(table="public.late", is_done=True)})
        wait_until(lambda: "u" in ops(replica), "the change is read")
        replica.close()
        replica.rows = {"public.late": {}}
        replica.progress = {"public.late": TableProgress(table="public.late")}
        replica.open()
        told: list[str] = []
        wait_until(lambda: bool(noted(replica, told)), "the snapshot waits")
        assert replica.rows["public.late"] == {}
        with connect_to(postgres, autocommit=True) as connection:
            connection.execute(b"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        thread.join()
        replica.catch_up(postgres)
        assert replica.differences() == {}
        replica.close()


def test_a_commit_that_no_snapshot_sees_yet_and_a_chunk_after_a_restart() -> None:
    """The reader resumes in the middle of the snapshot; its user may not see what other sessions wait for."""
    with running_server(wal_level="logical") as server:
        postgres = server.info
        postgres.run(f"CREATE ROLE plain LOGIN REPLICATION PASSWORD '{PASSWORD}'")
        postgres.run("CREATE TABLE late (id INT PRIMARY KEY, word TEXT); GRANT SELECT ON late TO plain")
        postgres.run("INSERT INTO late SELECT i, 'old' FROM generate_series(1, 30) i")
        options = cdc_options(postgres, username="plain")
        postgres.run(f"CREATE PUBLICATION {options['publication.name']} FOR TABLE late")
        replica = Replica(options, ["public.late"], chunk_rows=10)
        replica.open()
        wait_until(lambda: replica.step(most=10).progress["public.late"].rows_done > 0, "a chunk left")
        replica.close()
        assert replica.progress["public.late"].rows_done < 30
        with connect_to(postgres, autocommit=True) as connection:
            connection.execute(b"ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
            connection.execute(b"SELECT pg_reload_conf()")
        wait_until(lambda: postgres.run("SHOW synchronous_standby_names") == [("nobody",)], "the setting is in force")

        started = threading.Event()

        def write() -> None:
            with connect_to(postgres) as writer:
                writer.execute(b"DELETE FROM late WHERE id = 29")
                writer.execute(b"UPDATE late SET word = 'new' WHERE id = 30")
                started.set()

        thread = threading.Thread(target=write)
        thread.start()
        started.wait()
        # One reader reads the changes, though nobody sees them, and emits no further chunk.
        replica.open().set_rate_limit(0)
        wait_until(lambda: {"d", "u"} <= set(ops(replica)), "the changes are read")
        replica.close()
        replica.open()
        told: list[str] = []
        wait_until(lambda: bool(noted(replica, told)) or replica.progress["public.late"].is_done, "the snapshot waits")
        assert told
        with connect_to(postgres, autocommit=True) as connection:
            connection.execute(b"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        thread.join()
        replica.catch_up(postgres)
        assert replica.differences() == {}
        replica.close()


def connect_to(postgres: PostgresInfo, *, autocommit: bool = False) -> psycopg.Connection[Any]:
    return psycopg.connect(
        host="127.0.0.1",
        port=postgres.port,
        dbname="postgres",
        user="postgres",
        password=PASSWORD,
        autocommit=autocommit,
    )


def ops(replica: Replica) -> list[str]:
    replica.step(wait=0.02)
    return [record["op"] for record in replica.log]


def noted(replica: Replica, told: list[str]) -> list[str]:
    """The notices so far."""
    told += replica.step(wait=0.02).notices
    return told


def test_a_limit_of_rows_per_second_and_a_pause(postgres: PostgresInfo, schema: str, replica: Replica) -> None:
    name = f"{schema}.plain"
    reader = replica.open()
    reader.set_rate_limit(0)
    for _ in range(5):
        replica.step(wait=0.02)
    left = replica.progress[name].rows_done
    assert left <= 10  # A chunk that was being read before the pause.
    reader.set_rate_limit(1_000)
    finish(replica, postgres)
    assert replica.progress[name].rows_done == 30


def test_a_paused_snapshot_notes_no_changes_that_later_chunks_have(
    postgres: PostgresInfo, schema: str, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_module, "_IDLE_SECONDS", 0.05)
    name = f"{schema}.plain"
    reader = replica.open()
    reader.set_rate_limit(0)
    for _ in range(5):
        replica.step(wait=0.02)

    def is_bounded() -> bool:
        postgres.run(f"UPDATE {name} SET word = word || 'x'")
        replica.step(wait=0.05)
        return len(replica.log) > 300 and len(reader._tracked[name]) <= 60

    wait_until(is_bounded, "old changes are forgotten")
    reader.set_rate_limit(None)
    finish(replica, postgres)


def test_a_table_without_a_primary_key_is_refused(postgres: PostgresInfo, schema: str) -> None:
    postgres.run(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.bare (id INT)")
    replica = Replica(cdc_options(postgres), [f"{schema}.bare"])
    with pytest.raises(CaptureError, match="has no primary key, so its rows cannot be identified"):
        replica.open()
    replica.drop()


def test_keys_of_every_kind_order_and_resume(postgres: PostgresInfo, schema: str) -> None:
    postgres.run(f"CREATE SCHEMA {schema}")
    kinds = {
        "i": ("INT", "i - 10"),
        "n": ("NUMERIC", "i * 1.10 - 5"),
        "f": ("DOUBLE PRECISION", "i / 3.0"),
        "t": ('TEXT COLLATE "C"', "chr(60 + i) || '''\\\"' || i"),
        "x": ("TEXT", "chr(92) || 'u000b' || chr(11) || i"),
        "c": ("CHAR(8)", "'k ' || i"),
        "d": ("TIMESTAMPTZ", "'2024-01-01 00:00:00.123456+03'::timestamptz + i * interval '1 day'"),
        "u": ("UUID", "md5(i::text)::uuid"),
        "b": ("BYTEA", "decode(md5(i::text), 'hex')"),
        "o": ("BOOLEAN", "i % 2 = 0"),
        "e": (f"{schema}.mood", "(ARRAY['sad', 'ok', 'happy'])[i % 3 + 1]::{schema}.mood"),
        "v": ("INTERVAL", "i * interval '90 minutes'"),
        "j": ("JSONB", "jsonb_build_object('a', i, 'b', '\"x\\y')"),
        "r": ("INT4RANGE", "int4range(i, i + 5)"),
        "a": ("INT[]", "ARRAY[i, NULL, -i]"),
        "m": ("MONEY", "(i * 12.34)::numeric::money"),
        "w": ("INET", "('10.0.0.' || i)::inet"),
    }
    postgres.run(f"CREATE TYPE {schema}.mood AS ENUM ('sad', 'ok', 'happy')")
    names = []
    for name, (kind, value) in kinds.items():
        table = f"{schema}.k_{name}"
        postgres.run(f"CREATE TABLE {table} (i INT, k {kind}, PRIMARY KEY (k, i))")
        postgres.run(f"INSERT INTO {table} SELECT i, {value.replace('{schema}', schema)} FROM generate_series(1, 25) i")
        names.append(table)
    replica = Replica(cdc_options(postgres), names, chunk_rows=4)
    for number in range(30):
        replica.step(wait=0.01)
        if number % 10 == 9:
            replica.close()
    for table in names:
        postgres.run(f"UPDATE {table} SET i = i + 100 WHERE i % 5 = 0; DELETE FROM {table} WHERE i % 7 = 0")
    replica.catch_up(postgres)
    converted = {f"{schema}.k_a", f"{schema}.k_m"}
    assert set(replica.differences()) <= converted
    assert all(len(replica.rows[name]) == len(replica.rows[names[0]]) for name in converted)
    replica.drop()


def test_which_transactions_a_snapshot_sees() -> None:
    snapshot = Snapshot.parse("4294967300:4294967310:4294967305,4294967307")
    seen = [xid for xid in range(1, 20) if snapshot.sees(xid)]
    assert seen == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 13]
    assert snapshot.sees(4294967290)
    assert Snapshot.parse("10:10:").sees(9)
    assert not Snapshot.parse("10:10:").sees(10)
    # Just before the counter wraps around, small xids are of the future.
    assert not Snapshot.parse("4294967290:4294967290:").sees(5)
