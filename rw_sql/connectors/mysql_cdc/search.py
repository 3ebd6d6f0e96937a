"""Searches the binary log without a reader: the position of a point in time, the time of the next transaction, and the
transactions between two positions.

A search reads the log as a client that is not a replica, so it does not disturb the source's reader.
"""

from __future__ import annotations

import contextlib
import struct
import time
from bisect import bisect_left
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from rw_sql.connectors.changes import CaptureError, ChangeCount
from rw_sql.connectors.mysql_cdc import events
from rw_sql.connectors.mysql_cdc.connection import connect, databases_of, parts_of, rows_of, unreachable
from rw_sql.connectors.mysql_cdc.events import RowsPart, TableMap
from rw_sql.connectors.mysql_cdc.positions import FIRST, STEPS, LogPlace, number_of, sequence_of, shown
from rw_sql.connectors.mysql_cdc.positions import parts_of as position_parts
from rw_sql.connectors.mysql_cdc.server import AGAIN, facts_over, read_facts
from rw_sql.connectors.mysql_cdc.stream import Stream, Watched, next_packet, request_log, stream_error
from rw_sql.errors import OFFSET_OUT_OF_RANGE, UPSTREAM_UNREACHABLE
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    import pymysql

    from rw_sql.connectors.mysql_cdc.marks import Mark
    from rw_sql.connectors.mysql_cdc.server import Facts
    from rw_sql.connectors.mysql_cdc.stream import Transaction

    Skips = tuple[Callable[[bytes, int], int], ...]
else:
    pymysql = deferred("pymysql")

_NOT_A_REPLICA = 0
"""The server id of a client that is not a replica."""

_MILLI = 1000
_LONGEST_SEARCH = 60.0
"""The maximum time, in seconds, for which :func:`first_at` reads the log. A file of the log may have 1 GiB."""

MOST_SKIPPED_BYTES = 1 << 30
"""A reader that a move has taken forward searches about this many bytes before its position for prepared XA
transactions. Meanwhile, it reads no changes. If it later reads the XA COMMIT of a transaction that was prepared before
these bytes, it searches more of the log (:func:`earlier_start`)."""

_LONGEST_WAIT = 0.2
_BEGINNINGS = frozenset({events.GTID, events.ANONYMOUS_GTID, events.TAGGED_GTID, events.MARIADB_GTID})
"""The types of the events with which transactions begin. MySQL since 5.7 and MariaDB write such an event for each
transaction, also if the server does not use GTIDs."""


@dataclass(frozen=True, slots=True)
class _Event:
    """The type and the time of an event, in seconds since 1970, and the position before the event. ``committed`` is the
    time when the transaction that begins with the event was committed; None if the log does not state this time."""

    kind: int
    time: int
    position: int
    committed: int | None = None


def first_at(options: Mapping[str, str], milliseconds: int, timeout: float) -> int:
    """The position before the first transaction that was committed at or after ``milliseconds``; the end of the log if
    there is no such transaction. The log states times in whole seconds: all transactions of the second in which
    ``milliseconds`` lies count as later. MySQL 5.7 and MariaDB do not state the time of a commit. For these servers,
    the time counts at which the last statement of the transaction began.

    Raises CaptureError if the log may no longer contain such a transaction, or if it cannot be found in time.
    """
    deadline = time.monotonic() + max(timeout, _LONGEST_SEARCH)
    facts, now = _facts_and_time(options, timeout)
    if milliseconds >= now or not facts.logs:
        return facts.end
    seconds = milliseconds // _MILLI
    created: dict[int, int] = {}

    def created_at(number: int) -> int:
        log = facts.logs[number]
        created[number] = _created(options, log.name, timeout, deadline)
        return created[number]

    # The server writes each transaction of a file before it creates the next file.
    later = bisect_left(range(len(facts.logs)), seconds, key=created_at)
    if later == 0:
        raise CaptureError(
            OFFSET_OUT_OF_RANGE,
            f"the server no longer has the changes since {_shown_time(seconds)}: its log begins at "
            f"{shown(facts.start)}, which was written at {_shown_time(created[0])}",
            hint="TO EARLIEST reads the changes that the server has; RESET SOURCE SPLITS SOURCE_NAME ALLOW GAPS WITH "
            "(FORGET_OFFSETS = true) reads the tables again",
        )
    for event in _events(options, facts.logs[later - 1].name, FIRST, timeout, deadline):
        if event.kind in _BEGINNINGS and (event.time if event.committed is None else event.committed) >= seconds:
            return event.position
    return facts.end


def next_time(options: Mapping[str, str], position: int, timeout: float) -> int | None:
    """The time of the first transaction after ``position``, in milliseconds since 1970; None if the server does not
    send this transaction within ``timeout`` seconds, or if there is no such transaction."""
    deadline = time.monotonic() + timeout
    try:
        facts = read_facts(options, timeout)
        log = facts.file_of(position)
        if log is None or position >= facts.end:
            return None
        _, at, _ = position_parts(position)
        for event in _events(options, log.name, max(at, FIRST), timeout, deadline):
            if event.kind in _BEGINNINGS:
                return event.time * _MILLI
    except CaptureError:
        return None
    return None


class RowCounter:
    """Counts the changes of transactions, which must be given in the order of the log. ``is_exact`` is False once rows
    could not be counted. Such rows count as one change for each event or statement that changed them."""

    def __init__(self) -> None:
        self.is_exact = True
        self._known: dict[bytes, Skips] = {}
        self._tables: dict[int, Skips] = {}

    def changes_of(self, transaction: Transaction) -> int:
        """The number of rows that a transaction changed in the watched tables, and of its other statements about these
        tables, such as TRUNCATE."""
        found = 0
        for part in transaction.parts:
            if isinstance(part, TableMap):
                self._tables[part.id] = self._skips(part)
            elif isinstance(part, RowsPart):
                found += self._rows(part)
            else:
                found += 1
                self.is_exact &= part.did != "changed"
        return found

    def _skips(self, table: TableMap) -> Skips:
        """The functions that skip the cells of a row; empty for a table with columns of an unknown type."""
        from rw_sql.connectors.mysql_cdc.values import skip_of  # needs numpy, which a light installation lacks

        skips = self._known.get(table.signature)
        if skips is None:
            try:
                skips = tuple(skip_of(column) for column in table.columns)
            except ValueError:
                skips = ()
            self._known[table.signature] = skips
        return skips

    def _rows(self, part: RowsPart) -> int:
        skips = self._tables.get(part.table_id, ())
        if not skips or not part.is_full or part.count != len(skips):
            self.is_exact = False
            return 1
        data, at, size = part.data, part.at, len(part.data)
        width = (len(skips) + 7) >> 3
        images = 2 if part.what == events.UPDATE else 1
        found = 0
        while at < size:
            found += 1
            for _ in range(images):
                nulls = int.from_bytes(data[at : at + width], "little")
                at += width
                for skip in skips:
                    if not nulls & 1:
                        at = skip(data, at)
                    nulls >>= 1
        return found


Earlier = Literal["refused", "missing", "ignored"]


class _EarlierTransactionError(Exception):
    """The log between two positions commits an XA transaction that was prepared before these positions."""


def count_changes(
    options: Mapping[str, str],
    start: int,
    end: int,
    tables: Collection[str],
    timeout: float,
    *,
    only_first: bool = False,
    includes_earlier: bool = True,
) -> ChangeCount | None:
    """See :meth:`rw_sql.connectors.changes.ChangeConnector.count_changes`."""
    deadline = time.monotonic() + timeout
    try:
        facts = read_facts(options, timeout)
        log = facts.file_of(start)
        if log is None:
            return None
        _, at, _ = position_parts(start)
        watched, place = _watched(options, facts, tables), (log.name, max(at, FIRST))
        try:
            with _stream_from(options, facts, place, watched, timeout) as stream:
                earlier: Earlier = "refused" if includes_earlier else "ignored"
                return _count(stream, start, end, deadline, only_first=only_first, earlier=earlier)
        except _EarlierTransactionError:
            oldest = (facts.logs[0].name, FIRST)
            with _stream_from(options, facts, oldest, watched, timeout) as stream:
                return _count(stream, start, end, deadline, only_first=only_first, earlier="missing")
    except CaptureError:
        return None


@contextlib.contextmanager
def _stream_from(
    options: Mapping[str, str], facts: Facts, place: tuple[str, int], watched: Watched, timeout: float
) -> Iterator[Stream]:
    """A stream from a position in a file to the present end of the log."""
    stream = Stream(options, _NOT_A_REPLICA, is_mariadb=facts.is_mariadb, timeout=timeout)
    try:
        stream.start(*place, watched, stops_at_end=True)
        yield stream
    finally:
        stream.close()


def _count(
    stream: Stream, start: int, end: int, deadline: float, *, only_first: bool, earlier: Earlier
) -> ChangeCount | None:
    """Counts the transactions of a stream, which may begin before ``start``. An XA transaction counts at its XA COMMIT.
    Returns None if the first transaction is requested and is not known.

    ``earlier`` determines the effect of a transaction that was prepared before the beginning of the stream, so that its
    changes are not known: ``refused`` raises _EarlierTransactionError, with ``missing`` the numbers are lower limits,
    and ``ignored`` transactions do not count.
    """
    counter = RowCounter()
    transactions = changes = 0
    first_end: int | None = None
    lacks_earlier = False
    # All batches that end at one place of the log have read the same transactions.
    last = end - end % STEPS
    while True:
        left = deadline - time.monotonic()
        made, seen = stream.get(max(0.0, min(left, _LONGEST_WAIT)))
        is_whole = seen >= last or stream.is_at_end
        for transaction in made:
            if time.monotonic() > deadline:
                is_whole, left = False, 0.0
                break
            found = counter.changes_of(transaction)
            is_between = start < transaction.position <= end
            if transaction.is_earlier and is_between:
                if earlier == "refused":
                    raise _EarlierTransactionError
                lacks_earlier = earlier == "missing"
            if found and is_between:
                transactions, changes = transactions + 1, changes + found
                first_end = first_end or transaction.position
                if only_first:
                    first = ChangeCount(transactions=transactions, changes=changes, first_end=first_end)
                    return None if lacks_earlier else first
        if is_whole or left <= 0:
            if only_first and (lacks_earlier or not is_whole):
                return None
            return ChangeCount(
                transactions=transactions,
                changes=changes,
                first_end=first_end,
                is_exact=is_whole and counter.is_exact and not lacks_earlier,
            )


def _watched(options: Mapping[str, str], facts: Facts, tables: Collection[str]) -> Watched:
    names = [parts for table in tables if (parts := parts_of(table)) is not None]
    is_folded = facts.folds_names
    fold = str.lower if is_folded else str
    return Watched(
        tables=frozenset((fold(database), fold(table)) for database, table in names),
        databases=frozenset(map(fold, databases_of(options))),
        is_folded=is_folded,
    )


def _facts_and_time(options: Mapping[str, str], timeout: float) -> tuple[Facts, int]:
    """The state of the server, and the time of its clock in milliseconds since 1970, which is read later."""
    try:
        with connect(options, timeout) as connection:
            facts = facts_over(connection)
            ((now,),) = rows_of(connection, "SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)")
            return facts, int(now)
    except pymysql.Error as error:
        raise unreachable(error, options) from error


def _created(options: Mapping[str, str], file: str, timeout: float, deadline: float) -> int:
    """The time when a file of the log was created, in seconds since 1970."""
    for event in _events(options, file, FIRST, timeout, deadline):
        if event.kind == events.FORMAT:
            return event.time
    raise CaptureError(UPSTREAM_UNREACHABLE, f"the server sends no event of its log file {file}", is_temporary=True)


def _events(options: Mapping[str, str], file: str, at: int, timeout: float, deadline: float) -> Iterator[_Event]:
    """The events of the log from the position ``at`` of a file to the present end of the log. Raises CaptureError,
    also after ``deadline``."""
    place = LogPlace(sequence_of(file), at)
    start = shown(number_of(place.sequence, at))
    connection = connect(options, timeout)
    try:
        has_checksum = request_log(connection, file, at, _NOT_A_REPLICA, stops_at_end=True)
        while (data := next_packet(connection)) is not None:
            if time.monotonic() > deadline:
                raise CaptureError(
                    UPSTREAM_UNREACHABLE,
                    f"the server did not send its log after {start} in time",
                    hint="INJECT SOURCE OFFSETS SOURCE_NAME VALUES (…) sets the position without a search",
                    is_temporary=True,
                )
            header = events.parse_header(data)
            if header.kind == events.FORMAT:
                has_checksum = events.states_checksum(data)
            body = events.body_of(data, has_checksum=has_checksum)
            if header.kind == events.ROTATE:
                place.rotate(*events.parse_rotate(body))
                continue
            begin = place.at
            if header.end:
                place.advance(header.end)
                begin = place.at - header.size
            committed = events.committed_at(header.kind, body)
            yield _Event(header.kind, header.time, number_of(place.sequence, begin), committed)
    except (pymysql.Error, OSError) as error:
        raise stream_error(error, options, start) from error
    except (struct.error, IndexError, ValueError) as error:
        raise CaptureError(UPSTREAM_UNREACHABLE, f"the server sent {error} after {start}", is_temporary=True) from error
    finally:
        with contextlib.suppress(pymysql.Error, OSError):
            connection._force_close()


def _shown_time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds")


def skipped_start(facts: Facts, reached: int, position: int, most: int | None = None) -> int:
    """The position at which a reader begins to search the part of the log between ``reached`` and ``position``, which a
    move has skipped. The search begins at ``reached``, at the server's oldest file, or at the first file within
    ``most`` bytes (by default MOST_SKIPPED_BYTES) before ``position``; the latest of these positions counts. The file
    of ``position`` is searched in any case."""
    most = MOST_SKIPPED_BYTES if most is None else most
    sequence, size, _ = position_parts(position)
    first = sequence
    for log in reversed([log for log in facts.logs if log.sequence < sequence]):
        size += log.size
        if size > most:
            break
        first = log.sequence
    return max(reached, facts.start, number_of(first, FIRST))


def earlier_start(facts: Facts, split: str, searched: int, position: int, committed: int) -> int:
    """The position before ``searched`` from which a reader at ``position`` reads the log again, because it needs the XA
    PREPARE of the transaction that is committed at ``committed``. Each such search reads at least twice as many bytes
    before ``position`` as the search before it, so that all searches together read less than three times the bytes of
    the last one. ``split`` is the source's split, for the error's hint.

    Raises CaptureError if the server's log begins at ``searched``.
    """
    if searched <= facts.start:
        raise CaptureError(
            OFFSET_OUT_OF_RANGE,
            f"the XA transaction that is committed at {shown(committed)} was prepared before {shown(searched)}, where "
            "the server's log begins: its changes are missing if it changed a captured table",
            hint=f"INJECT SOURCE OFFSETS SOURCE_NAME VALUES ('{split}' = '{shown(committed)}') ALLOW GAPS continues "
            f"after the transaction, without its changes; {AGAIN}",
        )
    first, _, _ = position_parts(searched)
    last, _, _ = position_parts(position)
    read = sum(log.size for log in facts.logs if first <= log.sequence <= last)
    before = max((log.sequence for log in facts.logs if log.sequence < first), default=first)
    return min(skipped_start(facts, 0, position, max(MOST_SKIPPED_BYTES, 2 * read)), number_of(before, FIRST))


def search_notice(at: int, committed: int) -> str:
    """The notice that a reader begins the search that :func:`earlier_start` describes."""
    return (
        f"searching the log from {shown(at)} for the changes of the XA transaction that is committed at "
        f"{shown(committed)}; no other changes are read meanwhile"
    )


def is_other_log(
    options: Mapping[str, str], facts: Facts, position: int, marks: Collection[Mark], timeout: float
) -> bool:
    """True if the log file that contains ``position`` is certainly not the file that earlier readers of ``marks`` have
    read, because the log was reset, or because it is another server with the same identity. Raises CaptureError."""
    sequence, _, _ = position_parts(position)
    read = {(mark.created, mark.server) for mark in marks if mark.created and mark.file == sequence}
    file = next((log.name for log in facts.logs if log.sequence == sequence), None)
    if not read or file is None:
        return False
    stream = Stream(options, _NOT_A_REPLICA, is_mariadb=facts.is_mariadb, timeout=timeout)
    try:
        stream.start(file, FIRST, Watched(), stops_at_end=True)
        created, _ = stream.await_created(sequence, timeout)
    finally:
        stream.close()
    return created not in read
