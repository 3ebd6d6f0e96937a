"""Reads the binary log in a separate thread, as a stream of whole transactions."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
import zlib
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.mysql_cdc import events
from rw_sql.connectors.mysql_cdc.connection import code_of, connect, unreachable
from rw_sql.connectors.mysql_cdc.events import BrokenEventError, RowsPart, TableMap
from rw_sql.connectors.mysql_cdc.positions import LogPlace, number_of, sequence_of, shown
from rw_sql.connectors.mysql_cdc.server import AGAIN
from rw_sql.connectors.mysql_cdc.statements import Effect, effects_of
from rw_sql.connectors.support.messages import without_password
from rw_sql.errors import OFFSET_OUT_OF_RANGE, UPSTREAM_MISSING, UPSTREAM_UNREACHABLE
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pymysql
    from pymysql.connections import Connection
else:
    pymysql = deferred("pymysql")

MOST_BYTES = 64 << 20
"""The maximum number of bytes of rows that are read ahead. A single transaction may exceed this number."""

_HEARTBEAT_SECONDS = 0.5
_SILENT_SECONDS = 30.0
"""If the server sends nothing for this time, not even a heartbeat, the connection counts as lost."""

_DUMP = 0x12
_STOP_AT_END = 1
_END_OF_STREAM, _LONGEST_END = 0xFE, 9
_FATAL = 1236
"""The code that the server uses for all errors that end the sending of the log. Only the text of an error shows the
cause of the error."""

_MISSING = ("could not find", "failed to find", "position > file size", "impossible position", "purged")
"""Parts of the error texts of MySQL and MariaDB, in lower case. An error with one of these parts means that the
requested log does not exist."""

_SAME_ID = "same server_uuid/server_id"
_NO_TABLES: frozenset[tuple[str, str]] = frozenset()


@dataclass(slots=True, kw_only=True)
class Transaction:
    """The changes that a transaction made to the watched tables, in the order of the log. ``position`` is the
    transaction's end, and ``time`` is the time of the transaction's commit in seconds since 1970. ``prepared`` are the
    start positions of the XA transactions that are prepared but not ended at this position. If ``is_earlier`` is true,
    an XA transaction was committed that had been prepared before the start of the stream, so ``parts`` is empty."""

    position: int
    time: int
    parts: list[TableMap | RowsPart | Effect]
    prepared: tuple[int, ...]
    is_earlier: bool = False


@dataclass(slots=True)
class _Group:
    """The transaction that is being read."""

    start: int
    is_single: bool = False
    parts: list[TableMap | RowsPart | Effect] = field(default_factory=list)
    savepoints: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The tables whose changes are requested, and the source's databases. A table is a pair (database, table) in the
    log's spelling."""

    tables: frozenset[tuple[str, str]] = _NO_TABLES
    databases: frozenset[str] = frozenset()
    is_folded: bool = False

    def has(self, database: str, table: str) -> bool:
        """True if the table's changes are requested."""
        return (self.folded(database), self.folded(table)) in self.tables

    def folded(self, name: str) -> str:
        """Converts a name to lower case if the server ignores the case of names."""
        return name.lower() if self.is_folded else name


def request_log(connection: Connection[Any], file: str, at: int, server_id: int, *, stops_at_end: bool = False) -> bool:
    """Requests the log from the position ``at`` of a file. Returns True if the events have checksums. Raises
    pymysql.Error or OSError.

    With ``stops_at_end``, the server ends the stream at the present end of its log. The ``server_id`` 0 is the id of a
    client that is not a replica, so such a client does not end the stream of another reader.
    """
    with connection.cursor() as cursor:
        cursor.execute("SET @master_binlog_checksum = @@global.binlog_checksum")
        cursor.execute("SET @source_binlog_checksum = @@global.binlog_checksum")
        # The checksum's kind is queried here, because the first event arrives before the event that states the kind.
        cursor.execute("SELECT @master_binlog_checksum")
        ((checksum,),) = cursor.fetchall()
        cursor.execute("SET @mariadb_slave_capability = 4")
        period = int(_HEARTBEAT_SECONDS * 1e9)
        cursor.execute(f"SET @master_heartbeat_period = {period}, @source_heartbeat_period = {period}")
    flags = _STOP_AT_END if stops_at_end else 0
    connection._execute_command(_DUMP, struct.pack("<IHI", at, flags, server_id) + file.encode())
    return checksum not in (b"NONE", None)


def next_packet(connection: Connection[Any]) -> bytes | None:
    """The next packet of the log that :func:`request_log` requested; None if the server has ended the stream. Raises
    pymysql.Error or OSError."""
    data: bytes = connection._read_packet()._data
    return None if data[0] == _END_OF_STREAM and len(data) < _LONGEST_END else data


class Stream:
    """A thread that reads the log. :meth:`get` returns the transactions that have arrived. An error ends the stream."""

    def __init__(self, options: Mapping[str, str], server_id: int, *, is_mariadb: bool, timeout: float) -> None:
        self._options = options
        self._server_id = server_id
        self._is_mariadb = is_mariadb
        self._timeout = timeout
        self._changed = threading.Condition()
        self._ready: deque[Transaction] = deque()
        self._bytes = 0
        self._told: tuple[int, ...] = ()
        self._seen = 0
        self._error: CaptureError | None = None
        self._is_closing = False
        self._is_at_end = False
        self._stops_at_end = False
        self._ignored_to = 0
        self._watched = Watched()
        self._file, self._place = "", LogPlace()
        self._has_checksum = True
        self._created: dict[int, tuple[int, int]] = {}
        self._group: _Group | None = None
        self._prepared: dict[bytes, tuple[int, list[TableMap | RowsPart | Effect]]] = {}
        self._unwatched: set[bytes] = set()
        """The prepared XA transactions that changed no watched table."""
        self._maps: dict[int, bool] = {}
        self._size = 0
        self._connection: Connection[Any] | None = None
        self._thread: threading.Thread | None = None

    def start(self, file: str, at: int, watched: Watched, *, stops_at_end: bool = False, ignored_to: int = 0) -> None:
        """Starts reading. Raises CaptureError.

        The reader ignores the transactions that end at or before the position ``ignored_to``. Events before this
        position that a reader cannot read become an :class:`Effect` ``changed`` and do not end the stream.

        With ``stops_at_end``, reads up to the present end of the log; see :attr:`is_at_end`. Such a stream finds and
        counts transactions. Events that a reader cannot read become an :class:`Effect` ``changed``.
        """
        self._watched, self._stops_at_end, self._ignored_to = watched, stops_at_end, ignored_to
        connection = connect(self._options, self._timeout, read_timeout=_SILENT_SECONDS)
        self._connection = connection
        try:
            self._has_checksum = request_log(connection, file, at, self._server_id, stops_at_end=stops_at_end)
        except (pymysql.Error, OSError) as error:
            raise unreachable(error, self._options) from error
        self._file, self._place = file, LogPlace(sequence_of(file))
        self._thread = threading.Thread(target=self._run, name="rw_sql-binlog", daemon=True)
        self._thread.start()

    def get(self, wait_seconds: float) -> tuple[list[Transaction], int]:
        """Returns the transactions that have arrived since the last call, and a position. This call and earlier calls
        have returned all transactions before this position. Waits at most ``wait_seconds`` for a transaction.

        After all transactions have been returned, raises the error that ended the stream.
        """
        with self._changed:
            if not self._ready and wait_seconds > 0:
                self._changed.wait_for(lambda: self._ready or self._has_ended, wait_seconds)
            made = list(self._ready)
            self._ready.clear()
            self._bytes = 0
            if not made and self._error is not None:
                raise self._error
            self._changed.notify_all()
            return made, self._seen

    @property
    def _has_ended(self) -> bool:
        return self._error is not None or self._is_closing or self._is_at_end

    @property
    def is_at_end(self) -> bool:
        """True if the stream has reached the end of the log at which it stops, and :meth:`get` has returned all
        transactions."""
        with self._changed:
            return self._is_at_end and not self._ready

    @property
    def seen(self) -> int:
        """The position up to which all transactions have arrived."""
        return self._seen

    def await_created(self, sequence: int, timeout: float) -> tuple[tuple[int, int], list[Transaction]]:
        """Waits for the first event of a log file. Returns the result of :meth:`created`, and the transactions that
        have arrived meanwhile. Raises CaptureError after ``timeout`` seconds, or if the stream ends."""
        received: list[Transaction] = []
        deadline = time.monotonic() + timeout
        while (created := self.created(sequence)) is None:
            received += self.get(0.02)[0]
            if time.monotonic() > deadline:
                raise CaptureError(UPSTREAM_UNREACHABLE, "the server sends no event of its log", is_temporary=True)
        return created, received

    def created(self, sequence: int) -> tuple[int, int] | None:
        """The time when a log file was created, in seconds since 1970, and the id of the server that created the file.
        The result is None until the file's first event has arrived.
        """
        return self._created.get(sequence)

    def close(self) -> None:
        """Ends the thread and the connection."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        connection = self._connection
        if connection is not None:
            sock = getattr(connection, "_sock", None)
            if sock is not None:
                with contextlib.suppress(OSError):  # the connection may already be closed
                    sock.shutdown(socket.SHUT_RDWR)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(self._timeout)
        if connection is not None:
            with contextlib.suppress(pymysql.Error, OSError):
                connection._force_close()

    def _run(self) -> None:
        try:
            while not self._is_closing:
                assert self._connection is not None
                data = next_packet(self._connection)
                if data is None and self._stops_at_end:
                    self._end_reading()
                    return
                if data is None:
                    raise CaptureError(UPSTREAM_UNREACHABLE, "the server ended the stream", is_temporary=True)
                self._event(data)
        except pymysql.Error as error:
            self._fail(stream_error(error, self._options, shown(self._seen) if self._seen else self._file))
        except CaptureError as error:
            self._fail(error)
        except (BrokenEventError, struct.error, IndexError, zlib.error) as error:
            self._fail(CaptureError(UPSTREAM_MISSING, f"the server sent {error} after {shown(self._seen)}"))
        except (OSError, AttributeError, ValueError) as error:
            # The errors that a closed socket causes in a library's thread.
            self._fail(
                CaptureError(UPSTREAM_UNREACHABLE, without_password(str(error), self._options), is_temporary=True)
            )

    def _end_reading(self) -> None:
        with self._changed:
            self._is_at_end = True
            self._changed.notify_all()

    def _fail(self, error: CaptureError) -> None:
        with self._changed:
            if not self._is_closing:
                self._error = error
            self._changed.notify_all()

    def _event(self, data: bytes) -> None:
        header = events.parse_header(data)
        kind = header.kind
        if kind == events.FORMAT:
            self._has_checksum = events.states_checksum(data)
            self._created.setdefault(self._place.sequence, (header.time, header.server))
        body = events.body_of(data, has_checksum=self._has_checksum or kind == events.FORMAT)
        end = self._end(header.end)
        match kind:
            case events.ROTATE:
                self._rotate(body, is_real=header.time != 0)
                return
            case events.MARIADB_GTID:
                self._group = _Group(self._seen, is_single=bool(body[12] & events.STANDALONE))
            case events.GTID | events.ANONYMOUS_GTID | events.TAGGED_GTID:
                self._group = _Group(self._seen, is_single=True)
            case events.QUERY | events.MARIADB_QUERY_COMPRESSED:
                self._query(kind, body, end, header.time)
            case events.TABLE_MAP:
                self._table_map(body)
            case events.XID:
                self._commit(end, header.time)
            case events.XA_PREPARE:
                self._prepare(body, end, header.time)
            case events.HEARTBEAT | events.HEARTBEAT_2:
                if self._group is None:
                    self._pass(end or self._seen)
                return
            case events.PARTIAL_UPDATE if self._maps.get(events.table_id(body), True):
                self._refuse(
                    f"an update after {shown(self._seen)} has only parts of its JSON values",
                    "SET GLOBAL binlog_row_value_options = ''",
                    end,
                )
            case events.PAYLOAD:
                self._refuse(
                    f"the transaction after {shown(self._seen)} is compressed",
                    "SET GLOBAL binlog_transaction_compression = OFF",
                    end,
                )
                self._commit(end, header.time)
            case _ if kind in events.ROWS:
                self._rows(kind, body)
            case events.EXECUTE_LOAD:
                database, text = events.parse_load(body)
                effect = Effect("changed", database)
                if self._is_wanted(effect, text):
                    self._add(effect)
        if self._group is None and end:
            self._pass(end)

    def _refuse(self, message: str, remedy: str, end: int) -> None:
        """Raises the error for an event that cannot be read and that ends at ``end``. A stream that stops at the end of
        the log only finds and counts transactions, so it notes that the event changes an unknown number of rows. The
        same applies to an event that a move has skipped; if the event belongs to an XA transaction that is committed
        later, the reader raises an error at the XA COMMIT."""
        if not self._stops_at_end and not 0 < end <= self._ignored_to:
            raise CaptureError(UPSTREAM_MISSING, message, hint=f"{remedy}; then {AGAIN}")
        self._add(Effect("changed", ""))

    def _end(self, at: int) -> int:
        """The number of the position after an event; 0 for an event that is in no file."""
        return self._place.advance(at) if at else 0

    def _rotate(self, body: bytes, *, is_real: bool) -> None:
        name, at = events.parse_rotate(body)
        if name != self._file or is_real:
            self._file = name
            self._maps.clear()
            self._group = None  # A transaction without an end was cut off by a crash of the server: it did not commit.
        self._place.rotate(name, at)
        if self._group is None:
            self._pass(number_of(self._place.sequence, at))

    def _table_map(self, body: bytes) -> None:
        at = 8
        size = body[at]
        database = body[at + 1 : at + 1 + size].decode(errors="replace")
        at += size + 2
        table = body[at + 1 : at + 1 + body[at]].decode(errors="replace")
        number = events.table_id(body)
        self._maps[number] = self._watched.has(database, table)
        if self._maps[number]:
            self._add(events.parse_table_map(body, is_mariadb=self._is_mariadb))

    def _rows(self, kind: int, body: bytes) -> None:
        number = events.table_id(body)
        if number not in self._maps:
            if number == 0xFFFFFF:  # The end of a statement that changed no row.
                return
            raise BrokenEventError(f"rows of the unknown table {number}")
        if self._maps[number]:
            self._add(events.parse_rows(kind, body), len(body))

    def _add(self, part: TableMap | RowsPart | Effect, size: int = 200) -> None:
        if self._group is None:
            self._group = _Group(self._seen)
        self._group.parts.append(part)
        self._size += size

    def _query(self, kind: int, body: bytes, end: int, time: int) -> None:
        database, text = events.parse_query(kind, body)
        word = text[:40].lstrip().upper()
        group = self._group
        if word == "BEGIN" or word.startswith("XA START"):
            self._group = _Group(self._seen if group is None else group.start)
        elif word == "COMMIT":
            self._commit(end, time)
        elif word == "ROLLBACK" or word.startswith("XA END"):
            if word == "ROLLBACK":
                self._group = None
        elif word.startswith("SAVEPOINT"):
            if group is not None:
                group.savepoints[text.strip()[9:].strip()] = len(group.parts)
        elif word.startswith("ROLLBACK TO"):
            if group is not None:
                name = text.strip()[11:].strip().removeprefix("SAVEPOINT ").strip()
                del group.parts[group.savepoints.get(name, len(group.parts)) :]
        elif (ended := events.parse_xa_end(text.strip())) is not None:
            self._end_prepared(*ended, end, time)
        else:
            for effect in effects_of(text, database):
                if self._is_wanted(effect, text):
                    self._add(effect)
            if group is None or group.is_single:
                self._commit(end, time)

    def _is_wanted(self, effect: Effect, text: str) -> bool:
        watched = self._watched
        if effect.did == "database":
            return watched.folded(effect.database) in watched.databases
        if effect.did == "changed":
            words = watched.folded(text).replace("`", " ").replace(".", " ").split()
            named = {name for pair in watched.tables for name in pair} | watched.databases
            return watched.folded(effect.database) in watched.databases or not named.isdisjoint(words)
        if effect.other is not None and watched.has(*effect.other):
            return True
        return watched.has(effect.database, effect.table)

    def _commit(self, end: int, time: int) -> None:
        group, self._group = self._group, None
        self._leave(group.parts if group is not None else [], end, time)

    def _prepare(self, body: bytes, end: int, time: int) -> None:
        is_one_phase, xid = events.parse_xa_prepare(body)
        group, self._group = self._group, None
        if group is None:
            return
        if is_one_phase:
            self._leave(group.parts, end, time)
        elif group.parts:
            self._prepared[xid] = (group.start, group.parts)
            self._leave([], end, time)
        else:
            self._unwatched.add(xid)

    def _end_prepared(self, is_commit: bool, xid: bytes, end: int, time: int) -> None:
        self._group = None
        is_earlier = is_commit and xid not in self._prepared and xid not in self._unwatched
        self._unwatched.discard(xid)
        _, parts = self._prepared.pop(xid, (0, []))
        self._leave(parts if is_commit else [], end, time, is_earlier=is_earlier)

    def _leave(
        self, parts: list[TableMap | RowsPart | Effect], end: int, time: int, *, is_earlier: bool = False
    ) -> None:
        size, self._size = self._size, 0
        prepared = tuple(sorted(start for start, _ in self._prepared.values()))
        with self._changed:
            if parts or is_earlier or prepared != self._told:
                self._told = prepared
                self._changed.wait_for(lambda: self._bytes < MOST_BYTES or self._is_closing)
                made = Transaction(position=end, time=time, parts=parts, prepared=prepared, is_earlier=is_earlier)
                self._ready.append(made)
                self._bytes += size
            self._seen = max(self._seen, end)
            self._changed.notify_all()

    def _pass(self, position: int) -> None:
        with self._changed:
            self._seen = max(self._seen, position)
            self._changed.notify_all()


def stream_error(error: Exception, options: Mapping[str, str], place: str) -> CaptureError:
    """The CaptureError for an error that ended the stream of a log after ``place``, without the password."""
    text = without_password(str(error.args[1]), options) if len(error.args) > 1 else ""
    if _SAME_ID in text:
        return CaptureError(
            UPSTREAM_UNREACHABLE,
            f"the server ended the stream: {text}",
            hint=f"another reader or replica has the server.id {options.get('server.id', '')} too; "
            "ALTER SOURCE SOURCE_NAME CONNECTOR WITH (server.id = '…') gives the source another one",
            is_temporary=True,
        )
    if code_of(error) != _FATAL:
        return unreachable(error, options)
    message = f"the server cannot send its log after {place}: {text}"
    if not any(part in text.lower() for part in _MISSING):  # for example, the server could not read the log file
        return CaptureError(UPSTREAM_UNREACHABLE, message, is_temporary=True)
    return CaptureError(OFFSET_OUT_OF_RANGE, message, hint=f"the changes after {place} are missing: {AGAIN}")
