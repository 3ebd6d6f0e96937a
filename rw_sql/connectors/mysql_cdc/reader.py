"""The reader of a binary log: merges changes and snapshots of a source's tables. See :class:`ChangeReader`."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.base import RESOLVE_TIMEOUT_SECONDS
from rw_sql.connectors.changes import KEY_ORDER, CaptureError, Taken, schema_change
from rw_sql.connectors.mysql_cdc import followed
from rw_sql.connectors.mysql_cdc.charsets import Charsets
from rw_sql.connectors.mysql_cdc.connection import connect, databases_of, unreachable
from rw_sql.connectors.mysql_cdc.decoder import Records, decode_rows
from rw_sql.connectors.mysql_cdc.events import RowsPart, TableMap
from rw_sql.connectors.mysql_cdc.followed import altered, require_readable, require_same_table, with_names
from rw_sql.connectors.mysql_cdc.gathering import Gathering
from rw_sql.connectors.mysql_cdc.known import KnownTables
from rw_sql.connectors.mysql_cdc.marks import Mark
from rw_sql.connectors.mysql_cdc.positions import STEPS, parts_of, shown
from rw_sql.connectors.mysql_cdc.search import earlier_start, is_other_log, search_notice, skipped_start
from rw_sql.connectors.mysql_cdc.server import AGAIN, await_prepared, check_position, facts_over, gone
from rw_sql.connectors.mysql_cdc.snapshot import SnapshotThread
from rw_sql.connectors.mysql_cdc.stream import Stream, Watched
from rw_sql.connectors.mysql_cdc.tables import find_table, missing_table, named
from rw_sql.errors import OFFSET_OUT_OF_RANGE, UPSTREAM_UNREACHABLE
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pymysql
    from pymysql.connections import Connection

    from rw_sql.connectors.base import SplitState
    from rw_sql.connectors.changes import SchemaChange, TableProgress
    from rw_sql.connectors.mysql_cdc.decoder import KnownTable
    from rw_sql.connectors.mysql_cdc.server import Facts
    from rw_sql.connectors.mysql_cdc.snapshot import Chunk
    from rw_sql.connectors.mysql_cdc.statements import Effect
    from rw_sql.connectors.mysql_cdc.stream import Transaction
else:
    pymysql = deferred("pymysql")

_LONGEST_WAIT = 0.2

_CHUNK_ORDINALS = 1 << 32
"""The ``_rw_index`` of the first row of a snapshot at a position. All changes of a transaction at the same position
have a lower index."""

_CATALOG_SECONDS = 60.0
"""The longest wait, in seconds, for the response to a query of the server's catalog."""


class MysqlReader:
    """See :class:`rw_sql.connectors.changes.ChangeReader`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._timeout = RESOLVE_TIMEOUT_SECONDS
        self._position = 0
        self._returned = 0
        self._ordinal = (0, 0)
        self._gathering = Gathering()
        self._progress: dict[str, TableProgress] = {}
        self._marks: dict[str, Mark] = {}
        self._folded = False
        self._is_mariadb = False
        self._prepared: tuple[int, ...] = ()
        self._found_prepared: tuple[int, ...] = ()
        """The prepared transactions that the present stream has found up to the last transaction it returned."""
        self._skipped_from: int | None = None
        """The position from which a move has skipped transactions, until the stream has passed the skipped part."""
        self._by_name: dict[tuple[str, str], tuple[str, ...]] = {}
        self._backlog: deque[Transaction] = deque()
        self._touched: dict[str, dict[str, int]] = {}
        self._emptied: dict[str, int] = {}
        self._changes: list[SchemaChange] = []
        self._failure: CaptureError | None = None
        """The error of a transaction, which is raised once all transactions before it have been returned."""
        self._catalog: Connection[Any] | None = None
        self._stream: Stream | None = None
        self._snapshot: SnapshotThread | None = None
        self._split = options["database.name"]
        self._server_id = int(options.get("server.id", "5432"))
        self._known = KnownTables(self._sql, Charsets(self._sql))
        self._maps: dict[int, tuple[KnownTable, ...]] = {}
        self._end = 0
        self._stream_start, self._notices = 0, deque[str]()
        self._is_closed = False

    def open(self, position: SplitState, tables: Mapping[str, TableProgress], *, reached: int | None = None) -> None:
        """See :meth:`ChangeReader.open`."""
        try:
            facts = facts_over(self._sql())
            self._position = self._returned = position.offset
            self._folded = facts.folds_names
            self._is_mariadb, self._end = facts.is_mariadb, facts.end
            self._known.use(is_mariadb=facts.is_mariadb, has_names=facts.has_names)
            check_position(facts, position)
            self._accept(tables, facts)
            if reached is not None and reached < position.offset:
                at = skipped_start(facts, reached, position.offset)
                # An earlier run has marked the skipped part as prepared if it ended within this part.
                self._prepared = tuple(start for start in self._prepared if start not in (reached, at))
                marks = self._marks.values()
                self._skipped_from = None if is_other_log(self._options, facts, at, marks, self._timeout) else at
                if at > reached and self._skipped_from is not None:
                    self._marks = {name: replace(mark, known_from=at) for name, mark in self._marks.items()}
            self._start(facts)
            self._check_log()
            self._snapshot = SnapshotThread(self._options, self._timeout, lambda: self._position)
            self._snapshot.set_tables(self._progress, self._marks)
        except pymysql.Error as error:
            self.close()
            raise unreachable(error, self._options) from error
        except CaptureError:
            self.close()
            raise

    def take(self, max_rows: int, wait_seconds: float) -> Taken:
        """See :meth:`ChangeReader.take`."""
        if self._is_closed or self._stream is None or self._snapshot is None:
            raise CaptureError(UPSTREAM_UNREACHABLE, "the reader is closed", is_temporary=True)
        try:
            return self._take(self._stream, self._snapshot, max_rows, wait_seconds)
        except pymysql.Error as error:
            self.close()
            raise unreachable(error, self._options) from error
        except CaptureError:
            self.close()
            raise

    def acknowledge(self, position: int) -> None:
        """See :meth:`ChangeReader.acknowledge`. Sends nothing to the server, because the server keeps its log for a
        fixed time, whether or not the reader has read the log. Raises ValueError for a position that has not been
        taken.
        """
        if position > self._position:
            raise ValueError(f"{shown(position)} is after the last position that was taken, {shown(self._position)}")

    def set_tables(self, tables: Mapping[str, TableProgress]) -> None:
        """See :meth:`ChangeReader.set_tables`. Opens a new stream at the reader's position, because the old stream
        omits the changes to the new tables."""
        kept = {name: self._progress.get(name, progress) for name, progress in tables.items()}
        try:
            facts = facts_over(self._sql())
            self._accept(kept, facts)
            if self._stream is not None:
                self._stream.close()
            self._start(facts)
        except pymysql.Error as error:
            raise unreachable(error, self._options) from error
        if self._snapshot is not None:
            self._snapshot.set_tables(self._progress, self._marks)

    def set_rate_limit(self, rows_per_second: float | None) -> None:
        """See :meth:`ChangeReader.set_rate_limit`."""
        if self._snapshot is not None:
            self._snapshot.set_rate(rows_per_second)

    def key_columns(self, table: str) -> tuple[str, ...]:
        """The columns of a table's primary key; empty for a table that is not read."""
        progress = self._progress.get(table)
        return () if progress is None else progress.key_columns

    def close(self) -> None:
        """See :meth:`ChangeReader.close`."""
        self._is_closed = True
        if self._snapshot is not None:
            self._snapshot.close()
        if self._stream is not None:
            self._stream.close()
        if self._catalog is not None:
            with contextlib.suppress(pymysql.Error, OSError):
                self._catalog._force_close()
        self._backlog.clear()

    def _sql(self) -> Connection[Any]:
        if self._catalog is None or not self._catalog.open:
            self._catalog = connect(self._options, self._timeout, read_timeout=_CATALOG_SECONDS)
        return self._catalog

    def _start(self, facts: Facts) -> None:
        """Starts the stream at the reader's position. If XA transactions that began earlier may be committed after this
        position, starts the stream before these transactions."""
        self._backlog.clear()
        self._maps.clear()
        self._found_prepared = ()
        self._stream_start = min((self._position, *self._earlier_starts()))
        sequence, at, _ = parts_of(self._stream_start)
        file = facts.file_of(self._stream_start)
        if file is None:
            raise CaptureError(
                OFFSET_OUT_OF_RANGE,
                f"the server has purged log file {sequence}, in which an XA transaction begins that is not committed",
                hint=AGAIN,
            )
        self._stream = Stream(self._options, self._server_id, is_mariadb=facts.is_mariadb, timeout=self._timeout)
        watched = Watched(
            tables=frozenset(self._by_name),
            databases=frozenset(map(self._fold, databases_of(self._options))),
            is_folded=self._folded,
        )
        self._stream.start(file.name, at, watched, ignored_to=self._position)

    def _earlier_starts(self) -> tuple[int, ...]:
        """The positions before the reader's position from which the stream must start, because transactions that begin
        there may be committed after the reader's position."""
        skipped = () if self._skipped_from is None else (self._skipped_from,)
        return tuple(sorted({*self._prepared, *skipped}))

    def _fold(self, name: str) -> str:
        return name.lower() if self._folded else name

    def _accept(self, tables: Mapping[str, TableProgress], facts: Facts) -> None:
        """Replaces the set of tables that are read. Raises CaptureError if a table does not exist or cannot be
        captured."""
        accepted: dict[str, TableProgress] = {}
        for name, progress in tables.items():
            accepted[name] = progress if name in self._progress else self._found(name, progress, facts)
        for name in [name for name in self._progress if name not in accepted]:
            self._touched.pop(name, None)
            self._marks.pop(name, None)
        self._progress = accepted
        self._prepared = tuple(sorted({at for mark in self._marks.values() for at in mark.prepared}))
        self._by_name = {}
        for name in accepted:  # Two names may denote the same table, for example with and without quotes.
            database, table = named(name)
            parts = self._fold(database), self._fold(table)
            self._by_name[parts] = (*self._by_name.get(parts, ()), name)

    def _found(self, name: str, progress: TableProgress, facts: Facts) -> TableProgress:
        table = find_table(self._sql(), name)
        if table is None:
            raise missing_table(self._sql(), self._options, name)
        require_readable(self._sql(), table, progress)
        mark = Mark.of(progress, self._position, facts.end, has_names=facts.has_names)
        is_new = progress.identity is None and (progress.continues is None or mark.begin > self._position)
        if facts.is_mariadb and is_new and not progress.is_done:
            await_prepared(self._sql(), name, self._timeout)
        self._marks[name] = mark if facts.has_names else with_names(mark, table, progress)
        estimated = progress.rows_estimated if progress.rows_estimated is not None else table.rows_estimated
        keeps_times = progress.keeps_times and mark.begin <= self._position
        return replace(
            progress, key_columns=table.key, rows_estimated=estimated, continues=None, keeps_times=keeps_times
        )

    def _check_log(self) -> None:
        """Waits for the first event, and checks that the log file is the same file that earlier runs read."""
        assert self._stream is not None
        sequence, _, _ = parts_of(min((self._position, *self._earlier_starts())))
        created, received = self._stream.await_created(sequence, self._timeout)
        self._backlog.extend(received)
        followed.require_same_log(self._marks.values(), sequence, created)

    def _take(self, stream: Stream, snapshot: SnapshotThread, max_rows: int, wait_seconds: float) -> Taken:
        if self._failure is not None:
            raise self._failure
        deadline = time.monotonic() + wait_seconds
        into = Records(self._split)
        transactions = 0
        while True:
            idle = 0
            stream = self._stream or stream
            if not self._backlog:
                is_nothing_here = not into and not transactions
                wait = min(deadline - time.monotonic(), _LONGEST_WAIT) if is_nothing_here else 0.0
                received, idle = stream.get(wait)
                self._backlog.extend(received)
            done = self._step(into, max_rows, idle, has_taken=transactions > 0)
            has_left = self._failure is None and self._leave_all(snapshot, into, max_rows)
            transactions += done
            if not into.has_room(max_rows) or self._is_closed or self._failure is not None:
                break
            is_held = bool(self._backlog) and not done
            if not done and not has_left and (into or transactions or is_held or time.monotonic() >= deadline):
                break
        if not into and not transactions and self._failure is not None:
            raise self._failure
        self._returned = self._position
        self._end = max(self._end, stream.seen, self._position)
        self._mark(self._stream or stream)
        changes, self._changes = tuple(self._changes), []
        notices, self._notices = tuple(self._notices), deque()
        return Taken(
            records=into.as_table(),
            position=self._position,
            progress=dict(self._progress),
            changes=changes,
            notices=(*snapshot.notices(), *notices),
            transactions=transactions,
            end=self._end,
        )

    def _mark(self, stream: Stream) -> None:
        """Updates the tables' marks with the current log file and the prepared transactions, if these have changed."""
        sequence, _, _ = parts_of(self._position)
        created, prepared = stream.created(sequence), self._earlier_starts()
        for name, progress in self._progress.items():
            mark = followed.mark_now(self._marks[name], prepared, sequence, created)
            text = mark.to_json()
            if text != progress.identity:
                self._marks[name] = mark
                self._progress[name] = replace(progress, identity=text)

    def _step(self, into: Records, max_rows: int, idle: int, *, has_taken: bool) -> int:
        """Decodes transactions until the batch has no room for another row. Returns the number of transactions."""
        done = 0
        while self._backlog and into.has_room(max_rows):
            transaction = self._backlog[0]
            if transaction.position > self._position:
                is_first = not (has_taken or done or into)
                if not is_first and self._is_turning(transaction):
                    # The preceding transactions form a separate batch, which is valid even if this transaction cannot
                    # be read.
                    return done
                before, progress, changes = len(into), dict(self._progress), len(self._changes)
                try:
                    if transaction.is_earlier and self._searches_earlier(transaction.position):
                        return done
                    self._decode(transaction, into)
                except CaptureError as error:
                    if is_first:
                        raise
                    into.cut(before)  # Returns the transactions before this one, and no part of this one.
                    self._progress = progress
                    del self._changes[changes:]
                    self._failure = error
                    return done
                self._position = transaction.position
                done += 1
                self._skipped_from = None
            self._prepared = self._found_prepared = transaction.prepared
            self._backlog.popleft()
        if not self._backlog and idle > self._position:
            # The stream began before all prepared transactions, and has found those that are still prepared.
            self._position, self._skipped_from, self._prepared = idle, None, self._found_prepared
        return done

    def _searches_earlier(self, committed: int) -> bool:
        """Starts the stream again at an earlier position if the XA transaction that is committed at ``committed`` was
        prepared before the stream, and its changes may concern a table. Raises CaptureError if the server no longer
        has that part of its log."""
        if not any(mark.may_lack(committed) for mark in self._marks.values()):
            return False
        facts = facts_over(self._sql())
        at = earlier_start(facts, self._split, self._stream_start, self._position, committed)
        self._skipped_from = at  # A commit stores this position in the marks, so the next run also begins there.
        self._notices.append(search_notice(at, committed))
        assert self._stream is not None
        self._stream.close()
        self._start(facts)
        return True

    def _is_turning(self, transaction: Transaction) -> bool:
        """True if a transaction must begin a batch, because the reader may be unable to read the transaction. The
        reader may be unable to read a transaction that contains a statement other than TRUNCATE, such as ALTER, or
        whose rows have other columns than the earlier rows of the table."""
        for part in transaction.parts:
            if isinstance(part, RowsPart):
                continue
            if isinstance(part, TableMap):
                for name in self._names_of(part.database, part.table, transaction.position):
                    if not self._known.has_seen(name, part) and self._progress[name].columns:
                        return True
            elif part.did != "truncated":
                return True
        return False

    def _names_of(self, database: str, table: str, position: int) -> Iterator[str]:
        """Returns the names under which a table is read. The result omits names for which changes at this position are
        ignored."""
        for name in self._by_name.get((self._fold(database), self._fold(table)), ()):
            if position > self._marks[name].begin:
                yield name

    def _decode(self, transaction: Transaction, into: Records) -> None:
        self._forget_touched()
        start = len(into)
        position, seconds = transaction.position, transaction.time
        for part in transaction.parts:
            if isinstance(part, TableMap):
                names = self._names_of(part.database, part.table, position)
                self._maps[part.id] = tuple(self._on_map(name, part, position) for name in names)
            elif isinstance(part, RowsPart):
                for known in self._maps.get(part.table_id, ()):
                    touched = self._touched.setdefault(known.table, {}) if self._is_tracked(known.table) else None
                    decode_rows(known, part, into, position, len(into) - start, seconds, touched)
            else:
                self._on_effect(part, position, into, len(into) - start, seconds)

    def _is_tracked(self, name: str) -> bool:
        """True while a pending chunk of the table may be older than the next change."""
        return not self._progress[name].is_done

    def _forget_touched(self) -> None:
        """Discards the keys of changed rows, because a chunk that begins later contains all changes up to the present
        position. Keeps the keys of a table if a chunk of this table is being read or waits to be emitted."""
        for name in list(self._touched):
            if self._snapshot is not None and not self._snapshot.is_reading(name):
                del self._touched[name]

    def _on_map(self, name: str, part: TableMap, position: int) -> KnownTable:
        known, types = self._known.table(name, part, self._progress[name], position)
        if position > self._marks[name].columns_from:
            self._compare(name, types, position)
        return known

    def _on_effect(self, effect: Effect, position: int, into: Records, ordinal: int, seconds: int) -> None:
        if effect.did == "changed":
            raise followed.lacks_rows(position)
        if effect.did == "database":
            for each in self._progress:
                if self._fold(named(each)[0]) == self._fold(effect.database) and position > self._marks[each].begin:
                    raise gone(f"table {each} was dropped, with its database")
            return
        for other in self._names_of(*effect.other, position) if effect.other is not None else ():
            raise followed.renamed_over(other, effect, position)
        for number, name in enumerate(self._names_of(effect.database, effect.table, position)):
            if effect.did == "truncated":
                into.truncate(name, position, ordinal + number, seconds)
                self._emptied[name] = position
            elif effect.did == "altered":
                self._altered(name, effect.columns, position)
            else:
                require_same_table(name, effect, position)

    def _altered(self, name: str, columns: Sequence[str], position: int) -> None:
        table = find_table(self._sql(), name)
        if table is None:
            return  # A later event of the log shows what happened to the table.
        require_readable(self._sql(), table, self._progress[name])
        self._known.forget(name)
        if position > self._marks[name].columns_from:
            self._progress[name], change = altered(table, self._progress[name], columns, position)
            if change is not None:
                self._changes.append(change)
        if self._marks[name].names and tuple(column.name for column in table.columns) != self._marks[name].names:
            raise gone(
                f"the columns of table {name} changed at {shown(position)}, and the server's log contains no "
                "column names"
            )

    def _leave_all(self, snapshot: SnapshotThread, into: Records, max_rows: int) -> bool:
        """Emits the chunks whose positions the stream has passed. The rows of these chunks get a position at which no
        earlier batch has ended."""
        has_left = False
        gathered = self._gathering.rows_at(self._position, self._progress.values())
        while (into.has_room(max_rows) or len(into) < gathered) and (chunk := snapshot.first()) is not None:
            if chunk.position > self._position:
                break
            if self._position <= self._returned:
                if self._position % STEPS + 1 >= STEPS or not snapshot.has_gathered(gathered):
                    break  # Either no batch number is left at this position, or more chunks are to be read first.
                self._position += 1
            self._leave(snapshot, chunk, into)
            has_left = True
        return has_left

    def _leave(self, snapshot: SnapshotThread, chunk: Chunk, into: Records) -> None:
        """Emits the rows of a chunk, except the rows that a later change has touched."""
        self._compare(chunk.table, chunk.columns, self._position)
        touched = self._touched.get(chunk.table, {})
        rows = chunk.rows
        if self._emptied.get(chunk.table, 0) > chunk.position:
            rows = []
        elif touched:
            at = chunk.position
            rows = [row for key, row in zip(chunk.keys, rows, strict=True) if touched.get(key, 0) <= at]
        if rows:
            place, first = self._ordinal
            first = first if place == self._position else _CHUNK_ORDINALS
            self._ordinal = (self._position, first + len(rows))
            into.snapshot(chunk.table, rows, self._position, first)
        self._gathering.note(self._position, len(chunk.rows))
        done = snapshot.leave(chunk)
        progress = self._progress[chunk.table]
        self._progress[chunk.table] = replace(
            progress,
            next_key=chunk.next_key,
            traits={**progress.traits, KEY_ORDER: chunk.order},
            rows_done=progress.rows_done + len(chunk.rows),
            is_done=done,
        )
        if done:
            self._touched.pop(chunk.table, None)

    def _compare(self, name: str, now: Mapping[str, str], position: int) -> None:
        """Notes a change to the table's columns."""
        before = self._progress[name].columns
        if dict(before) == dict(now):
            return
        self._progress[name] = replace(self._progress[name], columns=dict(now))
        if before and (change := schema_change(name, before, now, position)) is not None:
            self._changes.append(change)
