"""What a search finds in the binary log: the place of a time, the next transaction, and how many there are."""

from __future__ import annotations

import random
import struct
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.mysql_cdc import events, search
from rw_sql.connectors.mysql_cdc.events import RowsPart, StreamColumn, TableMap
from rw_sql.connectors.mysql_cdc.positions import number_of, parts_of
from rw_sql.connectors.mysql_cdc.server import Facts, LogFile, details
from rw_sql.connectors.mysql_cdc.source import MysqlCdcConnector
from rw_sql.connectors.mysql_cdc.statements import Effect
from rw_sql.connectors.mysql_cdc.stream import Transaction
from rw_sql.errors import OFFSET_OUT_OF_RANGE, UPSTREAM_UNREACHABLE
from tests.support.mysql import MARIADB, SERVERS, server_of
from tests.support.mysql_changes import Replica, cdc_options
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.mysql import MysqlInfo

KIND = MysqlCdcConnector()
MILLI = 1000


class Database:
    """A new database with the tables ``t`` and ``other``, and the options of a source that reads it."""

    def __init__(self, server: MysqlInfo) -> None:
        self.server = server
        self.name = f"s_{uuid.uuid4().hex[:8]}"
        self.run("CREATE DATABASE {d}")
        self.run("CREATE TABLE {d}.t (id INT PRIMARY KEY, word VARCHAR(300), kind ENUM('a', 'b'), at DATETIME(3))")
        self.run("CREATE TABLE {d}.other (id INT PRIMARY KEY)")
        self.options = cdc_options(server, self.name)
        self.table, self.other = f"{self.name}.t", f"{self.name}.other"

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.run(*(statement.replace("{d}", self.name) for statement in statements))

    def end(self) -> int:
        """The end of the server's log."""
        return KIND.look(self.options).splits[self.name].end

    def next_second(self) -> int:
        """Waits for the server's next second; all transactions before this call are older."""
        ((before,),) = self.run("SELECT UNIX_TIMESTAMP()")
        wait_until(lambda: self.run("SELECT UNIX_TIMESTAMP()")[0][0] > before, "the next second")
        return int(self.run("SELECT UNIX_TIMESTAMP()")[0][0])

    def count(self, start: int, end: int, *tables: str, only_first: bool = False) -> tuple[int, int, int | None]:
        found = KIND.count_changes(self.options, start, end, tables or (self.table,), only_first=only_first)
        assert found is not None
        assert found.is_exact
        return found.transactions, found.changes, found.first_end

    def at(self, milliseconds: int) -> int:
        return KIND.offsets_at(self.options, milliseconds, [self.name])[self.name]


@pytest.mark.mysql
@pytest.mark.parametrize("kind", SERVERS)
def test_transactions_are_counted_and_found_by_time(servers: Callable[[str], MysqlInfo], kind: str) -> None:
    database = Database(servers(kind))
    name, start = database.name, database.end()
    first_second = database.next_second()
    rows = ", ".join(f"({number}, REPEAT('w', {number * 30}), 'b', NOW(3))" for number in range(9))
    database.run(f"INSERT INTO {{d}}.t VALUES {rows}, (9, NULL, NULL, NULL)")
    between = database.next_second()
    middle = database.end()
    database.run(
        "UPDATE {d}.t SET word = 'x' WHERE id < 3",
        "INSERT INTO {d}.other VALUES (1)",
        "FLUSH LOGS",
        "DELETE FROM {d}.t WHERE id = 1",
    )
    after = database.next_second()
    end = database.end()

    assert database.count(start, end)[:2] == (3, 14)
    assert database.count(start, end, database.table, database.other)[:2] == (4, 15)
    assert database.count(middle, end)[:2] == (2, 4)
    transactions, changes, first_end = database.count(start, end, only_first=True)
    assert (transactions, changes) == (1, 10)
    assert first_end == middle
    assert database.count(start + 5, end)[:2] == (3, 14)
    assert database.count(end, end) == (0, 0, None)
    assert database.count(start, end, f"{name}.none") == (0, 0, None)

    # The place before the first transaction of that second, in any file; the server's present is the log's end.
    assert database.at(first_second * MILLI) == start
    assert database.at(between * MILLI) == middle
    assert database.at(between * MILLI + 999) == middle
    assert database.at(after * MILLI) == end
    assert database.at((after + 3600) * MILLI) == end
    assert parts_of(end)[0] == parts_of(start)[0] + 1
    with pytest.raises(CaptureError, match="the server no longer has the changes since") as refused:
        database.at((first_second - 7 * 86_400) * MILLI)
    assert refused.value.kind is OFFSET_OUT_OF_RANGE
    assert "FORGET_OFFSETS" in (refused.value.hint or "")

    behind = KIND.record_times(database.options, {name: middle})[name]
    assert between * MILLI <= behind < after * MILLI
    assert KIND.record_times(database.options, {name: end}) == {}
    database.run("DROP DATABASE {d}")


@pytest.mark.mysql
@pytest.mark.parametrize("kind", ["8.0"])
def test_a_long_statement_is_found_by_the_time_of_its_commit(servers: Callable[[str], MysqlInfo], kind: str) -> None:
    """The header of an event has the time when the statement began."""
    database = Database(servers(kind))
    start, second = database.end(), database.next_second()
    database.run(f"SET timestamp = {second - 600}", "INSERT INTO {d}.t (id) VALUES (1)")
    assert database.at(second * MILLI) == start
    database.run("DROP DATABASE {d}")


@pytest.mark.mysql
@pytest.mark.parametrize("kind", SERVERS)
def test_a_truncate_and_a_commit_of_several_statements_count(servers: Callable[[str], MysqlInfo], kind: str) -> None:
    database = Database(servers(kind))
    start = database.end()
    with database.server.connect() as connection, connection.cursor() as cursor:
        for statement in (
            "BEGIN",
            f"INSERT INTO {database.table} (id) VALUES (1), (2)",
            "SAVEPOINT s",
            f"INSERT INTO {database.table} (id) VALUES (3)",
            "ROLLBACK TO s",
            f"INSERT INTO {database.other} VALUES (1)",
            "COMMIT",
        ):
            cursor.execute(statement)
    first = database.end()
    database.run("TRUNCATE {d}.t")
    assert database.count(start, database.end()) == (2, 3, first)
    database.run("DROP DATABASE {d}")


@pytest.mark.mysql
@pytest.mark.parametrize("kind", SERVERS)
def test_a_search_does_not_disturb_the_reader(servers: Callable[[str], MysqlInfo], kind: str) -> None:
    database = Database(servers(kind))
    replica = Replica(database.options, [database.table])
    replica.catch_up()
    start = replica.state.offset
    database.next_second()
    database.run("INSERT INTO {d}.t (id) VALUES (1)")
    end = database.end()
    assert database.count(start, end)[:2] == (1, 1)
    assert database.at(database.next_second() * MILLI) == end
    assert database.name in KIND.record_times(database.options, {database.name: start})
    database.run("INSERT INTO {d}.t (id) VALUES (2)")
    reader = replica.reader
    replica.catch_up()
    assert replica.reader is reader
    assert replica.differences() == {}
    replica.close()
    database.run("DROP DATABASE {d}")


@pytest.mark.mysql
def test_what_the_server_has_purged_is_neither_counted_nor_found() -> None:
    with server_of(MARIADB, binlog_checksum="NONE") as server:
        database = Database(server.info)
        start, second = database.end(), database.next_second()
        database.run("INSERT INTO {d}.t (id) VALUES (1)")
        assert database.at(second * MILLI) == start
        database.next_second()
        database.run("FLUSH LOGS")
        last = database.run("SHOW BINARY LOGS")[-1][0]

        def is_purged() -> bool:
            database.run(f"PURGE BINARY LOGS TO '{last}'")
            return len(database.run("SHOW BINARY LOGS")) == 1

        wait_until(is_purged, "the log to be purged")
        with pytest.raises(CaptureError, match=r"its log begins at 00000\d:4, which was written at 20"):
            database.at(second * MILLI)
        assert KIND.count_changes(database.options, start, database.end(), [database.table]) is None
        assert KIND.record_times(database.options, {database.name: start}) == {}
        refused = cdc_options(server.info, database.name, password="wrong")
        assert KIND.count_changes(refused, start, database.end(), [database.table]) is None
        assert KIND.record_times(refused, {database.name: start}) == {}


def facts_of(files: int) -> Facts:
    logs = tuple(LogFile(name=f"log.{number:06d}", sequence=number, size=900) for number in range(1, files + 1))
    return Facts(settings={}, logs=logs, end=number_of(files, 900))


def test_a_search_of_the_skipped_part_begins_near_the_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_SKIPPED_BYTES", 2500)
    facts = facts_of(10)
    # The position is after 700 bytes of its file; two earlier files of 900 bytes are within 2,500 bytes.
    position = number_of(8, 700)
    assert search.skipped_start(facts, number_of(2, 500), position) == number_of(6, 4)
    assert search.skipped_start(facts, number_of(7, 500), position) == number_of(7, 500)
    monkeypatch.setattr(search, "MOST_SKIPPED_BYTES", 100)
    assert search.skipped_start(facts, number_of(2, 500), position) == number_of(8, 4)
    monkeypatch.setattr(search, "MOST_SKIPPED_BYTES", 1 << 30)
    assert search.skipped_start(facts, number_of(2, 500), position) == number_of(2, 500)


def test_the_file_of_a_time_is_found_by_bisection(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, files = random.Random(7), 400
    times = sorted(rng.choices(range(1000, 1600), k=files * 3))
    # The server writes a transaction after it creates the transaction's file, and before it creates the next file.
    created = {
        number: rng.randint(*([999, *times][at : at + 2])) for number, at in enumerate(range(0, files * 3, 3), 1)
    }
    # A transaction has the time when its last statement began.
    stamps = [when - rng.choice((0, 0, 0, 1)) for when in times]
    asked: list[str] = []

    def sent(_options: object, file: str, _at: int, *_limits: float) -> Iterator[search._Event]:
        asked.append(file)
        for number in range(int(file[-6:]), files + 1):
            yield search._Event(events.FORMAT, created[number], number_of(number, 4))
            for each in range(3):
                yield search._Event(events.GTID, stamps[number * 3 - 3 + each], number_of(number, 200 * each + 300))

    monkeypatch.setattr(search, "_events", sent)
    monkeypatch.setattr(search, "_facts_and_time", lambda *_: (facts_of(files), 5_000_000))
    for seconds in range(1000, 1602):
        asked.clear()
        if created[1] >= seconds:
            with pytest.raises(CaptureError, match="no longer has the changes since"):
                search.first_at({}, seconds * MILLI, 1.0)
            continue
        first = next((at for at, when in enumerate(stamps) if when >= seconds), None)
        wanted = facts_of(files).end if first is None else number_of(first // 3 + 1, 200 * (first % 3) + 300)
        assert search.first_at({}, seconds * MILLI + 500, 1.0) == wanted
        assert len(asked) <= 11
    assert search.first_at({}, 5_000_000, 1.0) == facts_of(files).end


def packet(kind: int, end: int, size: int, seconds: int = 9, body: bytes = b"") -> bytes:
    return b"\0" + struct.pack("<IBIIIH", seconds, kind, 1, size, end, 0) + body


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The packets that the server sends, without checksums, until the end of its log."""
    packets: list[bytes] = []
    arriving = iter(packets)

    class Connection:
        def _force_close(self) -> None:
            pass

    monkeypatch.setattr(search, "connect", lambda *_: Connection())
    monkeypatch.setattr(search, "request_log", lambda *_args, **_options: False)
    monkeypatch.setattr(search, "next_packet", lambda _: next(arriving, None))
    return packets


def found(deadline: float = 60.0) -> list[search._Event]:
    return list(search._events({}, "log.000003", 4, 1.0, time.monotonic() + deadline))


def test_positions_continue_after_4_gib_and_in_the_next_file(sent: list[bytes]) -> None:
    whole = 1 << 32
    sent += [
        packet(events.ROTATE, 0, 0, 0, struct.pack("<Q", 4) + b"log.000003"),
        packet(events.FORMAT, 104, 100, body=bytes(5)),
        packet(events.GTID, 154, 50),
        packet(events.XID, whole - 10, whole - 164),
        packet(events.GTID, 40, 50),
        packet(events.XID, 90, 50),
        packet(events.ROTATE, 140, 50, body=struct.pack("<Q", 4) + b"log.000004"),
        packet(events.ROTATE, 0, 0, 0, struct.pack("<Q", 4) + b"log.000004"),
        packet(events.FORMAT, 104, 100, body=bytes(5)),
        packet(events.MARIADB_GTID, 144, 40),
    ]
    begun = [event.position for event in found() if event.kind in search._BEGINNINGS]
    assert begun == [number_of(3, 104), number_of(3, whole - 10), number_of(4, 104)]


@pytest.mark.parametrize(
    ("limit", "last", "said"),
    [(-1.0, packet(events.GTID, 154, 50), "in time"), (60.0, b"\0", "the server sent"), (60.0, b"\0bad", "sent")],
)
def test_a_search_ends_with_an_error(sent: list[bytes], limit: float, last: bytes, said: str) -> None:
    sent.append(last)
    with pytest.raises(CaptureError, match=said) as caught:
        found(limit)
    assert caught.value.kind is UPSTREAM_UNREACHABLE
    assert caught.value.is_temporary


class CannedStream:
    """A stream of transactions that arrive one after another."""

    def __init__(self, *transactions: Transaction, ends: bool) -> None:
        self.transactions, self.ends = list(transactions), ends

    @property
    def is_at_end(self) -> bool:
        return self.ends and not self.transactions

    def get(self, _wait: float) -> tuple[list[Transaction], int]:
        if not self.transactions:
            return [], 0
        made = self.transactions.pop(0)
        return [made], made.position


def truncating(position: int) -> Transaction:
    return Transaction(position=position, time=9, parts=[Effect("truncated", "d", "t")], prepared=())


def counted(*at: int, ends: bool, seconds: float = 0.05, only_first: bool = False) -> Any:
    stream: Any = CannedStream(*map(truncating, at), ends=ends)
    deadline = time.monotonic() + seconds
    return search._count(stream, 1 << 40, 9 << 40, deadline, only_first=only_first, earlier="refused")


def test_numbers_are_lower_limits_if_the_log_does_not_arrive_in_time() -> None:
    numbers = [number << 40 for number in (1, 2, 3, 9, 10)]
    limited = counted(*numbers[:3], ends=False)
    assert (limited.transactions, limited.changes, limited.first_end, limited.is_exact) == (2, 2, 2 << 40, False)
    late = counted(*numbers, ends=True, seconds=-1.0)
    assert (late.transactions, late.is_exact) == (0, False)
    whole = counted(*numbers, ends=False)
    assert (whole.transactions, whole.is_exact) == (3, True)
    shorter = counted(*numbers[:2], ends=True)
    assert (shorter.transactions, shorter.is_exact) == (1, True)
    assert counted(ends=False, only_first=True) is None
    assert counted(ends=True, only_first=True).first_end is None
    assert counted(*numbers, ends=True, only_first=True).first_end == 2 << 40


def test_a_transaction_that_was_prepared_before_the_log_begins_is_not_counted() -> None:
    committed = Transaction(position=2 << 40, time=9, parts=[], prepared=(), is_earlier=True)

    def count(earlier: search.Earlier, *transactions: Transaction, only_first: bool = False) -> Any:
        stream: Any = CannedStream(ends=True)
        stream.transactions = list(transactions)
        deadline = time.monotonic() + 1.0
        return search._count(stream, 1 << 40, 9 << 40, deadline, only_first=only_first, earlier=earlier)

    following = truncating(3 << 40)
    with pytest.raises(search._EarlierTransactionError):
        count("refused", committed, following)
    assert (count("ignored", committed, following).transactions, count("ignored", committed).is_exact) == (1, True)
    assert (count("missing", committed, following).transactions, count("missing", committed).is_exact) == (1, False)
    assert count("missing", committed, following, only_first=True) is None
    assert count("missing", committed, only_first=True) is None
    assert count("refused", replace(committed, position=10 << 40), following).is_exact, "it is after the end"


def test_the_header_of_an_encrypted_file_is_not_unread() -> None:
    facts = Facts(
        settings={"server_uuid": "u"}, logs=(LogFile(name="b.000002", sequence=2, size=1512),), end=number_of(2, 1000)
    )
    found = details(facts)
    assert found is not None
    assert (found.bytes_behind(number_of(2, 1000)), found.bytes_behind(number_of(2, 900))) == (0, 100)


def test_rows_that_cannot_be_counted_make_the_number_a_lower_limit() -> None:
    def change(kind: int, part: RowsPart) -> Transaction:
        described = TableMap(
            id=1, database="d", table="t", columns=(StreamColumn(type=kind, meta=b""),), signature=bytes([kind])
        )
        return Transaction(position=1, time=9, parts=[described, part], prepared=())

    cells = b"\0\1\0\0\0" * 2 + b"\1"
    for kind, part, rows, is_exact in (
        (3, RowsPart(1, events.WRITE, cells, 0, 1, is_full=True), 3, True),
        (3, RowsPart(1, events.UPDATE, cells + b"\1", 0, 1, is_full=True), 2, True),
        (3, RowsPart(1, events.WRITE, cells, 0, 1, is_full=False), 1, False),
        (3, RowsPart(1, events.WRITE, cells, 0, 2, is_full=True), 1, False),
        (99, RowsPart(1, events.WRITE, cells, 0, 1, is_full=True), 1, False),
    ):
        counter = search.RowCounter()
        assert (counter.changes_of(change(kind, part)), counter.is_exact) == (rows, is_exact)
