"""Runs START_REPLICATION in a thread. The thread puts whole transactions into a bounded queue, and sends status
messages to the server.

The server may discard the log up to the acknowledged position. A status therefore never contains a higher position than
the position passed to :meth:`Stream.acknowledge`, even if the thread has received later transactions.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.postgres_cdc import pgoutput
from rw_sql.connectors.postgres_cdc.connection import (
    connect_for_replication,
    is_refusal,
    literal,
    lsn_text,
    quoted,
)
from rw_sql.connectors.postgres_cdc.pgoutput import POSTGRES_EPOCH_MICROSECONDS, Transaction
from rw_sql.connectors.postgres_cdc.server import AGAIN, replication_query
from rw_sql.connectors.support.messages import without_password
from rw_sql.errors import UPSTREAM_MISSING, UPSTREAM_UNREACHABLE
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg
    from psycopg.pq.abc import PGconn

    from rw_sql.errors import ErrorCode
else:
    psycopg = deferred("psycopg")

QUEUE_BYTES = 64 << 20
"""If the queued transactions take this number of bytes of memory, the thread receives nothing until the reader takes
transactions from the queue.
"""

SPOOL_BYTES = 32 << 20
"""The maximum size in bytes of one transaction in memory. The rest is written to a file."""

STATUS_SECONDS = 10.0
"""The interval in seconds between two status messages.

The server drops a client that has sent nothing for ``wal_sender_timeout`` (60 s by default).
"""

_STATUSES, _MILLISECONDS = 4, 1000
"""The minimum number of status messages that are sent within ``wal_sender_timeout``."""

_KEEPALIVE = struct.Struct(">QqB")
_STATUS = struct.Struct(">cQQQqB")
_DATA, _ALIVE = ord("w"), ord("k")
_BODY = 25
"""The offset in bytes of the content in a message with log data. The content follows the byte ``w``, the message's
position, the end of the server's log, and the time."""


class Stream:
    """One connection that reads a slot in a thread. :meth:`get` raises the errors of the thread."""

    def __init__(self, options: Mapping[str, str], slot: str, publication: str, timeout: float) -> None:
        self._options = options
        self._slot = slot
        self._publication = publication
        self._timeout = timeout
        self._ready: deque[Transaction] = deque()
        self._changed = threading.Condition()
        self._error: CaptureError | None = None
        self._is_closing = False
        self._queued = 0
        self._acknowledged = 0
        self._status_seconds = STATUS_SECONDS
        self._idle_at = 0
        self._received = 0
        self._end = 0
        self._open: Transaction | None = None
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._thread: threading.Thread | None = None
        self._connection: psycopg.Connection[object] | None = None

    def start(self, position: int) -> None:
        """Starts reading after the position, which also becomes the acknowledged position. Raises CaptureError."""
        self._acknowledged = self._received = position
        self._connection = connect_for_replication(self._options, self._timeout)
        ((timeout,),) = replication_query(
            self._connection, "SELECT setting FROM pg_settings WHERE name = 'wal_sender_timeout'", self._options
        )
        if int(timeout or 0):  # the server drops a client that is silent for this time
            self._status_seconds = min(STATUS_SECONDS, int(timeout or 0) / _MILLISECONDS / _STATUSES)
        names = quoted(self._publication)
        command = (
            f"START_REPLICATION SLOT {quoted(self._slot)} LOGICAL {lsn_text(position)} "
            f"(proto_version '1', publication_names {literal(names)})"
        )
        result = self._connection.pgconn.exec_(command.encode())
        if result.status != psycopg.pq.ExecStatus.COPY_BOTH:
            reason = result.get_error_message()
            is_busy = result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) in (b"55006", b"53300")
            self._connection.close()
            raise CaptureError(
                UPSTREAM_UNREACHABLE if is_busy else UPSTREAM_MISSING,
                without_password(reason, self._options),
                is_temporary=is_busy,
            )
        self._thread = threading.Thread(target=self._run, name=f"rw_sql-slot-{self._slot}", daemon=True)
        self._thread.start()

    @property
    def end(self) -> int:
        """The end of the server's log, as last reported."""
        return self._end

    def get(self, position: int, wait_seconds: float) -> tuple[list[Transaction], int]:
        """Returns the received transactions, and a position up to which the log has no further transactions (0 if
        unknown).

        Waits at most ``wait_seconds``, until a transaction has arrived or the returned position is above ``position``.
        After the last transaction has been returned, raises the CaptureError that ended the connection.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._ready or self._error or self._is_closing or self._idle_at > position,
                max(0.0, wait_seconds),
            )
            made, size = list(self._ready), self._queued
            self._ready.clear()
            self._queued = 0
            idle = self._idle_at
            if not made and self._error is not None:
                raise self._error
        if size:
            self._wake()
        return made, idle

    def acknowledge(self, position: int) -> None:
        """Sets the acknowledged position, and immediately sends a status message with this position."""
        if position > self._acknowledged:
            self._acknowledged = position
            self._wake()

    def close(self) -> None:
        """Ends the thread and the connection, and removes the files of transactions that no call of :meth:`get` has
        returned."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._wake()
        if self._thread is not None:
            self._thread.join()
        if self._connection is not None:
            self._connection.close()
        self._wake_in.close()
        self._wake_out.close()
        for transaction in self._ready:
            transaction.close()

    def _wake(self) -> None:
        try:
            self._wake_in.send(b"\0")
        except (BlockingIOError, OSError):  # The thread is awake already, or the socket is closed.
            return

    def _run(self) -> None:
        assert self._connection is not None
        try:
            self._receive(self._connection.pgconn)
        except psycopg.Error as error:
            self._fail(UPSTREAM_UNREACHABLE, str(error), is_temporary=True)
        except (ValueError, struct.error) as error:
            self._fail(UPSTREAM_MISSING, f"the server sent a message that cannot be read: {error}", is_temporary=False)
        except OSError as error:
            self._fail(UPSTREAM_UNREACHABLE, str(error), is_temporary=True)
        finally:
            if self._open is not None:
                self._open.close()

    def _fail(self, kind: ErrorCode, reason: str, *, is_temporary: bool, hint: str | None = None) -> None:
        made = CaptureError(kind, without_password(reason, self._options), is_temporary=is_temporary, hint=hint)
        with self._changed:
            self._error = made
            self._changed.notify_all()

    def _receive(self, server: PGconn) -> None:
        get = server.get_copy_data
        next_status = 0.0
        told_position = -1
        count = 0
        while not self._is_closing:
            size, data = get(1)
            if size > 0:
                if data[0] == _DATA:
                    self._take(bytes(data[_BODY:]))
                elif data[0] == _ALIVE and self._keep_alive(data):
                    next_status = 0.0
                count += 1
                if count & 0x3FF:
                    continue
            elif size < 0:
                self._ended(server)
                return
            now = time.monotonic()
            if now >= next_status or self._acknowledged != told_position:
                told_position = self._acknowledged
                self._send_status(server, told_position, wants_reply=now >= next_status)
                next_status = now + self._status_seconds
            if size > 0 and self._queued < QUEUE_BYTES:
                continue
            self._wait(server, next_status - now, is_full=self._queued >= QUEUE_BYTES)

    def _wait(self, server: PGconn, seconds: float, *, is_full: bool) -> None:
        """Waits until the server has sent something, the thread is woken, or a status is due.

        While the queue is full, the thread does not wait for the server and receives nothing.
        """
        sockets: list[Any] = [self._wake_out] if is_full else [self._wake_out, server.socket]
        readable, _, _ = select.select(sockets, [], [], max(0.0, seconds))
        if self._wake_out in readable:
            self._wake_out.recv(4096)
        if server.socket in readable:
            server.consume_input()

    def _take(self, body: bytes) -> None:
        kind = body[0]
        if kind == pgoutput.BEGIN:
            _, at, xid = pgoutput.parse_begin(body)
            self._open = Transaction(xid, at)
        elif kind == pgoutput.COMMIT:
            transaction = self._open
            if transaction is None:
                raise pgoutput.BrokenMessageError("a Commit without a Begin")
            _, transaction.position = pgoutput.parse_commit(body)
            self._open = None
            self._finish(transaction)
        elif self._open is not None:
            transaction = self._open
            transaction.messages.append(body)
            transaction.size += len(body)
            transaction.count += 1
            if transaction.size >= SPOOL_BYTES:
                transaction.spill()
        elif kind != pgoutput.MESSAGE:  # A message outside of a transaction is not used here.
            raise pgoutput.BrokenMessageError(f"a message of kind {chr(kind)!r} outside of a transaction")

    def _finish(self, transaction: Transaction) -> None:
        with self._changed:
            self._received = transaction.position
            self._end = max(self._end, transaction.position)
            self._queued += transaction.size + 64
            self._ready.append(transaction)
            self._changed.notify_all()

    def _keep_alive(self, data: memoryview) -> bool:
        """Handles a keepalive message; returns True if the server requests a status.

        The message contains the end of the server's log. If no transaction is being received, all transactions before
        this end have been received.
        """
        end, _, wants_reply = _KEEPALIVE.unpack_from(data, 1)
        with self._changed:
            self._end = max(self._end, end)
            if self._open is None:
                self._received = max(self._received, end)
                self._idle_at = max(self._idle_at, end)
            self._changed.notify_all()
        return bool(wants_reply)

    def _send_status(self, server: PGconn, position: int, *, wants_reply: bool = False) -> None:
        written = max(self._received, position)
        now = int(time.time() * 1e6) - POSTGRES_EPOCH_MICROSECONDS
        server.put_copy_data(_STATUS.pack(b"r", written, position, position, now, wants_reply))
        server.flush()

    def _ended(self, server: PGconn) -> None:
        result = server.get_result()
        reason, state = "", ""
        if result is not None:
            reason = result.get_error_message()
            state = (result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) or b"").decode()
        is_temporary = not is_refusal(state)
        # An internal error, such as "could not map filenode" after a rewrite of a table: PostgreSQL fails again
        # whenever it decodes this part of its log.
        again = f"if this error persists: SELECT pg_drop_replication_slot('{self._slot}'); then {AGAIN}"
        self._fail(
            UPSTREAM_UNREACHABLE if is_temporary else UPSTREAM_MISSING,
            reason or "the server ended the stream",
            is_temporary=is_temporary,
            hint=again if state.startswith("XX") else None,
        )
