"""XA transactions around a move: each is read once and at its place in the order of commits, or counts as skipped."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.mysql_cdc import search
from rw_sql.connectors.mysql_cdc.marks import Mark
from rw_sql.connectors.mysql_cdc.positions import shown
from rw_sql.connectors.mysql_cdc.source import MysqlCdcConnector
from tests.support.mysql import SERVERS, server_of
from tests.support.mysql_changes import Replica, cdc_options
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.mysql import MysqlInfo

pytestmark = [pytest.mark.mysql, pytest.mark.parametrize("kind", SERVERS)]

KIND = MysqlCdcConnector()


class Shop:
    """A table of a new database, a table that is not captured, and a source that has read everything up to now."""

    def __init__(self, server: MysqlInfo) -> None:
        self.server, name = server, f"x_{uuid.uuid4().hex[:8]}"
        server.run(
            f"CREATE DATABASE {name}",
            f"CREATE TABLE {name}.t (id INT PRIMARY KEY)",
            f"CREATE TABLE {name}.other (id INT PRIMARY KEY)",
            f"INSERT INTO {name}.t VALUES (1)",
        )
        self.table, self.other, self.prefix = f"{name}.t", f"{name}.other", name
        self.replica = Replica(cdc_options(server, name), [self.table])
        self.read()

    @property
    def at(self) -> int:
        """The position of the source."""
        return self.replica.state.offset

    def end(self) -> int:
        """The end of the server's log."""
        return KIND.look(self.replica.options).splits[self.replica.state.split].end

    def prepare(self, xid: str, row: int, table: str | None = None) -> int:
        """Prepares an XA transaction in a connection that ends; returns the end of the log."""
        xid = f"'{self.prefix}','{xid}'"
        with self.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"XA START {xid}")
            cursor.execute(f"INSERT INTO {table or self.table} VALUES ({row})")
            cursor.execute(f"XA END {xid}")
            cursor.execute(f"XA PREPARE {xid}")
        return self.end()

    def finish(self, xid: str, word: str = "COMMIT") -> int:
        """Ends a prepared transaction; returns the end of the log."""
        self.server.run(f"XA {word} '{self.prefix}','{xid}'")
        return self.end()

    def insert(self, row: int) -> int:
        """Commits a row; returns the end of the log."""
        self.server.run(f"INSERT INTO {self.table} VALUES ({row})")
        return self.end()

    def read(self) -> list[int]:
        """Reads everything; returns the ids of the rows in the order in which they came."""
        before = len(self.replica.log)
        self.replica.catch_up()
        self.replica.close()
        return [int(json.loads(each["row"])["id"]) for each in self.replica.log[before:]]

    def move(self, to: int) -> None:
        """A statement sets the position, and the next reader opens there."""
        reached = self.at
        self.replica.state = replace(self.replica.state, offset=to)
        self.replica.open(reached)

    def count(self, start: int, end: int, *, includes_earlier: bool = True) -> tuple[int, int, bool]:
        found = KIND.count_changes(self.replica.options, start, end, (self.table,), includes_earlier=includes_earlier)
        assert found is not None
        return found.transactions, found.changes, found.is_exact

    def next_end(self) -> int | None:
        """The position behind the next transaction, to which SKIP RECORD moves."""
        found = KIND.count_changes(self.replica.options, self.at, self.end(), (self.table,), only_first=True)
        return None if found is None else found.first_end


def test_a_transaction_that_a_move_leaves_prepared_is_read_when_it_is_committed(
    servers: Callable[[str], MysqlInfo], kind: str
) -> None:
    shop = Shop(servers(kind))
    start = shop.at
    shop.prepare("a", 10)
    skipped = shop.insert(11)
    shop.insert(12)
    shop.finish("a")
    end = shop.insert(13)
    assert shop.count(start, end) == (4, 4, True)
    assert shop.next_end() == skipped
    assert shop.count(start, skipped) == (1, 1, True)
    assert shop.count(skipped, end) == (3, 3, True)
    shop.move(skipped)
    # In the order of the commits, and each once, also if nothing is committed for a while.
    assert shop.read() == [12, 10, 13]
    shop.prepare("b", 20)
    shop.move(shop.insert(21))
    assert shop.read() == []
    shop.finish("b")
    assert shop.read() == [20]


def test_a_reader_that_ends_within_the_skipped_part_begins_there_again(
    servers: Callable[[str], MysqlInfo], kind: str
) -> None:
    shop = Shop(servers(kind))
    (name,) = shop.replica.names
    start = shop.at
    shop.prepare("a", 10)
    shop.move(shop.insert(11))
    assert shop.replica.reader is not None
    # A commit of a chunk, for example, before the stream has passed the skipped part.
    stream = shop.replica.reader._stream
    assert stream is not None
    shop.replica.reader._mark(stream)
    kept = shop.replica.reader._progress[name]
    assert Mark.from_json(kept.identity or "").prepared == (start,)
    shop.replica.close()
    shop.replica.progress[name] = kept
    shop.finish("a")
    assert shop.read() == [10]
    assert Mark.from_json(shop.replica.progress[name].identity or "").prepared == ()


def test_the_next_transaction_may_have_been_prepared_before_the_position(
    servers: Callable[[str], MysqlInfo], kind: str
) -> None:
    shop = Shop(servers(kind))
    shop.prepare("a", 10)
    shop.prepare("rolled", 30)
    shop.prepare("other", 10, shop.other)
    assert shop.read() == []
    start = shop.at
    shop.finish("rolled", "ROLLBACK")
    shop.finish("other")
    committed = shop.finish("a")
    end = shop.insert(11)
    assert shop.next_end() == committed
    assert shop.count(start, end) == (2, 2, True)
    # A reader that is taken back to the position does not read it again, because it was prepared before.
    assert shop.count(start, end, includes_earlier=False) == (1, 1, True)
    shop.move(committed)
    assert shop.read() == [11]
    shop.move(start)
    assert shop.read() == [11]


def test_a_transaction_that_was_prepared_in_a_removed_file_is_not_counted_as_known(kind: str) -> None:
    with server_of(kind) as server:
        shop = Shop(server.info)
        shop.prepare("a", 10)
        server.info.run("FLUSH LOGS")
        shop.insert(11)
        assert shop.read() == [11]
        last = server.info.run("SHOW BINARY LOGS")[-1][0]

        def is_purged() -> bool:
            server.info.run(f"PURGE BINARY LOGS TO '{last}'")
            return bool(server.info.run("SHOW BINARY LOGS")[0][0] == last)

        wait_until(is_purged, "the log is purged")
        start = shop.at
        shop.finish("a")
        end = shop.insert(12)
        assert shop.count(start, end) == (1, 1, False)
        assert shop.next_end() is None


def _next_second(server: MysqlInfo) -> int:
    """Waits until the server's clock shows the next second; returns it."""
    ((before,),) = server.run("SELECT UNIX_TIMESTAMP()")
    wait_until(lambda: server.run("SELECT UNIX_TIMESTAMP()")[0][0] > before, "the next second")
    return int(server.run("SELECT UNIX_TIMESTAMP()")[0][0])


def test_a_move_into_a_log_that_was_reset_searches_no_skipped_part(kind: str) -> None:
    with server_of(kind) as server:
        shop = Shop(server.info)
        server.info.run("FLUSH LOGS")
        shop.insert(2)
        shop.read()
        # The new log gets a file of the number that was read last, created in a later second, and another file.
        _next_second(server.info)
        server.info.run("RESET MASTER", *["FLUSH LOGS"] * 5)
        shop.move(shop.insert(3))
        shop.insert(4)
        assert shop.read() == [4]


def test_the_place_of_a_time_is_before_every_commit_since_then(servers: Callable[[str], MysqlInfo], kind: str) -> None:
    shop = Shop(servers(kind))
    server = shop.server

    start = shop.at
    shop.prepare("a", 10)
    skipped = shop.insert(11)
    since = _next_second(server)
    shop.finish("a")
    end = shop.insert(12)
    at = search.first_at(shop.replica.options, since * 1000, 10.0)
    assert at == skipped
    assert (shop.count(start, at), shop.count(at, end)) == ((1, 1, True), (2, 2, True))
    shop.move(at)
    assert shop.read() == [10, 12]


def _skip_the_prepare(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Moves the source past a prepared transaction, which is outside of the part of the log that a move searches."""
    monkeypatch.setattr(search, "MOST_SKIPPED_BYTES", 0)
    shop.prepare("a", 10)
    shop.prepare("rolled", 30)
    for row in (11, 12, 13):
        shop.server.run("FLUSH BINARY LOGS")
        shop.insert(row)
    shop.move(shop.end())
    assert shop.read() == []


def test_a_transaction_that_was_prepared_before_the_searched_part_is_read(
    servers: Callable[[str], MysqlInfo], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(servers(kind))
    # The xid was used before. Its last XA PREPARE counts.
    shop.prepare("a", 9)
    shop.finish("a")
    assert shop.read() == [9]
    _skip_the_prepare(shop, monkeypatch)
    shop.insert(14)
    shop.finish("rolled", "ROLLBACK")
    shop.finish("a")
    shop.insert(15)
    assert shop.read() == [14, 10, 15]
    shop.insert(16)
    assert shop.read() == [16]


def test_a_search_that_is_killed_continues_and_reads_the_transaction_once(
    servers: Callable[[str], MysqlInfo], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(servers(kind))
    _skip_the_prepare(shop, monkeypatch)
    shop.insert(14)
    shop.finish("a")
    shop.finish("rolled", "ROLLBACK")
    shop.insert(15)
    before, notices = len(shop.replica.log), 0

    def is_read() -> bool:
        # Each run ends after one batch; each second run ends without a commit.
        nonlocal notices
        reader = shop.replica.open()
        taken = reader.take(1, 0.5)
        notices += len(taken.notices)
        if runs.pop(0):
            shop.replica.commit(taken)
        shop.replica.close()
        return len(shop.replica.log) - before >= 3

    runs = [False, True] * 100
    wait_until(is_read, "all rows are read")
    assert [int(json.loads(each["row"])["id"]) for each in shop.replica.log[before:]] == [14, 10, 15]
    assert notices > 0
    assert shop.read() == []


def test_a_transaction_whose_prepare_the_server_has_purged_stops_the_source(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server_of(kind) as server:
        shop = Shop(server.info)
        _skip_the_prepare(shop, monkeypatch)
        last = server.info.run("SHOW BINARY LOGS")[-1][0]

        def is_purged() -> bool:
            server.info.run(f"PURGE BINARY LOGS TO '{last}'")
            return bool(server.info.run("SHOW BINARY LOGS")[0][0] == last)

        wait_until(is_purged, "the log is purged")
        shop.insert(14)
        committed = shop.finish("a")
        shop.insert(15)
        with pytest.raises(CaptureError, match=r"was prepared before .*, where the server's log begins") as caught:
            shop.read()
        assert caught.value.hint is not None
        assert shown(committed) in caught.value.hint
        assert not caught.value.is_temporary
        shop.replica.close()
        # What the hint says: a move to the end of the transaction continues without its changes.
        shop.move(committed)
        assert shop.read() == [15]


def test_a_table_without_a_snapshot_has_the_rows_of_a_transaction_that_was_prepared_before(
    servers: Callable[[str], MysqlInfo], kind: str
) -> None:
    shop = Shop(servers(kind))
    shop.prepare("a", 10)
    shop.insert(11)
    shop.replica.read_anew(shop.table)
    shop.replica.progress[shop.table] = replace(shop.replica.progress[shop.table], is_done=True)
    assert shop.read() == []
    shop.finish("a")
    shop.insert(12)
    assert shop.read() == [10, 12]
