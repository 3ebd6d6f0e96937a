"""The slot: what moves it, what it loses, and what a reader says of one that is not the slot that it was."""

from __future__ import annotations

import subprocess
import threading
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from rw_sql.connectors.changes import CaptureError, SchemaChange, TableProgress
from rw_sql.connectors.postgres_cdc import setup, stream
from rw_sql.connectors.postgres_cdc.connection import lsn_number
from rw_sql.connectors.postgres_cdc.reader import PostgresReader
from rw_sql.connectors.postgres_cdc.server import read_facts
from rw_sql.connectors.postgres_cdc.source import PostgresCdcConnector
from tests.support.captured import read_on
from tests.support.postgres import PASSWORD, running_server
from tests.support.postgres_changes import TIMEOUT, Replica, cdc_options
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.postgres import PostgresInfo

pytestmark = pytest.mark.postgres

CONNECTOR = PostgresCdcConnector()


@pytest.fixture
def table(postgres: PostgresInfo) -> str:
    name = f"public.t_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE TABLE {name} (id INT PRIMARY KEY, word TEXT)")
    postgres.run(f"INSERT INTO {name} SELECT i, 'first' FROM generate_series(1, 5) i")
    return name


@pytest.fixture
def replica(postgres: PostgresInfo, table: str) -> Iterator[Replica]:
    made = Replica(cdc_options(postgres), [table])
    yield made
    made.drop()


def reason(replica: Replica) -> CaptureError:
    """The error of a reader that opens now."""
    with pytest.raises(CaptureError) as caught:
        replica.open()
    replica.close()
    assert not caught.value.is_temporary
    assert caught.value.hint
    return caught.value


def test_the_slot_moves_only_when_it_is_acknowledged(postgres: PostgresInfo, table: str, replica: Replica) -> None:
    replica.catch_up(postgres)
    first = replica.confirmed()
    for number in range(10, 20):
        postgres.run(f"INSERT INTO {table} VALUES ({number}, 'x')")
        replica.step(wait=0.5, acknowledges=False)
    assert replica.confirmed() == first < replica.state.offset
    reader = replica.reader
    assert reader is not None
    with pytest.raises(ValueError, match="is after the last position that was taken"):
        reader.acknowledge(replica.state.offset + 1)
    reader.acknowledge(replica.state.offset)
    wait_until(lambda: replica.confirmed() == replica.state.offset, "the slot is where it was acknowledged")
    # What an older acknowledgement says does not move it back.
    reader.acknowledge(first)
    assert replica.confirmed() == replica.state.offset


def test_an_idle_database_moves_the_slot(postgres: PostgresInfo, replica: Replica) -> None:
    replica.catch_up(postgres)
    before = replica.state.offset
    postgres.run("CREATE TABLE IF NOT EXISTS other (id INT); INSERT INTO other SELECT generate_series(1, 1000)")

    def has_moved() -> bool:
        replica.step(wait=0.2)
        return before < replica.state.offset == replica.confirmed()

    wait_until(has_moved, "the slot follows changes of tables that are not read")
    # Another database of the server writes: its log is the same, and must not pile up.
    with psycopg.connect(
        host="127.0.0.1", port=postgres.port, dbname="postgres", user="postgres", password=PASSWORD, autocommit=True
    ) as connection:
        connection.execute(b"CREATE DATABASE noise")
    with psycopg.connect(
        host="127.0.0.1", port=postgres.port, dbname="noise", user="postgres", password=PASSWORD
    ) as connection:
        connection.execute(b"CREATE TABLE t AS SELECT g, repeat('x', 100) FROM generate_series(1, 1000) g")
        (row,) = connection.execute(b"SELECT pg_current_wal_lsn()::text").fetchall()
    before = lsn_number(row[0])
    wait_until(has_moved, "the slot follows what another database writes")
    details = CONNECTOR.slot_details(replica.options)
    assert details is not None
    assert details.retained_bytes is not None
    assert details.retained_bytes < 16 << 20


def test_a_slot_that_was_advanced(postgres: PostgresInfo, table: str, replica: Replica) -> None:
    replica.catch_up(postgres)
    replica.close()
    postgres.run(f"UPDATE {table} SET word = 'lost'")
    wait_until(lambda: not is_active(replica), "the slot is free")
    postgres.run(f"SELECT pg_replication_slot_advance('{replica.options['slot.name']}', pg_current_wal_lsn())")
    assert "after the position" in reason(replica).message


def test_a_slot_that_was_dropped_and_made_again(postgres: PostgresInfo, table: str, replica: Replica) -> None:
    replica.catch_up(postgres)
    replica.close()
    name = replica.options["slot.name"]
    wait_until(lambda: not is_active(replica), "the slot is free")
    postgres.run(f"SELECT pg_drop_replication_slot('{name}')")
    assert reason(replica).message == f'replication slot "{name}" does not exist'
    postgres.run(f"UPDATE {table} SET word = 'lost'")
    setup.prepare(replica.options, [table], TIMEOUT)
    assert "it was dropped and created again; the changes between the two are missing" in reason(replica).message


def test_a_slot_of_another_kind(postgres: PostgresInfo, table: str) -> None:
    options = cdc_options(postgres)
    slot = options["slot.name"]
    postgres.run(f"SELECT pg_create_physical_replication_slot('{slot}', true)")
    with pytest.raises(CaptureError, match="is a physical slot, not of pgoutput"):
        setup.prepare(options, [table], TIMEOUT)
    postgres.run(f"SELECT pg_drop_replication_slot('{slot}')")
    postgres.run(f"SELECT pg_create_logical_replication_slot('{slot}', 'test_decoding')")
    with pytest.raises(CaptureError, match="is a slot of test_decoding, not of pgoutput"):
        setup.prepare(options, [table], TIMEOUT)
    setup.release(options, slot=True, publication=True, timeout=TIMEOUT)


def test_a_slot_in_use(postgres: PostgresInfo, replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rw_sql.connectors.postgres_cdc.reader._SLOT_SECONDS", 0.2)
    replica.open()
    other = PostgresReader(replica.options)
    with pytest.raises(CaptureError, match="is in use by the server process") as caught:
        other.open(replica.state, replica.progress)
    assert caught.value.is_temporary
    assert "pg_terminate_backend" in (caught.value.hint or "")


def test_another_server_another_timeline_and_a_backup(postgres: PostgresInfo, replica: Replica) -> None:
    replica.catch_up(postgres)
    replica.close()
    state = replica.state
    system, _, timeline = (state.cluster or "").partition("/")
    replica.state = replace(state, cluster=f"{system}/{int(timeline) + 1}")
    assert "a standby was promoted, or a backup was restored" in reason(replica).message
    replica.state = replace(state, cluster=f"{int(system) + 1}/{timeline}")
    assert "belongs to another server" in reason(replica).message
    replica.state = replace(state, offset=state.offset + (1 << 40))
    assert "the server was restored from a backup" in reason(replica).message
    replica.state = replace(state, incarnation="1")
    assert "it was dropped and created again" in reason(replica).message
    replica.state = state


def test_a_standby_that_was_promoted_is_another_timeline() -> None:
    with running_server(wal_level="logical", max_wal_senders="4") as server:
        postgres = server.info
        postgres.run("CREATE TABLE t (id INT PRIMARY KEY)")
        options = cdc_options(postgres)
        replica = Replica(options, ["public.t"])
        replica.catch_up(postgres)
        replica.close()
        server.stop()
        (server.data / "standby.signal").touch()
        if server.user is not None:
            subprocess.run(["chown", "-R", str(server.user), str(server.data)], check=True)
        server.start()
        standby = read_facts(options, TIMEOUT)
        assert standby.is_standby
        postgres.run("SELECT pg_promote()")
        wait_until(lambda: not read_facts(options, TIMEOUT).is_standby, "it is promoted")
        # A restart keeps the slot, so only the timeline tells that the log may differ.
        assert "timeline 2" in reason(replica).message


def test_a_slot_that_lost_its_log() -> None:
    with running_server(
        wal_level="logical", max_slot_wal_keep_size="1MB", min_wal_size="32MB", max_wal_size="32MB"
    ) as server:
        postgres = server.info
        postgres.run("CREATE TABLE t (id INT PRIMARY KEY, word TEXT)")
        replica = Replica(cdc_options(postgres), ["public.t"])
        replica.catch_up(postgres)
        replica.close()

        def is_lost() -> bool:
            with psycopg.connect(
                host="127.0.0.1",
                port=postgres.port,
                dbname="postgres",
                user="postgres",
                password=replica.options["password"],
                autocommit=True,
            ) as connection:
                connection.execute(b"SELECT pg_logical_emit_message(false, 'x', repeat('x', 4000000))")
                connection.execute(b"SELECT pg_switch_wal()")
                connection.execute(b"CHECKPOINT")
            details = CONNECTOR.slot_details(replica.options)
            return details is not None and details.status == "lost"

        wait_until(is_lost, "the slot is lost")
        assert "is lost" in reason(replica).message
        # It holds nothing: what was not read is behind its start.
        (found,) = CONNECTOR.look(replica.options).splits.values()
        assert replica.state.offset < found.start == found.end
        assert [lack.check for lack in CONNECTOR.find_lacks(replica.options, {})] == ["slot"]


def test_a_server_that_crashes_and_one_that_stops() -> None:
    with running_server(wal_level="logical") as server:
        postgres = server.info
        postgres.run("CREATE TABLE t (id INT PRIMARY KEY, word TEXT)")
        replica = Replica(cdc_options(postgres), ["public.t"], chunk_rows=100)
        postgres.run("INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 3000) i")
        for number in range(3):
            replica.step(wait=0.1)
            first = 10_000 * (number + 1)
            postgres.run(f"INSERT INTO t SELECT i, 'y' FROM generate_series({first}, {first + 50}) i")
            server.kill()
            with pytest.raises(CaptureError) as caught:
                read_on(replica)
            assert caught.value.is_temporary
            replica.close()
            server.start()
        replica.catch_up(postgres)
        assert replica.differences() == {}
        server.stop()
        with pytest.raises(CaptureError) as caught:
            read_on(replica)
        assert caught.value.is_temporary
        replica.close()


def test_a_reader_ends_although_the_server_answers_nothing() -> None:
    with running_server(wal_level="logical") as server:
        server.run("CREATE TABLE t (id INT PRIMARY KEY, word TEXT)")
        server.run("INSERT INTO t SELECT i, 'first' FROM generate_series(1, 50) i")
        replica = Replica(cdc_options(server.info), ["public.t"], chunk_rows=1)
        reader = replica.open()
        snapshot = reader._snapshot
        assert snapshot is not None
        wait_until(lambda: snapshot._connection is not None, "the snapshot has begun")
        with server.frozen():

            def is_waiting() -> bool:
                connection = snapshot._connection
                return connection is not None and connection.info.transaction_status == TransactionStatus.ACTIVE

            snapshot.write_log()
            wait_until(is_waiting, "a query waits for an answer")
            thread = threading.Thread(target=replica.close)
            thread.start()
            wait_until(lambda: not thread.is_alive(), "the reader has ended")
        replica.drop()


def test_a_table_that_is_not_the_one_that_was_read(postgres: PostgresInfo, table: str, replica: Replica) -> None:
    replica.catch_up(postgres)
    replica.close()
    publication = replica.options["publication.name"]
    progress = replica.progress
    postgres.run(f"ALTER PUBLICATION {publication} DROP TABLE {table}")
    assert f'is not in publication "{publication}"' in reason(replica).message
    postgres.run(f"UPDATE {table} SET word = 'lost'; ALTER PUBLICATION {publication} ADD TABLE {table}")
    assert "was not in publication" in reason(replica).message
    postgres.run(f"DROP TABLE {table}")
    assert reason(replica).message == f'table "{table}" does not exist'
    postgres.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, word TEXT)")
    postgres.run(f"ALTER PUBLICATION {publication} ADD TABLE {table}")
    assert "it was dropped and created again" in reason(replica).message
    replica.progress = {table: TableProgress(table=table)}
    replica.rows = {table: {}}
    replica.catch_up(postgres)
    assert progress[table].identity != replica.progress[table].identity


def test_a_table_that_is_renamed_while_it_is_read(postgres: PostgresInfo, table: str, replica: Replica) -> None:
    replica.catch_up(postgres)
    plain = table.partition(".")[2]
    postgres.run(f"ALTER TABLE {table} RENAME TO {plain}_new; INSERT INTO {table}_new VALUES (9, 'x')")
    with pytest.raises(CaptureError, match=f'was renamed to "public"."{plain}_new"'):
        read_on(replica)
    replica.close()


def test_columns_that_change(postgres: PostgresInfo, table: str, replica: Replica) -> None:
    replica.catch_up(postgres)
    postgres.run(f"ALTER TABLE {table} ADD COLUMN extra NUMERIC(5, 1) DEFAULT 1.5")
    postgres.run(f"ALTER TABLE {table} ALTER word TYPE VARCHAR(20); INSERT INTO {table} VALUES (20, 'x', 2)")
    postgres.run(f"ALTER TABLE {table} DROP COLUMN word; UPDATE {table} SET extra = 3 WHERE id = 20")
    changes: list[SchemaChange] = []

    def has_all() -> bool:
        changes.extend(replica.step(wait=0.2).changes)
        return len(changes) == 2

    wait_until(has_all, "both changes are noticed")
    first, second = changes
    assert (first.added, first.retyped) == ({"extra": "numeric(5,1)"}, {"word": "character varying(20)"})
    assert (first.old, first.dropped) == ({"word": "text"}, {})
    assert second.dropped == {"word": "character varying(20)"}
    assert first.position < second.position
    assert replica.progress[table].columns == {"id": "integer", "extra": "numeric(5,1)"}


def test_an_added_column_has_its_default_in_a_snapshot(postgres: PostgresInfo, table: str, replica: Replica) -> None:
    replica.catch_up(postgres)
    postgres.run(f"ALTER TABLE {table} ADD COLUMN extra INT DEFAULT 7")
    replica.read_anew(table)
    replica.catch_up(postgres)
    assert replica.differences() == {}
    assert {row["extra"] for row in replica.rows[table].values()} == {"7"}


def test_a_large_transaction_is_one_batch_and_goes_through_a_file(
    postgres: PostgresInfo, table: str, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "SPOOL_BYTES", 50_000)
    replica.catch_up(postgres)
    postgres.run(f"INSERT INTO {table} SELECT i, repeat('x', 50) || i FROM generate_series(1000, 21000) i")
    sizes: list[int] = []

    def is_there() -> bool:
        sizes.append(replica.step(most=10, wait=0.2).records.num_rows)
        return max(sizes) > 10

    wait_until(is_there, "the transaction is read")
    assert max(sizes) == 20_001
    assert replica.differences() == {}
    assert [record["_rw_index"] for record in replica.log[-20_001:]] == sorted(
        {record["_rw_index"] for record in replica.log[-20_001:]}
    )


def test_a_reader_that_is_not_served_keeps_its_connection_and_its_memory(
    postgres: PostgresInfo, table: str, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "QUEUE_BYTES", 20_000)
    monkeypatch.setattr(stream, "STATUS_SECONDS", 0.05)
    replica.catch_up(postgres)
    reader = replica.reader
    assert reader is not None
    assert reader._stream is not None
    for first in range(1000, 6000, 100):
        postgres.run(f"INSERT INTO {table} SELECT i, repeat('x', 50) FROM generate_series({first}, {first + 99}) i")
    wait_until(lambda: reader._stream is not None and reader._stream._queued >= 20_000, "the queue is full")
    assert reader._stream._queued < 60_000
    replica.catch_up(postgres)
    assert replica.differences() == {}


@pytest.mark.long
def test_a_short_timeout_of_the_server_does_not_end_a_reader_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "QUEUE_BYTES", 1)
    with running_server(wal_level="logical", wal_sender_timeout="1500ms") as server:
        server.run("CREATE TABLE t (id INT PRIMARY KEY, word TEXT)")
        replica = Replica(cdc_options(server.info), ["public.t"])
        replica.catch_up(server.info)
        # The queue is full, so that not even the server's requests for a status are read.
        server.run("INSERT INTO t SELECT g FROM generate_series(1, 100) g")
        asked = "SELECT max(reply_time - backend_start) > '4 seconds' FROM pg_stat_replication"
        wait_until(lambda: server.run(asked) == [(True,)], "statuses beyond the timeout")
        server.run("INSERT INTO t VALUES (1000)")
        replica.catch_up(server.info)
        assert replica.differences() == {}
        replica.close()


def test_a_position_inside_of_a_transaction_gives_the_whole_one(
    postgres: PostgresInfo, table: str, replica: Replica
) -> None:
    replica.catch_up(postgres)
    replica.close()
    with psycopg.connect(
        host="127.0.0.1",
        port=postgres.port,
        dbname="postgres",
        user="postgres",
        password=replica.options["password"],
    ) as writer:
        writer.execute(f"INSERT INTO {table} VALUES (30, 'a')".encode())
        (inside,) = writer.execute(b"SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").fetchone() or (0,)
        writer.execute(f"INSERT INTO {table} VALUES (31, 'b')".encode())
    replica.state = replace(replica.state, offset=inside)
    replica.catch_up(postgres)
    assert replica.differences() == {}


def is_active(replica: Replica) -> bool:
    details = CONNECTOR.slot_details(replica.options)
    return details is not None and details.active_pid is not None


def test_details_and_a_look(postgres: PostgresInfo, table: str, replica: Replica) -> None:
    database = replica.options["database.name"]
    replica.catch_up(postgres)
    details = CONNECTOR.slot_details(replica.options)
    assert details is not None
    assert details.active_pid is not None
    assert details.status == "reserved"
    assert details.retained_bytes is not None
    assert details.retained_bytes >= (details.lag_bytes or 0)
    upstream = CONNECTOR.look(replica.options)
    split = upstream.splits[database]
    assert (split.cluster, split.incarnation) == (replica.state.cluster, replica.state.incarnation)
    assert split.start == details.acknowledged
    assert CONNECTOR.look(replica.options | {"slot.name": "none_yet"}).splits[database].start == 0
    wrong = CONNECTOR.look(replica.options | {"password": "guessed"})
    assert wrong.error is not None
    assert "guessed" not in wrong.error
    assert "does not exist" in (CONNECTOR.look(replica.options | {"database.name": "nowhere"}).error or "")


def test_only_what_was_made_is_dropped(postgres: PostgresInfo, table: str) -> None:
    options = cdc_options(postgres)
    first = setup.prepare(options, [table], TIMEOUT)
    assert (first.made_slot, first.made_publication, first.added_tables) == (True, True, (table,))
    second = setup.prepare(options, [table], TIMEOUT)
    assert (second.made_slot, second.made_publication, second.added_tables) == (False, False, ())
    assert setup.release(options, slot=True, publication=False, timeout=TIMEOUT) == ()
    assert CONNECTOR.slot_details(options) is None
    assert postgres.run(f"SELECT 1 FROM pg_publication WHERE pubname = '{options['publication.name']}'")
    assert setup.release(options, slot=True, publication=True, timeout=TIMEOUT) == ()
    assert not postgres.run(f"SELECT 1 FROM pg_publication WHERE pubname = '{options['publication.name']}'")
    with pytest.raises(CaptureError) as caught:
        setup.release(options | {"port": "1"}, slot=True, publication=False, timeout=2.0)
    assert caught.value.is_temporary
    (notice,) = setup.release(options | {"password": "x"}, slot=True, publication=False, timeout=2.0)
    assert f"on the server: SELECT pg_drop_replication_slot('{options['slot.name']}')" in notice


def test_a_slot_that_is_still_read_is_dropped_later(
    postgres: PostgresInfo, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "_UNUSED_SECONDS", 0.2)
    replica.catch_up(postgres)
    with pytest.raises(CaptureError, match="is in use by the server process") as caught:
        setup.release(replica.options, slot=True, publication=False, timeout=TIMEOUT)
    assert caught.value.is_temporary
    assert CONNECTOR.slot_details(replica.options) is not None
