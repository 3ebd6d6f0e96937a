"""Where a log can be continued, and where not: purged, reset, killed, another server."""

from __future__ import annotations

import random
import signal
import threading
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.changes import CaptureError, TableProgress
from rw_sql.connectors.mysql_cdc import positions
from rw_sql.connectors.mysql_cdc.marks import Mark
from rw_sql.connectors.mysql_cdc.reader import MysqlReader
from rw_sql.connectors.mysql_cdc.server import read_facts
from rw_sql.connectors.mysql_cdc.snapshot import SnapshotThread
from rw_sql.connectors.mysql_cdc.source import MysqlCdcConnector
from rw_sql.errors import OFFSET_OUT_OF_RANGE, UPSTREAM_MISSING
from tests.support.captured import read_on
from tests.support.mysql import MARIADB, SERVERS, running_server, server_of
from tests.support.mysql_changes import Replica, Writers, cdc_options, create_tables
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.mysql import MysqlInfo

pytestmark = pytest.mark.mysql

KINDS = [MARIADB, *(pytest.param(name, marks=pytest.mark.long) for name in SERVERS[1:])]


def made(server: MysqlInfo, *, rows: int = 3) -> Replica:
    """A replica of one table with some rows."""
    database = f"l_{uuid.uuid4().hex[:8]}"
    server.run(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id INT PRIMARY KEY, word VARCHAR(20))")
    for number in range(rows):
        server.run(f"INSERT INTO {database}.t VALUES ({number}, 'w{number}')")
    return Replica(cdc_options(server, database), [f"{database}.t"])


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_purge_removed_is_reported(kind: str) -> None:
    with server_of(kind) as server:
        replica = made(server.info)
        replica.catch_up()
        replica.close()
        (table,) = replica.names
        server.info.run(f"INSERT INTO {table} VALUES (10, 'unread')", "FLUSH LOGS")
        server.info.run(f"INSERT INTO {table} VALUES (11, 'kept')")
        details = MysqlCdcConnector().slot_details(replica.options)
        assert details is not None
        assert 0 < details.bytes_behind(replica.state.offset) < (details.retained_bytes or 0)
        replica.catch_up()
        assert replica.differences() == {}
        replica.close()
        server.info.run(f"INSERT INTO {table} VALUES (12, 'lost')", "FLUSH LOGS")
        last = read_facts(replica.options, 10).logs[-1].name

        def is_purged() -> bool:
            # A file stays while the server still sends it to a reader that has gone.
            server.info.run(f"PURGE BINARY LOGS TO '{last}'")
            return read_facts(replica.options, 10).logs[0].name == last

        wait_until(is_purged, "the log is purged")
        with pytest.raises(CaptureError) as caught:
            replica.open()
        assert caught.value.kind == OFFSET_OUT_OF_RANGE
        assert caught.value.message.startswith(
            f"the server has purged its log up to {last}, and the position is 000002:"
        )
        look = MysqlCdcConnector().look(replica.options).splits[replica.state.split]
        assert look.start > replica.state.offset
        replica.read_anew(table)
        replica.catch_up()
        assert replica.differences() == {}
        # The log may have grown as far again by the time that it is looked at.
        replica.close()
        server.info.run("RESET MASTER")
        for number in range(20, 60):
            server.info.run(f"INSERT INTO {table} VALUES ({number}, REPEAT('y', 20))")
        with pytest.raises(CaptureError, match=r"was reset|purged|ends at"):
            replica.open()


def test_a_log_that_was_reset_in_a_file_of_the_same_number_is_another_one(mariadb: MysqlInfo) -> None:
    replica = made(mariadb)
    replica.catch_up()
    replica.close()
    (table,) = replica.names
    mark = Mark.from_json(replica.progress[table].identity or "")
    older = Mark(begin=mark.begin, file=mark.file, created=mark.created - 1, server=mark.server)
    replica.progress[table] = replace(replica.progress[table], identity=older.to_json())
    with pytest.raises(CaptureError, match=r"file 1 of the server's log is not the one that was read"):
        replica.open()


def test_another_server_is_never_continued_by_a_number(mariadb: MysqlInfo) -> None:
    replica = made(mariadb)
    replica.catch_up()
    replica.close()
    with running_server(server_id="8") as other:
        other.info.run("CREATE DATABASE other", "CREATE TABLE other.t (id INT PRIMARY KEY)")
        replica.options |= {"port": str(other.info.port)}
        with pytest.raises(CaptureError) as caught:
            replica.open()
    assert caught.value.kind == UPSTREAM_MISSING
    told = "the server has server_id 8, but the position belongs to a server with server_id 7"
    assert caught.value.message.startswith(told)


@pytest.mark.long
@pytest.mark.parametrize("kind", SERVERS)
def test_random_writers_beside_snapshots_and_a_server_that_is_killed(kind: str) -> None:
    rng = random.Random(f"mysql {kind}")
    with server_of(kind, innodb_flush_log_at_trx_commit="1", sync_binlog="1") as server:
        tables = create_tables(server.info, "random_writers")
        writers = Writers(server.info, tables, rng)
        for _ in range(200):
            writers.act()
        replica = Replica(cdc_options(server.info, "random_writers"), tables, chunk_rows=7)
        for _ in range(3):
            for _ in range(60):
                for _ in range(rng.randint(0, 5)):
                    writers.act()
                if rng.random() < 0.05:
                    replica.close()
                if rng.random() < 0.5:
                    replica.step(most=rng.choice((1, 10, 1000)), wait=rng.choice((0.0, 0.0, 0.05)))
            server.kill()
            writers.close()
            with pytest.raises(CaptureError) as caught:
                read_on(replica)
            assert caught.value.is_temporary
            replica.close()
            server.start()
            writers = Writers(server.info, tables, rng)
        writers.close()
        replica.catch_up()
        assert replica.differences() == {}
        replica.close()
        positions_read = [(record["_rw_offset"], record["_rw_index"]) for record in replica.log]
        assert positions_read == sorted(set(positions_read))


def test_chunks_beside_random_writers_on_an_idle_and_a_busy_log(mariadb: MysqlInfo) -> None:
    rng = random.Random(5)
    database = f"l_{uuid.uuid4().hex[:8]}"
    tables = create_tables(mariadb, database)
    writers = Writers(mariadb, tables, rng, count=2)
    for _ in range(60):
        writers.act()
    replica = Replica(cdc_options(mariadb, database), tables, chunk_rows=5)
    while not all(progress.is_done for progress in replica.progress.values()):
        if rng.random() < 0.7:
            writers.act()
        if rng.random() < 0.1:
            replica.close()
        replica.step(most=10, wait=0.01)
    writers.close()
    replica.catch_up()
    assert replica.differences() == {}
    replica.close()


def test_a_snapshot_of_an_idle_log_has_more_chunks_than_a_place_has_numbers(mariadb: MysqlInfo) -> None:
    replica = made(mariadb, rows=1)
    (table,) = replica.names
    mariadb.run(f"INSERT INTO {table} VALUES " + ", ".join(f"({number}, 'w')" for number in range(1, 150)))
    replica.read_anew(table)
    # As after many batches at this place.
    replica.state = replace(replica.state, offset=replica.state.offset + positions.STEPS - 100)
    replica.progress[table] = TableProgress(table=table, chunk_rows=1, rows_done=3000)

    def is_done() -> bool:
        replica.step(most=1, wait=0.01)
        return replica.progress[table].is_done

    wait_until(is_done, "the snapshot is done")
    assert replica.differences() == {}
    assert positions.parts_of(replica.state.offset)[2] < positions.STEPS - 90
    replica.close()


@pytest.mark.parametrize("is_behind", [False, True])
def test_a_commit_that_is_in_the_log_before_it_can_be_seen(is_behind: bool) -> None:
    """A server with semi-synchronous replication shows a commit only when a replica has it, or after a time."""
    with server_of(MARIADB) as server:
        replica = made(server.info)
        replica.catch_up()
        (table,) = replica.names
        replica.forget(table)
        server.info.run(
            "SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC', GLOBAL rpl_semi_sync_master_timeout = 4000",
            "SET GLOBAL rpl_semi_sync_master_enabled = ON",
        )
        end = read_facts(replica.options, 10).end
        writer = threading.Thread(target=server.info.run, args=(f"INSERT INTO {table} VALUES (10, 'late')",))
        writer.start()
        wait_until(lambda: read_facts(replica.options, 10).end > end, "the commit is in the log")
        assert server.info.run(f"SELECT count(*) FROM {table}") == [(3,)]
        if not is_behind:
            replica.read_anew(table)
        replica.open()
        replica.catch_up()
        writer.join()
        replica.catch_up()
        assert replica.differences() == {}
        replica.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_without_checksums(kind: str) -> None:
    with server_of(kind, binlog_checksum="NONE") as server:
        replica = made(server.info)
        replica.catch_up()
        (table,) = replica.names
        server.info.run(f"INSERT INTO {table} VALUES (10, 'ten')", "FLUSH LOGS")
        replica.catch_up()
        server.info.run("SET GLOBAL binlog_checksum = 'CRC32'", f"INSERT INTO {table} VALUES (11, 'eleven')")
        replica.catch_up()
        assert replica.differences() == {}
        replica.close()


def test_a_server_that_accepts_and_does_not_answer_blocks_no_caller() -> None:
    with server_of(MARIADB) as server:
        replica = made(server.info)
        replica.catch_up()
        replica.close()
        (table,) = replica.names
        process = server._process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        try:
            error = MysqlCdcConnector().look(replica.options, timeout=1.0).error
            assert error is not None
            assert "timed out" in error
            snapshot = SnapshotThread(replica.options, 1.0, lambda: 0)
            snapshot.set_tables({table: TableProgress(table=table, key_columns=("id",))}, {})
            snapshot.close()
        finally:
            process.send_signal(signal.SIGCONT)
        replica.catch_up()
        replica.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_prepared_transaction_comes_when_it_is_committed(servers: Callable[[str], MysqlInfo], kind: str) -> None:
    server = servers(kind)
    replica = made(server)
    replica.catch_up()
    (table,) = replica.names
    for xid, row in (("'one'", 10), ("'two','b'", 11)):
        # In MariaDB a transaction that is prepared ends with its connection before 10.5; another one commits it.
        with server.connect() as connection, connection.cursor() as cursor:
            for statement in (f"XA START {xid}", f"INSERT INTO {table} VALUES ({row}, 'xa')", f"XA END {xid}"):
                cursor.execute(statement)
            cursor.execute(f"XA PREPARE {xid}")
    server.run(f"INSERT INTO {table} VALUES (12, 'between')")
    replica.catch_up()
    assert sorted(json_key for json_key in replica.rows[table]) == ['["0"]', '["1"]', '["12"]', '["2"]']
    replica.close()
    server.run("XA COMMIT 'one'", "XA ROLLBACK 'two','b'")
    replica.catch_up()
    assert replica.differences() == {}
    assert '["10"]' in replica.rows[table]
    replica.close()
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in (
            "XA START 'x'",
            f"DELETE FROM {table} WHERE id = 10",
            "XA END 'x'",
            "XA COMMIT 'x' ONE PHASE",
        ):
            cursor.execute(statement)
    replica.catch_up()
    assert replica.differences() == {}
    assert Mark.from_json(replica.progress[table].identity or "").prepared == ()
    replica.close()


def test_a_transaction_that_was_prepared_before_the_table_began() -> None:
    with server_of(MARIADB) as server:
        replica = made(server.info)
        (table,) = replica.names
        with server.info.connect() as connection, connection.cursor() as cursor:
            for statement in ("XA START 'x'", f"INSERT INTO {table} VALUES (10, 'xa')", "XA END 'x'", "XA PREPARE 'x'"):
                cursor.execute(statement)
        replica.read_anew(table)
        reader = MysqlReader(replica.options)
        reader._timeout = 1.0
        with pytest.raises(CaptureError, match="waits for 1 prepared XA transactions") as caught:
            reader.open(replica.state, replica.progress)
        assert caught.value.is_temporary
        reader.close()
        timer = threading.Timer(0.5, server.info.run, ("XA COMMIT 'x'",))
        timer.start()
        replica.catch_up()
        timer.join()
        assert replica.differences() == {}
        assert '["10"]' in replica.rows[table]
        replica.close()


def test_positions_as_numbers_and_as_text() -> None:
    number = positions.number_of(3, 1234)
    assert positions.parts_of(number + 5) == (3, 1234, 5)
    assert (positions.shown(number), positions.shown(number + 5)) == ("000003:1234", "000003:1234+5")
    assert [positions.parse(text) for text in ("mysql-bin.000003:1234", "000003:1234", "3:1234", "x", "3")] == [
        number,
        number,
        number,
        None,
        None,
    ]
    assert positions.number_of(3, 1 << 32) == positions.number_of(4, 4)
    assert positions.number_of(3, (1 << 32) - 1) < positions.number_of(4, 4)
    with pytest.raises(CaptureError, match="but positions can only name files up to"):
        positions.number_of(1 << 20, 4)
    state = MysqlCdcConnector().decode_state("shop", "binlog.000003:1234")
    assert (state.split, state.offset) == ("shop", number)
