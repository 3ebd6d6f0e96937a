"""Reads tables in chunks of rows in key order, while the stream is read.

Each chunk has a position in the log. The rows of the chunk contain every change up to this position and no later
change. The chunk is emitted when the stream has passed this position. Until then, the stream may have read a later
change to one of the chunk's rows. Such a row is omitted from the chunk, because the stream contains the row's newer
values.

MariaDB reports the position of a consistent snapshot (``binlog_snapshot_position``), so no rows need to be locked.
MySQL reports no such position, and a commit appears in its log shortly before snapshots can see it. On MySQL, the rows
of a chunk are therefore read with shared locks, and the position is read before the locks are released. A transaction
that writes one of these rows either has ended before the row is read, or waits until the locks are released.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.key_orders import begins_again, has_other_order
from rw_sql.connectors.mysql_cdc.connection import (
    code_of,
    connect,
    first_of,
    literal,
    named_rows,
    quoted,
    rows_of,
    unreachable,
)
from rw_sql.connectors.mysql_cdc.events import lenenc
from rw_sql.connectors.mysql_cdc.numbers_text import exact_float
from rw_sql.connectors.mysql_cdc.positions import STEPS, number_of, sequence_of
from rw_sql.connectors.mysql_cdc.server import AGAIN, STATUS
from rw_sql.connectors.mysql_cdc.tables import find_table, shared_lock
from rw_sql.connectors.mysql_cdc.templates import Template
from rw_sql.connectors.mysql_cdc.types import (
    BIT,
    BYTES,
    FLOAT,
    LABEL,
    LABELS,
    NUMERIC,
    TIMESTAMPTZ,
    WHOLE,
    YEAR,
    labels_of,
)
from rw_sql.connectors.mysql_cdc.values import cell_of, select_of
from rw_sql.errors import UPSTREAM_MISSING, UPSTREAM_UNREACHABLE
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pymysql
    from pymysql.connections import Connection

    from rw_sql.connectors.changes import TableProgress
    from rw_sql.connectors.mysql_cdc.marks import Mark
    from rw_sql.connectors.mysql_cdc.tables import CatalogColumn, CatalogTable
else:
    pymysql = deferred("pymysql")

CHUNK_BYTES = 4 << 20
"""The target size of a chunk in bytes, to which the number of rows is adapted."""

FIRST_ROWS, LEAST_ROWS, MOST_ROWS = 2_000, 50, 50_000
_MOST_LOCKED = 5_000
"""The maximum number of rows of a chunk that is read with locks. The number is limited because writers of these rows
wait until the chunk is read."""

_READ_AHEAD = 3
_GATHERED_BYTES = 64 << 20
_LONG = 60.0
_CHUNK_SECONDS = 600.0
"""The longest wait, in seconds, for the rows of a chunk."""
_LOCK_SECONDS = 2
_LATE_SECONDS = 0.05
_TOO_OLD = -1
_AGAIN = frozenset({1205, 1213, 1412, _TOO_OLD})
"""The codes of errors after which a chunk is read again: a lock timeout, a deadlock, a change to the table's definition
since the snapshot began, and this module's own error for a snapshot that is too old."""

_MOST_TRIES = 30


@dataclass(slots=True)
class Chunk:
    """Rows of a table in key order, which contain every change up to ``position`` and no later change. ``keys`` and
    ``rows`` are JSON objects; ``size`` is the total length of the rows in characters. ``order`` is the order of the
    keys (:attr:`CatalogTable.key_order <rw_sql.connectors.mysql_cdc.tables.CatalogTable.key_order>`)."""

    table: str
    columns: Mapping[str, str]
    position: int
    keys: list[str]
    rows: list[str]
    next_key: str | None
    is_last: bool
    size: int
    order: str


@dataclass(slots=True)
class _Job:
    """A table whose snapshot is being read. A chunk with a position below ``least`` is too old. ``sent`` counts the
    chunks that were read but not emitted yet; ``begun`` is the stream's position when the current chunk was started.
    ``order`` is the order of the keys at the time when ``next_key`` was read; None if this order is not known."""

    progress: TableProgress
    next_key: str | None
    order: str | None
    least: int
    is_read: bool = False
    sent: int = 0
    rows: int = FIRST_ROWS
    begun: int | None = None
    positions: deque[int] = field(default_factory=deque)


class SnapshotThread:
    """Reads the chunks of all unfinished tables in a separate thread, one table after another.

    ``position_now`` returns the stream's position. A chunk that begins after the call never has an older position than
    the returned position.
    """

    def __init__(self, options: Mapping[str, str], timeout: float, position_now: Callable[[], int]) -> None:
        self._options = options
        self._timeout = timeout
        self._position_now = position_now
        self._changed = threading.Condition()
        self._jobs: dict[str, _Job] = {}
        self._ready: deque[Chunk] = deque()
        self._rate: float | None = None
        self._allowed_at = 0.0
        self._error: CaptureError | None = None
        self._is_closing = False
        self._connection: Connection[Any] | None = None
        self._thread: threading.Thread | None = None
        self._notices: deque[str] = deque(maxlen=100)
        self._wanted = 0

    def set_tables(self, tables: Mapping[str, TableProgress], marks: Mapping[str, Mark]) -> None:
        """Sets the tables to read. Snapshots that have already begun are continued.

        For each table, ``marks`` has the positions up to which the reader ignores changes in the log. Every chunk must
        contain these changes.
        """
        with self._changed:
            for name in [name for name in self._jobs if name not in tables or tables[name].is_done]:
                del self._jobs[name]
            for name, progress in tables.items():
                if not progress.is_done and name not in self._jobs:
                    least = max(marks[name].begin, marks[name].columns_from) if name in marks else 0
                    self._jobs[name] = _Job(progress, progress.next_key, progress.key_order, least)
            self._ready = deque(chunk for chunk in self._ready if chunk.table in self._jobs)
            self._changed.notify_all()
            if self._jobs and self._thread is None and not self._is_closing:
                self._thread = threading.Thread(target=self._run, name="rw_sql-snapshot", daemon=True)
                self._thread.start()

    def set_rate(self, rows_per_second: float | None) -> None:
        """See :meth:`rw_sql.connectors.changes.ChangeReader.set_rate_limit`."""
        with self._changed:
            self._rate = rows_per_second
            self._allowed_at = 0.0
            self._changed.notify_all()

    def is_reading(self, table: str) -> bool:
        """True if a chunk of the table is being read, or was read but not emitted yet."""
        with self._changed:
            job = self._jobs.get(table)
            return job is not None and (job.begun is not None or job.sent > 0)

    def first(self) -> Chunk | None:
        """The oldest chunk that is not emitted yet; None if there is no such chunk. If no chunk is left and an error
        has ended the thread, raises this error, which is a CaptureError."""
        with self._changed:
            if self._ready:
                return self._ready[0]
            if self._error is not None:
                raise self._error
            return None

    def has_gathered(self, rows: int) -> bool:
        """True if the chunks that wait to be emitted have at least ``rows`` rows. If the rows are large, a quarter of
        that number suffices. The result is also True if the thread will read no further chunk. If the result is False,
        the thread reads further chunks in advance."""
        with self._changed:
            self._wanted = rows
            if self._is_enough() or self._error is not None or all(job.is_read for job in self._jobs.values()):
                return True
            self._changed.notify_all()
            return False

    def _is_enough(self) -> bool:
        rows = sum(len(chunk.rows) for chunk in self._ready)
        is_large = 4 * rows >= self._wanted and sum(chunk.size for chunk in self._ready) >= _GATHERED_BYTES
        return rows >= self._wanted or is_large

    def leave(self, chunk: Chunk) -> bool:
        """Records that the oldest chunk is emitted. Returns True if the table is complete."""
        with self._changed:
            self._ready = deque(each for each in self._ready if each is not chunk)
            job = self._jobs.get(chunk.table)
            if job is None:
                return False
            job.sent -= 1
            is_done = job.is_read and not job.sent
            if is_done:
                del self._jobs[chunk.table]
            self._changed.notify_all()
            return is_done

    def notices(self) -> tuple[str, ...]:
        """The notices since the last call."""
        made = []
        while self._notices:
            made.append(self._notices.popleft())
        return tuple(made)

    def close(self) -> None:
        """Ends the thread and cancels a query in progress."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        thread = self._thread
        while thread is not None and thread.is_alive():
            sock = getattr(self._connection, "_sock", None)
            if sock is not None:
                # The connection may have ended after the check above; the thread then ends too.
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            thread.join(0.2)

    def _run(self) -> None:
        try:
            with connect(self._options, self._timeout, read_timeout=_CHUNK_SECONDS) as connection:
                self._connection = connection
                lock = shared_lock(str(rows_of(connection, "SELECT VERSION()")[0][0]))
                with connection.cursor() as cursor:
                    cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                    cursor.execute(f"SET innodb_lock_wait_timeout = {_LOCK_SECONDS}, lock_wait_timeout = 60")
                while (job := self._next()) is not None:
                    self._read(connection, job, lock)
        except pymysql.Error as error:
            self._fail(unreachable(error, self._options))
        except CaptureError as error:
            self._fail(error)
        except (ValueError, IndexError) as error:
            self._fail(CaptureError(UPSTREAM_MISSING, f"a snapshot cannot be read: {error}"))
        except (OSError, AttributeError) as error:  # the errors that a closed socket causes in a library's thread
            self._fail(CaptureError(UPSTREAM_UNREACHABLE, str(error), is_temporary=True))

    def _fail(self, error: CaptureError) -> None:
        with self._changed:
            if not self._is_closing:
                self._error = error
            self._changed.notify_all()

    def _next(self) -> _Job | None:
        """Waits until a table needs another chunk, and returns the table; None after :meth:`close`."""
        with self._changed:
            while not self._is_closing:
                wait = _LONG
                for job in self._jobs.values():
                    if job.is_read or (job.sent >= _READ_AHEAD and self._is_enough()):
                        continue
                    if self._rate == 0:
                        break
                    wait = self._allowed_at - time.monotonic()
                    if wait <= 0:
                        job.begun = self._position_now()
                        return job
                    break
                self._changed.wait(wait)
            return None

    def _limited(self, rows: int) -> int:
        return rows if not self._rate else max(1, min(rows, int(self._rate) or 1))

    def _read(self, connection: Connection[Any], job: _Job, lock: str) -> None:
        """Reads the next chunk of a table."""
        with self._changed:
            rows = self._limited(job.progress.chunk_rows or job.rows)
        if lock:
            rows = min(rows, _MOST_LOCKED)
        tries, began = 0, time.monotonic()
        while True:
            try:
                chunk = self._chunk(connection, job, rows, lock)
                break
            except pymysql.Error as error:
                tries, is_late = tries + 1, code_of(error) == _TOO_OLD
                is_over = time.monotonic() > began + _LONG if is_late else tries >= _MOST_TRIES
                if code_of(error) not in _AGAIN or is_over or self._is_closing:
                    raise
                connection.rollback()
                if tries == 3:
                    self._notices.append(f"the snapshot of {job.progress.table} waits: {error.args[1]}")
                if is_late:
                    with self._changed:
                        self._changed.wait_for(lambda: self._is_closing, _LATE_SECONDS)
        count = len(chunk.rows)
        if not job.progress.chunk_rows and count:
            size = max(1, chunk.size // count)
            job.rows = min(MOST_ROWS, max(LEAST_ROWS, min(CHUNK_BYTES // size, 8 * job.rows)))
        with self._changed:
            job.begun = None
            if self._jobs.get(job.progress.table) is not job:
                return
            job.next_key, job.order = chunk.next_key, chunk.order
            job.is_read = chunk.is_last
            job.sent += 1
            if self._rate:
                self._allowed_at = max(self._allowed_at, time.monotonic()) + count / self._rate
            self._ready.append(chunk)
            self._changed.notify_all()

    def _chunk(self, connection: Connection[Any], job: _Job, rows: int, lock: str) -> Chunk:
        name = job.progress.table
        with connection.cursor() as cursor:
            cursor.execute("START TRANSACTION" if lock else "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        position = 0 if lock else _snapshot_position(connection)
        least = max(job.begun or 0, job.least)
        if not lock and position < least - least % STEPS:
            # A commit appears in the log shortly before snapshots can see it, or seconds before if the commit waits for
            # a replica.
            raise pymysql.OperationalError(_TOO_OLD, "a commit that is in the log cannot be seen yet")
        # The lock of a SELECT keeps the columns as they are until the end of the transaction.
        table = _locked(connection, name)
        types = table.types
        columns = [column for column in table.columns if column.name in types]
        selected = ", ".join(select_of(quoted(each.name), each.type_name, each.type.family) for each in columns)
        next_key = job.next_key
        if has_other_order(next_key, job.order, table.key, table.key_order):
            self._notices.append(begins_again(name))
            next_key = None
        where = _bounds(table, next_key)
        order = ", ".join(map(quoted, table.key))
        query = f"SELECT {selected} FROM {table.quoted}{where} ORDER BY {order} LIMIT {rows}"
        packets = _packets(connection, f"{query} {lock}")
        if lock:
            position = _position_now(connection)
        connection.commit()
        template = Template([column.name for column in columns], table.key)
        cells = [cell_of(column.type_name, column.type.family) for column in columns]
        keys, made, last = _decoded(packets, template, cells)
        return Chunk(
            table=name,
            columns=types,
            position=position,
            keys=keys,
            rows=made,
            next_key=last if last is not None else next_key,
            is_last=len(made) < rows,
            size=sum(map(len, made)),
            order=table.key_order,
        )


def _snapshot_position(connection: Connection[Any]) -> int:
    told = {
        row["variable_name"].lower(): row["value"]
        for row in named_rows(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'")
    }
    return number_of(sequence_of(told["binlog_snapshot_file"]), int(told["binlog_snapshot_position"]))


def _position_now(connection: Connection[Any]) -> int:
    (status, *_) = first_of(connection, STATUS)
    return number_of(sequence_of(status["file"]), int(status["position"]))


def _locked(connection: Connection[Any], name: str) -> CatalogTable:
    table = find_table(connection, name)
    if table is None:
        raise CaptureError(UPSTREAM_MISSING, f"MySQL table '{name}' doesn't exist")
    rows_of(connection, f"SELECT 1 FROM {table.quoted} LIMIT 0")
    table = find_table(connection, name)
    if table is None or not table.key:
        raise CaptureError(
            UPSTREAM_MISSING,
            f"table {name} has no primary key any more, so its snapshot cannot be read",
            hint=f"ALTER TABLE {name} ADD PRIMARY KEY (…)",
        )
    return table


def _bounds(table: CatalogTable, next_key: str | None) -> str:
    """The WHERE clause for the rows after a key; empty if there is no key. The clause compares column by column,
    because MySQL uses no index range for ``(a, b) > (1, 2)``."""
    if next_key is None:
        return ""
    values: dict[str, str] = json.loads(next_key)
    if tuple(values) != table.key:
        raise CaptureError(
            UPSTREAM_MISSING,
            f"the primary key of table {table.database}.{table.name} changed from ({', '.join(values)}) to "
            f"({', '.join(table.key)}) while its snapshot was read",
            hint=AGAIN,
        )
    known = {column.name: column for column in table.columns}
    pairs = [_compared(known[name], values[name]) for name in table.key]
    condition = ""
    for left, right in reversed(pairs):
        condition = f"({left} > {right} OR ({left} = {right} AND {condition}))" if condition else f"{left} > {right}"
    left, right = pairs[0]
    return f" WHERE {left} >= {right} AND {condition}"


def _compared(column: CatalogColumn, value: str) -> tuple[str, str]:
    """Returns SQL for a column of the key and for a value, in the form in which the index compares the column with the
    value."""
    name, family = quoted(column.name), column.type.family
    if family in (WHOLE, NUMERIC, YEAR):
        return name, value
    if family == FLOAT:
        return name, exact_float(value, is_short=column.data_type == "float")
    if family == BIT:
        return name, str(int.from_bytes(bytes.fromhex(value[2:]), "big")) if value.startswith("\\x") else value
    if family == BYTES:
        return name, f"x'{value[2:]}'"
    if family in (LABEL, LABELS):  # MySQL orders labels by their numbers, not by their text.
        labels = labels_of(column.type_name)
        if family == LABEL:
            return f"({name} + 0)", str(labels.index(value) + 1 if value in labels else 0)
        chosen = set(value.split(",")) if value else set()
        return f"({name} + 0)", str(sum(1 << bit for bit, label in enumerate(labels) if label in chosen))
    return name, literal(value.removesuffix("+00") if family == TIMESTAMPTZ else value)


def _packets(connection: Connection[Any], query: str) -> list[bytes]:
    """Returns the rows of a query as the server's packets. This module parses the packets itself, because PyMySQL takes
    three times as long."""
    connection.query(query, unbuffered=True)
    result: Any = connection._result
    made: list[bytes] = []
    while True:
        packet: Any = connection._read_packet()
        if result._check_packet_is_eof(packet):
            break
        made.append(packet._data)
    result.unbuffered_active = False
    result.connection = None
    return made


def _decoded(
    packets: list[bytes], template: Template, cells: list[Callable[[bytes], str]]
) -> tuple[list[str], list[str], str | None]:
    keys: list[str] = []
    rows: list[str] = []
    row_text, key_text = template.row, template.key
    for data in packets:
        at = 0
        made: list[str] = []
        for cell in cells:
            size = data[at]
            if size < 251:
                at += 1
            elif size == 251:
                made.append("null")
                at += 1
                continue
            else:
                size, at = lenenc(data, at)
            made.append(cell(data[at : at + size]))
            at += size
        rows.append(row_text(made))
        keys.append(key_text(made))
    return keys, rows, keys[-1] if keys else None
