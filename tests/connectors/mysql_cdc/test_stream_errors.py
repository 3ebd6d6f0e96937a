"""The errors that end the stream of a binary log: which are temporary, and what to type."""

from __future__ import annotations

import struct
import uuid
from typing import TYPE_CHECKING

import pymysql
import pytest

from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.mysql_cdc import events
from rw_sql.connectors.mysql_cdc.decoder import Records
from rw_sql.connectors.mysql_cdc.positions import LogPlace, number_of
from rw_sql.connectors.mysql_cdc.reader import MysqlReader
from rw_sql.connectors.mysql_cdc.search import RowCounter
from rw_sql.connectors.mysql_cdc.statements import Effect
from rw_sql.connectors.mysql_cdc.stream import Stream, Watched, stream_error
from rw_sql.errors import OFFSET_OUT_OF_RANGE, UPSTREAM_UNREACHABLE
from tests.support.captured import read_on
from tests.support.mysql_changes import Replica, cdc_options

if TYPE_CHECKING:
    from tests.support.mysql import MysqlInfo

AT_A_PLACE = "; the first event 'log.000002' at 4, the last event read from 'log.000002' at 528"


def error_of(text: str) -> CaptureError:
    return stream_error(pymysql.OperationalError(1236, text), {"server.id": "7", "password": "x"}, "000002:528")


@pytest.mark.parametrize(
    "text",
    [
        "Could not find first log file name in binary log index file",
        "could not find next log" + AT_A_PLACE,
        "Client requested master to start replication from position > file size",
        "Client requested master to start replication from impossible position" + AT_A_PLACE,
        "Cannot replicate because the master purged required binary logs.",
    ],
)
def test_a_log_that_is_missing_has_to_be_skipped(text: str) -> None:
    error = error_of(text)
    assert (error.kind, error.is_temporary) == (OFFSET_OUT_OF_RANGE, False)
    assert (error.hint or "").startswith("the changes after 000002:528 are missing: RESET SOURCE SPLITS")


@pytest.mark.parametrize(
    "text",
    [
        "binlog truncated in the middle of event; consider out of disk space on master" + AT_A_PLACE,
        "I/O error reading log event",
        "memory allocation failed reading log event",
        "bogus data in log event",
    ],
)
def test_a_log_that_cannot_be_read_now_is_requested_again(text: str) -> None:
    error = error_of(text)
    assert (error.kind, error.is_temporary, error.hint) == (UPSTREAM_UNREACHABLE, True, None)
    assert text in error.message


@pytest.mark.parametrize(
    "text",
    [
        "A slave with the same server_uuid/server_id as this slave has connected to the master" + AT_A_PLACE,
        "A replica with the same server_uuid/server_id as this replica has connected to the source",
    ],
)
def test_a_number_that_another_reader_has_too_is_named(text: str) -> None:
    error = error_of(text)
    assert (error.kind, error.is_temporary) == (UPSTREAM_UNREACHABLE, True)
    assert "server.id 7" in (error.hint or "")
    assert "ALTER SOURCE SOURCE_NAME CONNECTOR WITH (server.id = '…')" in (error.hint or "")


@pytest.mark.mysql
def test_two_readers_with_one_number(mariadb: MysqlInfo) -> None:
    database = f"d_{uuid.uuid4().hex[:8]}"
    name = f"{database}.t"
    mariadb.run(f"CREATE DATABASE {database}", f"CREATE TABLE {name} (id INT PRIMARY KEY)")
    options = cdc_options(mariadb, database, **{"server.id": "7"})
    first, second = Replica(options, [name]), Replica(options, [name])
    first.catch_up()
    second.open()
    with pytest.raises(CaptureError) as caught:
        read_on(first)
    assert caught.value.is_temporary
    assert "server.id 7" in (caught.value.hint or "")
    second.catch_up()
    mariadb.run(f"INSERT INTO {name} VALUES (1)")
    first.close()
    first.catch_up()
    assert first.differences() == {}
    first.close()
    second.close()
    mariadb.run(f"DROP DATABASE {database}")


def test_the_case_of_names_is_ignored_if_the_server_ignores_it() -> None:
    stream = Stream({}, 1, is_mariadb=True, timeout=1.0)
    for is_folded in (False, True):
        stream._watched = Watched(
            tables=frozenset({("shop", "orders")}), databases=frozenset({"shop"}), is_folded=is_folded
        )
        for effect, text in (
            (Effect("database", "Shop"), "DROP DATABASE Shop"),
            (Effect("changed", "Other"), "UPDATE Shop.Orders SET a = 1"),
            (Effect("changed", "SHOP"), "SELECT f()"),
        ):
            assert stream._is_wanted(effect, text) == is_folded


def event(kind: int, body: bytes) -> bytes:
    """An event without a checksum, in the packet in which the server sends it."""
    return b"\0" + struct.pack("<IBIIIH", 1, kind, 1, 19 + len(body), 0, 0) + body


def stream_of(*tables: tuple[str, str]) -> Stream:
    """A stream that watches these tables and receives events without checksums."""
    made = Stream({}, 1, is_mariadb=False, timeout=1.0)
    made._watched = Watched(tables=frozenset(tables), databases=frozenset(database for database, _ in tables))
    made._has_checksum = False
    return made


def test_a_part_of_a_json_value_stops_only_the_readers_of_its_table() -> None:
    stream = stream_of(("shop", "orders"))
    stream._maps = {7: False, 8: True}
    stream._event(event(events.PARTIAL_UPDATE, struct.pack("<IHH", 7, 0, 1)))
    assert stream._group is None
    for number in (8, 9):
        with pytest.raises(CaptureError, match="only parts of its JSON values"):
            stream._event(event(events.PARTIAL_UPDATE, struct.pack("<IHH", number, 0, 1)))


def test_a_search_passes_over_transactions_that_a_reader_cannot_read() -> None:
    packets = (event(events.PAYLOAD, b""), event(events.PARTIAL_UPDATE, struct.pack("<IHH", 9, 0, 1)))
    for packet in packets:
        reading, searching = stream_of(("shop", "orders")), stream_of(("shop", "orders"))
        searching._stops_at_end = True
        with pytest.raises(CaptureError, match=r"is compressed|parts of its JSON"):
            reading._event(packet)
        searching._event(packet)
        searching._event(event(events.XID, bytes(8)))
        ((transaction,), _) = searching.get(0.0)
        counter = RowCounter()
        assert (counter.changes_of(transaction), counter.is_exact) == (1, False)


def test_a_move_past_a_transaction_that_cannot_be_read_passes_over_it() -> None:
    packets = (event(events.PAYLOAD, b""), event(events.PARTIAL_UPDATE, struct.pack("<IHH", 9, 0, 1)))
    end = number_of(1, len(packets[0]))
    for packet in packets:
        stream = stream_of(("shop", "orders"))
        stream._place, stream._ignored_to = LogPlace(1), end - 1
        with pytest.raises(CaptureError, match=r"is compressed|parts of its JSON"):
            stream._event(at_end(packet))
        stream = stream_of(("shop", "orders"))
        stream._place, stream._ignored_to = LogPlace(1), number_of(1, 1000)
        stream._event(at_end(packet))


def at_end(packet: bytes) -> bytes:
    """An event that begins at the start of its file."""
    return packet[:14] + struct.pack("<I", len(packet)) + packet[18:]


def test_prepared_transactions_of_an_earlier_run_are_forgotten_when_the_stream_does_not_have_them() -> None:
    reader = MysqlReader({"database.name": "shop"})
    # An earlier run ended while it was searching the part of the log that a move had skipped.
    reader._position, reader._prepared = 20, (10,)
    reader._step(Records("shop"), 1, 15, has_taken=False)
    assert reader._earlier_starts() == (10,)
    reader._step(Records("shop"), 1, 30, has_taken=False)
    assert (reader._position, reader._earlier_starts()) == (30, ())


def test_a_loaded_file_stops_only_the_readers_of_its_database() -> None:
    def load(database: bytes, table: bytes) -> bytes:
        head = struct.pack("<IIBHH", 1, 0, len(database), 0, 0) + struct.pack("<IIIB", 1, 0, 9, 0)
        return event(events.EXECUTE_LOAD, head + database + b"\0LOAD DATA INFILE 'f' INTO TABLE " + table)

    stream = stream_of(("shop", "orders"))
    stream._event(load(b"other", b"words"))
    assert stream._group is None
    for written in (load(b"shop", b"words"), load(b"other", b"shop.orders")):
        stream = stream_of(("shop", "orders"))
        stream._event(written)
        assert stream._group is not None
        assert [part.did for part in stream._group.parts if isinstance(part, Effect)] == ["changed"]
