"""Reads tables in chunks of rows in key order, concurrently with the stream and without locks that block writers.

A chunk is read in one database snapshot, which determines for each transaction whether the chunk contains the
transaction's changes. The reader takes the snapshot, reads the present position of the log, and emits the chunk when
the stream has passed this position. A transaction that committed before this position, but that the snapshot does not
see, may have changed rows of the chunk. The reader omits the rows that this transaction changed, because the stream
contains newer versions of these rows. (DBLog, a similar method, writes marks into the log instead. But if a transaction
commits before a mark, snapshots may not see the transaction until a synchronous standby confirms it.)
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.key_orders import begins_again, has_other_order
from rw_sql.connectors.postgres_cdc.connection import (
    NO_ENCODING,
    connect,
    has_no_encoding,
    literal,
    lsn_number,
    quoted,
    unreachable,
)
from rw_sql.connectors.postgres_cdc.server import AGAIN
from rw_sql.connectors.postgres_cdc.tables import columns_of, find_table, missing_table, named
from rw_sql.connectors.postgres_cdc.tuples import split_lines, unescaped
from rw_sql.connectors.postgres_cdc.txid_snapshot import Snapshot
from rw_sql.connectors.support.cut_off import cut_off
from rw_sql.errors import UPSTREAM_MISSING, UPSTREAM_UNREACHABLE
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import psycopg
    from psycopg import Connection
    from psycopg.pq.abc import PGconn, PGresult

    from rw_sql.connectors.changes import TableProgress
    from rw_sql.connectors.postgres_cdc.tables import CatalogColumn, CatalogTable
    from rw_sql.connectors.postgres_cdc.tuples import Cells
else:
    psycopg = deferred("psycopg")

CHUNK_BYTES = 4 << 20
"""The target size of a chunk in bytes, to which the number of rows is adapted."""

FIRST_ROWS, LEAST_ROWS, MOST_ROWS = 2_000, 50, 50_000
_AGAIN_ROWS = 500
_READ_AHEAD = 3
"""The maximum number of chunks that are read before the oldest of them is emitted."""

_IDLE_SECONDS = 1.0
"""The interval in seconds at which the floor (see :meth:`SnapshotThread.floor`) is renewed while no chunk is read."""

_LONG = 60.0
_CANCEL_SECONDS, _MOST_CANCELS = 2.0, 2

_WRITERS = """
WITH RECURSIVE part (id) AS (SELECT to_regclass({table})::oid
    UNION ALL SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN part ON i.inhparent = part.id)
SELECT DISTINCT l.virtualtransaction FROM pg_catalog.pg_locks l JOIN part ON l.relation = part.id
WHERE l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
    AND l.granted AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
"""
"""Queries the running transactions that hold a lock for writing to a table or its partitions."""


@dataclass(slots=True)
class Chunk:
    """Rows of a table in key order, as of ``snapshot``.

    The chunk is emitted when the stream has passed ``position``, which is after every transaction that the snapshot
    sees. If ``again`` is not empty, the chunk re-reads the rows with these keys, and ``next_key`` does not change.
    ``order`` is the order of the keys (:attr:`CatalogTable.key_order
    <rw_sql.connectors.postgres_cdc.tables.CatalogTable.key_order>`). ``is_last`` is true if the table has no further
    rows.
    """

    table: str
    columns: tuple[CatalogColumn, ...]
    key: tuple[str, ...]
    order: str
    cells: Cells
    snapshot: Snapshot
    position: int
    next_key: str | None
    is_last: bool
    again: tuple[str, ...] = ()


@dataclass(slots=True)
class _Job:
    """A table whose snapshot is being read. ``sent`` is the number of chunks that were read but not emitted yet.
    ``order`` is the order of the keys at the time when ``next_key`` was read; None if this order is not known."""

    progress: TableProgress
    next_key: str | None
    order: str | None
    again: deque[str]
    is_read: bool = False
    sent: int = 0
    rows: int = FIRST_ROWS
    is_sure: bool = False
    rereads: set[str] = field(default_factory=set)

    @staticmethod
    def begun(progress: TableProgress) -> _Job:
        """The job that continues from the stored progress."""
        return _Job(progress, progress.next_key, progress.key_order, deque(progress.again))


class _Write:
    """A request to write to the log in order to increase the log's position."""


class _Look:
    """A request for a new floor (see :meth:`SnapshotThread.floor`)."""


class SnapshotThread:
    """Reads the chunks of all unfinished tables in a separate thread, one table after another."""

    def __init__(self, options: Mapping[str, str], timeout: float) -> None:
        self._options = options
        self._timeout = timeout
        self._changed = threading.Condition()
        self._jobs: dict[str, _Job] = {}
        self._ready: deque[Chunk] = deque()
        self._rate: float | None = None
        self._allowed_at = 0.0
        self._error: CaptureError | None = None
        self._is_closing = False
        self._is_write_wanted = False
        self._floor: Snapshot | None = None
        self._looked_at = 0.0
        self._connection: Connection[Any] | None = None
        self._thread: threading.Thread | None = None
        self._notices: deque[str] = deque(maxlen=100)

    def set_tables(self, tables: Mapping[str, TableProgress]) -> None:
        """Sets the tables to read. Snapshots that have already begun are continued."""
        with self._changed:
            for name in [name for name in self._jobs if name not in tables or tables[name].is_done]:
                del self._jobs[name]
            for name, progress in tables.items():
                if not progress.is_done and name not in self._jobs:
                    self._jobs[name] = _Job.begun(progress)
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

    def floor(self) -> Snapshot | None:
        """A snapshot that is at least as old as the snapshot of every chunk that will be emitted later. If the floor
        sees a transaction, the reader does not need to remember the keys of the transaction's changes."""
        return self._floor

    def first(self) -> Chunk | None:
        """The oldest chunk that is not emitted yet; None if there is no such chunk. If no chunk is left and an error
        has ended the thread, raises this error, which is a CaptureError."""
        with self._changed:
            if not self._ready and self._error is not None:
                raise self._error
            return self._ready[0] if self._ready else None

    def write_log(self) -> None:
        """Requests a write to the log. The stream then reaches a new position."""
        with self._changed:
            self._is_write_wanted = True
            self._changed.notify_all()

    def leave(self, chunk: Chunk, again: Sequence[str]) -> bool:
        """Records that a chunk was emitted, and the keys of rows to read again. Returns True if the table is
        finished."""
        with self._changed:
            self._drop(chunk)
            job = self._jobs.get(chunk.table)
            if job is None:
                return False
            job.sent -= 1
            job.again.extend(key for key in again if key not in job.again)
            is_done = job.is_read and not job.again and not job.sent
            if is_done:
                del self._jobs[chunk.table]
            self._changed.notify_all()
            return is_done

    def reject(self, chunk: Chunk) -> None:
        """Discards the chunks of a table and reads them again, because the first chunk may lack changes of a
        transaction that was already emitted."""
        with self._changed:
            self._drop(chunk)
            self._ready = deque(each for each in self._ready if each.table != chunk.table)
            job = self._jobs.get(chunk.table)
            if job is not None:
                self._jobs[chunk.table] = _Job.begun(job.progress)
            self._changed.notify_all()

    def trust(self, chunk: Chunk) -> None:
        """Records that the first chunk of a table is new enough. Further chunks of the table may then be read in
        advance."""
        with self._changed:
            job = self._jobs.get(chunk.table)
            if job is not None:
                job.is_sure = True
                self._changed.notify_all()

    def read_again(self, table: str, keys: Sequence[str]) -> None:
        """Requests that the rows with these keys be read again."""
        with self._changed:
            job = self._jobs.get(table)
            if job is not None:
                job.again.extend(key for key in keys if key not in job.again)
                self._changed.notify_all()

    def notices(self) -> tuple[str, ...]:
        """The notices since the last call."""
        made = []
        while self._notices:
            made.append(self._notices.popleft())
        return tuple(made)

    def close(self) -> None:
        """Ends the thread. Cancels a query in progress; if the server does not respond, closes the connection."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        thread, tries = self._thread, 0
        while thread is not None and thread.is_alive():
            connection, tries = self._connection, tries + 1
            if connection is not None and not connection.closed:
                with contextlib.suppress(psycopg.Error):  # if the connection ends in the meantime, the thread ends too
                    connection.cancel_safe(timeout=_CANCEL_SECONDS)
                if tries > _MOST_CANCELS:
                    cut_off(connection, psycopg.Error)
            thread.join(0.2)

    def _drop(self, chunk: Chunk) -> None:
        self._ready = deque(each for each in self._ready if each is not chunk)

    def _run(self) -> None:
        try:
            with connect(self._options, self._timeout) as connection:
                self._connection = connection
                connection.execute(b"SET synchronous_commit = local")
                while (job := self._next()) is not None:
                    match job:
                        case _Job():
                            self._read(connection, job)
                        case _Look():
                            self._look(connection)
                        case _Write():
                            connection.execute(b"SELECT txid_current()")
        except psycopg.Error as error:
            self._fail(unreachable(error, self._options))
        except CaptureError as error:
            self._fail(error)
        except ValueError as error:
            self._fail(CaptureError(UPSTREAM_MISSING, f"a snapshot cannot be read: {error}"))

    def _fail(self, error: CaptureError) -> None:
        with self._changed:
            if not self._is_closing:
                self._error = error
            self._changed.notify_all()

    def _next(self) -> _Job | _Write | _Look | None:
        """Waits for the next task and returns it. A task is a chunk of a table, a write to the log, or a new floor.
        Returns None after :meth:`close`."""
        with self._changed:
            while not self._is_closing:
                if self._is_write_wanted:
                    self._is_write_wanted = False
                    return _Write()
                wait = _LONG
                for job in self._jobs.values():
                    most = _READ_AHEAD if job.is_sure else 1
                    if job.sent >= most or (job.is_read and not job.again):
                        continue
                    if job.is_read and job.sent:
                        continue
                    if self._rate == 0:
                        break
                    wait = self._allowed_at - time.monotonic()
                    if wait <= 0:
                        return job
                    break
                if self._jobs and not self._ready and time.monotonic() >= self._looked_at + _IDLE_SECONDS:
                    return _Look()
                self._changed.wait(min(wait, _IDLE_SECONDS) if self._jobs else wait)
            return None

    def _look(self, connection: Connection[Any]) -> None:
        """Renews the floor if every chunk with an older snapshot has been emitted."""
        self._looked_at = time.monotonic()
        row = connection.execute(b"SELECT txid_current_snapshot()::text").fetchone()
        with self._changed:
            if row is not None and not self._ready:
                self._floor = Snapshot.parse(row[0])

    def _limited(self, rows: int) -> int:
        return rows if not self._rate else max(1, min(rows, int(self._rate) or 1))

    def _read(self, connection: Connection[Any], job: _Job) -> None:
        """Reads the next chunk of a table."""
        with self._changed:
            again = tuple(job.again.popleft() for _ in range(min(_AGAIN_ROWS, len(job.again)))) if job.again else ()
            rows = self._limited(job.progress.chunk_rows or job.rows)
        chunk = self._chunk(connection, job, rows, again)
        count = len(chunk.cells)
        if not job.progress.chunk_rows and count and not again:
            size = max(1, int(chunk.cells.buffer.size) // count)
            job.rows = min(MOST_ROWS, max(LEAST_ROWS, min(CHUNK_BYTES // size, 8 * job.rows)))
        with self._changed:
            if self._jobs.get(job.progress.table) is not job:
                return
            if not again:
                job.next_key, job.order = chunk.next_key, chunk.order
                job.is_read = chunk.is_last
            job.sent += 1
            if self._rate:
                self._allowed_at = max(self._allowed_at, time.monotonic()) + count / self._rate
            self._ready.append(chunk)
            self._changed.notify_all()

    def _chunk(self, connection: Connection[Any], job: _Job, rows: int, again: tuple[str, ...]) -> Chunk:
        name = job.progress.table
        if not job.is_sure:
            self._wait_for_writers(connection, name)
        with connection.transaction():
            connection.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            table = self._locked(connection, name)
            (text,) = connection.execute(b"SELECT txid_current_snapshot()::text").fetchone() or ("",)
            columns = tuple(column for column in columns_of(connection, table.oid) if not column.is_generated)
            names = [column.name for column in columns]
            next_key = job.next_key
            if not again and has_other_order(next_key, job.order, table.key, table.key_order):
                self._notices.append(begins_again(name))
                next_key = None
            where, limit = self._bounds(table, next_key, again)
            order = ", ".join(map(quoted, table.key))
            selected = ", ".join(map(quoted, names))
            query = f"SELECT {selected} FROM {table.quoted}{where} ORDER BY {order}" + (
                f" LIMIT {rows}" if limit else ""
            )
            if has_no_encoding(connection):
                connection.execute(NO_ENCODING.replace(b"SET", b"SET LOCAL"))
            data = _copied(connection, query)
        position = self._position_now(connection)
        cells = split_lines(data, len(names))
        count = len(cells)
        if count and not again:
            texts = {key: cells.value(names.index(key), count - 1) or b"" for key in table.key}
            next_key = json.dumps({key: unescaped(text).decode() for key, text in texts.items()}, ensure_ascii=False)
        return Chunk(
            table=name,
            columns=columns,
            key=table.key,
            order=table.key_order,
            cells=cells,
            snapshot=Snapshot.parse(text),
            position=position,
            next_key=next_key,
            is_last=not again and count < rows,
            again=again,
        )

    def _locked(self, connection: Connection[Any], name: str) -> CatalogTable:
        """Locks the table as a SELECT does. The table's columns then cannot change. Must be called before the snapshot
        is taken. Returns the table."""
        schema, plain = named(name)
        try:
            connection.execute(f"LOCK TABLE ONLY {quoted(schema)}.{quoted(plain)} IN ACCESS SHARE MODE".encode())
        except psycopg.errors.UndefinedTable as error:
            raise CaptureError(UPSTREAM_MISSING, f'table "{name}" does not exist') from error
        table = find_table(connection, name)
        if table is None:
            raise missing_table(connection, name)
        if not table.key:
            raise CaptureError(
                UPSTREAM_MISSING,
                f"table {name} has no primary key any more, so its snapshot cannot be read",
                hint=f"ALTER TABLE {table.statement_name} ADD PRIMARY KEY (…)",
            )
        return table

    def _bounds(self, table: CatalogTable, next_key: str | None, again: tuple[str, ...]) -> tuple[str, bool]:
        """Returns the WHERE clause of a chunk's query, and whether the query has a LIMIT. Keys are written as untyped
        literals, because these get the type and the collation of their columns."""
        left = f"({', '.join(map(quoted, table.key))})"
        if again:
            return f" WHERE {left} IN ({', '.join(_key_literal(table, key) for key in again)})", False
        if next_key is None:
            return "", True
        return f" WHERE {left} > {_key_literal(table, next_key, is_ordered=True)}", True

    def _wait_for_writers(self, connection: Connection[Any], name: str) -> None:
        """Waits for the end of the transactions that are currently writing to the table.

        The stream lacks the changes that these transactions made before the table was published. A snapshot that was
        taken before the transactions ended would lack these changes too. The function also waits for each transaction
        that waits for a synchronous standby. The commit of a waiting transaction is already in the log, where an
        earlier reader may have read it, but no snapshot sees the transaction yet.
        """
        schema, plain = named(name)
        table = f"{quoted(schema)}.{quoted(plain)}"
        query = _WRITERS.format(table=literal(table)).encode()
        writers = {row[0] for row in connection.execute(query).fetchall()}
        told = False
        while writers and not self._is_closing:
            if not told:
                self._notices.append(f"the snapshot of {name} waits for running transactions that write to the table")
                told = True
            self._wait_a_little(connection)
            writers &= {row[0] for row in connection.execute(query).fetchall()}

    def _wait_a_little(self, connection: Connection[Any]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closing, 0.05)
        if time.monotonic() >= self._looked_at + _IDLE_SECONDS:
            self._look(connection)

    def _position_now(self, connection: Connection[Any]) -> int:
        """Returns the end of the last log record. This position is after all changes that the last snapshot sees. (The
        insert position may be after a page header. The stream does not reach the position after a page header before
        the next record.)"""
        connection.execute(b"SELECT txid_current()")
        row = connection.execute(b"SELECT pg_catalog.pg_current_wal_flush_lsn()::text").fetchone()
        if row is None:
            raise CaptureError(UPSTREAM_UNREACHABLE, "the server does not report its position", is_temporary=True)
        return lsn_number(row[0])


def _key_literal(table: CatalogTable, key: str, *, is_ordered: bool = False) -> str:
    values: dict[str, str] = json.loads(key)
    if set(values) != set(table.key) or (is_ordered and tuple(values) != table.key):
        raise CaptureError(
            UPSTREAM_MISSING,
            f"the primary key of table {table.schema}.{table.name} changed from ({', '.join(values)}) to "
            f"({', '.join(table.key)}) while its snapshot was read",
            hint=AGAIN,
        )
    return "(" + ", ".join(literal(values[name]) for name in table.key) + ")"


def _copied(connection: Connection[Any], query: str) -> bytes:
    """The lines that a COPY command returns. This function calls libpq directly, because the methods of psycopg take
    three times as long."""
    server = connection.pgconn
    result = server.exec_(f"COPY ({query}) TO STDOUT".encode())
    if result.status != psycopg.pq.ExecStatus.COPY_OUT:
        raise psycopg.errors.lookup((result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) or b"58000").decode())(
            result.get_error_message()
        )
    lines: list[bytes] = []
    try:
        while (got := server.get_copy_data(0))[0] >= 0:
            lines.append(bytes(got[1]))
    finally:  # A connection with an unread result cannot run another statement.
        ends = _rest(server)
    for end in ends:
        if end.status != psycopg.pq.ExecStatus.COMMAND_OK:
            raise psycopg.OperationalError(end.get_error_message())
    return b"".join(lines)


def _rest(server: PGconn) -> list[PGresult]:
    made = []
    while (result := server.get_result()) is not None:
        made.append(result)
        # The connection is broken; without this exit, the loop would never end.
        if result.status == psycopg.pq.ExecStatus.COPY_OUT:
            break
    return made
