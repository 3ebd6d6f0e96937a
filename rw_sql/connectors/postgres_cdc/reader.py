"""The reader of a slot: merges changes and snapshots of a source's tables into one sequence.

See :class:`ChangeReader`.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rw_sql.connectors.base import RESOLVE_TIMEOUT_SECONDS
from rw_sql.connectors.changes import (
    BATCH_BYTES,
    KEY_ORDER,
    SNAPSHOT,
    CaptureError,
    Taken,
    records_schema,
    schema_change,
)
from rw_sql.connectors.postgres_cdc import pgoutput
from rw_sql.connectors.postgres_cdc.connection import connect, lsn_number, lsn_text, unreachable
from rw_sql.connectors.postgres_cdc.decoder import Decoded, Decoder, KnownTable, convert_cells, json_of, make_batch
from rw_sql.connectors.postgres_cdc.followed import (
    COLUMNS_FROM,
    after_begin,
    followed,
    ignored_to,
    require_same_relation,
    with_begin,
)
from rw_sql.connectors.postgres_cdc.server import AGAIN, check_position, read_facts
from rw_sql.connectors.postgres_cdc.snapshot import SnapshotThread
from rw_sql.connectors.postgres_cdc.stream import Stream
from rw_sql.connectors.postgres_cdc.tables import named, require_one_name, type_names
from rw_sql.connectors.postgres_cdc.types import resolve_types
from rw_sql.connectors.support.cut_off import cut_off
from rw_sql.errors import UPSTREAM_MISSING, UPSTREAM_UNREACHABLE
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import psycopg
    from psycopg import Connection

    from rw_sql.connectors.base import SplitState
    from rw_sql.connectors.changes import SchemaChange, TableProgress
    from rw_sql.connectors.postgres_cdc.decoder import TrackedChange
    from rw_sql.connectors.postgres_cdc.pgoutput import Relation, Transaction
    from rw_sql.connectors.postgres_cdc.snapshot import Chunk
    from rw_sql.connectors.postgres_cdc.txid_snapshot import Snapshot
    from rw_sql.connectors.postgres_cdc.types import PostgresType
else:
    psycopg = deferred("psycopg")

_RECENT = 200_000
"""The number of recent transactions whose ids are remembered. If the snapshot of a new table does not see all of these
transactions, the table's first chunk is read again."""

_CHECK_SECONDS = 10.0
"""The minimum interval in seconds between two checks that the stream has all changes to the tables (:mod:`followed
<rw_sql.connectors.postgres_cdc.followed>`)."""

_LOCK_SECONDS = 2
"""The maximum time in seconds that the check of a table waits for a lock. If the check gets no lock in this time, the
table is checked again later."""

_CHECK_SHARE = 20
"""The interval between two checks is at least this many times the duration of a check, which may be long for a source
with many tables."""

_SLOT_SECONDS = 10.0
"""The seconds for which :meth:`PostgresReader.open` waits while another client uses the slot, because the server
notices the end of a client with a delay."""

_LONGEST_WAIT = 0.2

_UNREADABLE: dict[tuple[str, ...], int] = {}
"""For each slot, the end of the last group of transactions that could not be decoded.

Up to this position, the next readers return transactions one by one. All transactions before the unreadable transaction
are then committed, and SKIP skips only the unreadable transaction.
"""

_CHUNK_ORDINALS = 1 << 32
"""The ``_rw_index`` of the first row of a chunk. All changes at the same position have a lower index."""


class PostgresReader:
    """See :class:`rw_sql.connectors.changes.ChangeReader`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._slot = options["slot.name"]
        self._key = tuple(options.get(name, "") for name in ("hostname", "port", "database.name", "slot.name"))
        self._timeout = RESOLVE_TIMEOUT_SECONDS
        self._position = 0
        self._returned = 0
        self._ordinal = (0, 0)
        self._progress: dict[str, TableProgress] = {}
        self._by_name: dict[tuple[str, str], str] = {}
        self._backlog: deque[Transaction] = deque()
        self._recent: deque[int] = deque(maxlen=_RECENT)
        self._unsure: dict[str, frozenset[int]] = {}
        self._tracked: dict[str, list[TrackedChange]] = {}
        self._floor: Snapshot | None = None
        self._types: dict[int, PostgresType] = {}
        self._money: str | None = None
        self._changes: list[SchemaChange] = []
        self._check_at = 0.0
        self._catalog: Connection[Any] | None = None
        self._stream: Stream | None = None
        self._snapshot: SnapshotThread | None = None
        self._split = options["database.name"]
        self._decoder = Decoder(self._split, self._on_relation, self._ignored_to)
        self._is_closed = False

    def open(self, position: SplitState, tables: Mapping[str, TableProgress], *, reached: int | None = None) -> None:
        """See :meth:`ChangeReader.open`."""
        try:
            self._wait_for_slot(position)
            self._position = self._returned = position.offset
            self._accept(tables)
            stream = Stream(self._options, self._slot, self._options["publication.name"], self._timeout)
            self._stream = stream
            stream.start(position.offset)
            # No program can move the slot while this reader uses it. This check detects an earlier move.
            check_position(read_facts(self._options, self._timeout), self._options, position)
            self._snapshot = SnapshotThread(self._options, self._timeout)
            self._snapshot.set_tables(self._progress)
        except psycopg.Error as error:
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
        except psycopg.Error as error:
            self.close()
            raise unreachable(error, self._options) from error
        except pgoutput.BrokenMessageError as error:
            self.close()
            raise CaptureError(UPSTREAM_MISSING, f"the server sent {error}") from error
        except CaptureError:
            self.close()
            raise

    def acknowledge(self, position: int) -> None:
        """See :meth:`ChangeReader.acknowledge`. Raises ValueError for a position that has not been taken."""
        if position > self._position:
            raise ValueError(
                f"{lsn_text(position)} is after the last position that was taken, {lsn_text(self._position)}"
            )
        if self._stream is not None:
            self._stream.acknowledge(position)

    def set_tables(self, tables: Mapping[str, TableProgress]) -> None:
        """See :meth:`ChangeReader.set_tables`."""
        kept = {name: self._progress.get(name, progress) for name, progress in tables.items()}
        try:
            self._accept(kept)
        except psycopg.Error as error:
            raise unreachable(error, self._options) from error
        self._decoder.refresh()
        if self._snapshot is not None:
            self._snapshot.set_tables(self._progress)

    def set_rate_limit(self, rows_per_second: float | None) -> None:
        """See :meth:`ChangeReader.set_rate_limit`."""
        if self._snapshot is not None:
            self._snapshot.set_rate(rows_per_second)

    def key_columns(self, table: str) -> tuple[str, ...]:
        """The columns of a table's primary key; empty if the table is not read."""
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
            cut_off(self._catalog, psycopg.Error)  # Another thread may wait for a response.
            self._catalog.close()
        for transaction in self._backlog:
            transaction.close()

    def _wait_for_slot(self, position: SplitState) -> None:
        deadline = time.monotonic() + _SLOT_SECONDS
        while True:
            slot = check_position(read_facts(self._options, self._timeout), self._options, position)
            if slot.active_pid is None:
                return
            if time.monotonic() > deadline:
                raise CaptureError(
                    UPSTREAM_UNREACHABLE,
                    f'replication slot "{self._slot}" is in use by the server process {slot.active_pid}',
                    hint=f"stop the other reader; on the server: SELECT pg_terminate_backend({slot.active_pid})",
                    is_temporary=True,
                )
            time.sleep(0.05)

    def _sql(self) -> Connection[Any]:
        if self._catalog is None or self._catalog.closed:
            self._catalog = connect(self._options, self._timeout)
            self._catalog.execute(f"SET lock_timeout = '{_LOCK_SECONDS}s'".encode())
        return self._catalog

    def _accept(self, tables: Mapping[str, TableProgress]) -> None:
        """Replaces the set of tables that are read. Raises CaptureError if a table is missing, was recreated, or is not
        published."""
        require_one_name(tables)
        connection = self._sql()
        accepted: dict[str, TableProgress] = {}
        for name, progress in tables.items():
            accepted[name] = progress if name in self._progress else self._found(connection, progress)
        for name in [name for name in self._progress if name not in accepted]:
            self._unsure.pop(name, None)
            self._tracked.pop(name, None)
        recent = frozenset(self._recent)
        for name, progress in accepted.items():
            if not progress.is_done and name not in self._progress:
                self._unsure[name] = recent
                self._tracked[name] = []
        self._progress = accepted
        self._by_name = {named(name): name for name in accepted}

    def _found(self, connection: Connection[Any], progress: TableProgress) -> TableProgress:
        found, change = followed(connection, progress, self._options["publication.name"], self._position)
        if change is not None:
            self._changes.append(change)
        is_new = progress.continues is None and (progress.has_live_tables or not progress.is_done)
        if progress.identity is None and (is_new or progress.ignores_columns):
            row = connection.execute(b"SELECT pg_catalog.pg_current_wal_insert_lsn()::text").fetchone()
            at = lsn_number(row[0]) if row else 0
            found = with_begin(found, at) if is_new else replace(found, traits={**found.traits, COLUMNS_FROM: str(at)})
        return replace(found, continues=None)

    def _check(self) -> None:
        """Checks periodically that the stream has all changes to the tables."""
        began = time.monotonic()
        if began < self._check_at:
            return
        if self._check_at:
            self._progress = {name: self._found(self._sql(), each) for name, each in self._progress.items()}
        now = time.monotonic()
        self._check_at = now + max(_CHECK_SECONDS, _CHECK_SHARE * (now - began))

    def _take(self, stream: Stream, snapshot: SnapshotThread, max_rows: int, wait_seconds: float) -> Taken:
        self._check()
        deadline = time.monotonic() + wait_seconds
        into = Decoded()
        transactions = 0
        while True:
            idle = 0
            if not self._backlog:
                is_nothing_here = not into.batches and not transactions
                wait = min(deadline - time.monotonic(), _LONGEST_WAIT) if is_nothing_here else 0.0
                received, idle = stream.get(self._position, wait)
                self._backlog.extend(received)
            done = self._step(into, max_rows, idle)
            has_left = self._leave_all(snapshot, into, max_rows)
            transactions += done
            if (
                not into.has_room(max_rows)
                or self._is_closed
                or (done and self._position <= _UNREADABLE.get(self._key, 0))
            ):
                break
            if not done and not has_left and (into.batches or transactions or time.monotonic() >= deadline):
                break
        self._returned = self._position
        changes, self._changes = tuple(self._changes), []
        return Taken(
            records=pa.Table.from_batches(into.batches, schema=records_schema()),
            position=self._position,
            progress=dict(self._progress),
            changes=changes,
            notices=snapshot.notices(),
            transactions=transactions,
            end=max(stream.end, self._position),
        )

    def _step(self, into: Decoded, max_rows: int, idle: int) -> int:
        """Decodes transactions until the batch is full. Returns the number of transactions."""
        group: list[Transaction] = []
        room = max_rows - into.rows if self._position >= _UNREADABLE.get(self._key, 0) else 1
        space = BATCH_BYTES - into.size
        while self._backlog and room > 0 and space > 0:
            transaction = self._backlog.popleft()
            if transaction.position > self._position:
                group.append(transaction)
                room -= transaction.count
                space -= transaction.size + transaction.spooled
        if group:
            try:
                self._decode(group, into)
            except CaptureError:
                _UNREADABLE[self._key] = group[-1].position
                raise
            self._position = group[-1].position
        if not self._backlog and idle > self._position:
            self._position = idle
        return len(group)

    def _leave_all(self, snapshot: SnapshotThread, into: Decoded, max_rows: int) -> bool:
        """Emits the chunks whose position the stream has passed. The rows of these chunks get a position at which no
        earlier batch has ended."""
        has_left = False
        while into.has_room(max_rows) and (chunk := snapshot.first()) is not None:
            if chunk.position > self._position:
                break
            if self._position <= self._returned:
                snapshot.write_log()
                break
            self._leave(snapshot, chunk, into)
            has_left = True
        return has_left

    def _decode(self, group: Sequence[Transaction], into: Decoded) -> None:
        self._recent.extend(transaction.xid for transaction in group)
        self._decoder.decode(group, into)
        floor = self._snapshot.floor() if self._snapshot is not None else None
        if floor is not None and floor is not self._floor:
            for name, changes in self._tracked.items():
                self._tracked[name] = [change for change in changes if not floor.sees(change.xid)]
        self._floor = floor
        for change in into.tracked:
            if change.moved and change.again is not None and self._snapshot is not None:
                self._note_again(change.table, [change.again])
                self._snapshot.read_again(change.table, [change.again])
            if self._floor is None or not self._floor.sees(change.xid):
                self._tracked.setdefault(change.table, []).append(change)
        into.tracked.clear()

    def _note_again(self, table: str, keys: Iterable[str], without: Iterable[str] = ()) -> None:
        progress = self._progress[table]
        left_out = frozenset(without)
        again = dict.fromkeys([*(key for key in progress.again if key not in left_out), *keys])
        self._progress[table] = replace(progress, again=tuple(again))

    def _leave(self, snapshot: SnapshotThread, chunk: Chunk, into: Decoded) -> None:
        """Emits a chunk. Omits the rows that were changed by a transaction that the chunk's snapshot does not see."""
        unsure = self._unsure.get(chunk.table, frozenset())
        if unsure:
            if not all(chunk.snapshot.sees(xid) for xid in unsure):
                snapshot.reject(chunk)
                return
            self._unsure[chunk.table] = frozenset()
        snapshot.trust(chunk)
        newer = [change for change in self._tracked.get(chunk.table, ()) if not chunk.snapshot.sees(change.xid)]
        for name, changes in self._tracked.items():
            self._tracked[name] = [change for change in changes if not chunk.snapshot.sees(change.xid)]
        again: list[str] = []
        progress = self._see_columns(chunk)
        count = len(chunk.cells)
        kept = 0
        if count:
            names = [column.name for column in chunk.columns]
            keys = json_of(
                chunk.table, chunk.cells.columns([names.index(name) for name in chunk.key]), chunk.key, chunk.key
            )
            keep = np.ones(count, dtype=bool)
            if any(not change.keys for change in newer):  # after a TRUNCATE, the stream contains all further changes
                keep[:] = False
            elif newer:
                touched = pa.array(sorted({key for change in newer for key in change.keys}), pa.string())
                keep = ~pc.is_in(keys, value_set=touched).to_numpy(zero_copy_only=False)
                lost = set(keys.filter(pa.array(~keep)).to_pylist())
                again = [change.again for change in newer if change.again in lost and change.again is not None]
            kept = int(keep.sum())
            if kept:
                into.batches.append(self._chunk_batch(chunk, names, keep))
        done = snapshot.leave(chunk, again)
        self._progress[chunk.table] = replace(
            progress,
            next_key=chunk.next_key if not chunk.again else progress.next_key,
            traits={**progress.traits, KEY_ORDER: chunk.order} if not chunk.again else progress.traits,
            rows_done=progress.rows_done + (0 if chunk.again else count),
            is_done=done,
        )
        self._note_again(chunk.table, again, without=chunk.again)
        if done:
            self._tracked.pop(chunk.table, None)
            self._progress[chunk.table] = replace(self._progress[chunk.table], again=())
            self._decoder.refresh()

    def _chunk_batch(self, chunk: Chunk, names: list[str], keep: Any) -> pa.RecordBatch:
        cells = chunk.cells.pick(np.flatnonzero(keep))
        kinds = {column.name: (column.type, column.modifier) for column in chunk.columns}
        converters = self._converters([oid for oid, _ in kinds.values()])
        cells = convert_cells(chunk.table, cells, names, chunk.key, converters)
        rows = json_of(chunk.table, cells, names, chunk.key)
        count = len(rows)
        at, first = self._ordinal
        first = first if at == self._position else _CHUNK_ORDINALS
        self._ordinal = (self._position, first + count)
        return make_batch(
            self._split,
            chunk.table,
            ops=pa.repeat(pa.scalar(SNAPSHOT, pa.string()), count),
            keys=pa.nulls(count, pa.string()),
            rows=rows,
            unchanged=pa.nulls(count, pa.list_(pa.string())),
            positions=np.full(count, self._position, dtype=np.int64),
            ordinals=np.arange(first, first + count, dtype=np.int64),
            times=np.zeros(count, dtype=np.int64),
        )

    def _ignored_to(self, relation: Relation, position: int) -> int:
        ignored = ignored_to(self._sql(), relation, self._by_name, self._progress, position)
        name = self._by_name.get((relation.schema, relation.name))
        if ignored < 0 and name is not None:
            self._progress[name] = after_begin(self._progress[name])
        return ignored

    def _on_relation(self, relation: Relation, position: int | None) -> KnownTable | None:
        name = self._by_name.get((relation.schema, relation.name))
        require_same_relation(relation, name, self._progress)
        if name is None:
            return None
        progress = self._progress[name]
        kinds = {column.name: (column.type, column.modifier) for column in relation.columns}
        if position is not None and position > int(progress.traits.get(COLUMNS_FROM, 0)):
            self._compare(name, type_names(self._sql(), kinds), position)
            progress = self._progress[name]
        flagged = {column.name for column in relation.columns if column.is_key}
        lacking = [column for column in progress.key_columns if column not in kinds]
        if lacking or not flagged.issuperset(progress.key_columns):
            self._found(self._sql(), progress)  # If the table's key has changed, this call raises an error.
        if lacking:
            raise CaptureError(
                UPSTREAM_MISSING,
                f'the stream no longer contains column "{lacking[0]}" of the primary key of table {name}',
                hint=AGAIN,
            )
        if relation.identity != "n" and not flagged.issuperset(progress.key_columns):
            raise CaptureError(
                UPSTREAM_MISSING,
                f"the replica identity of table {name} lacks columns of its primary key",
                # A key that is DEFERRABLE is not the default replica identity.
                hint=f"ALTER TABLE {name} REPLICA IDENTITY {'FULL' if relation.identity == 'd' else 'DEFAULT'}; "
                f"then {AGAIN}",
            )
        return KnownTable(
            name,
            relation,
            progress.key_columns,
            self._converters([column.type for column in relation.columns]),
            is_tracked=not progress.is_done,
        )

    def _see_columns(self, chunk: Chunk) -> TableProgress:
        self._compare(chunk.table, {column.name: column.type_name for column in chunk.columns}, self._position)
        return self._progress[chunk.table]

    def _compare(self, name: str, now: Mapping[str, str], position: int) -> None:
        """Notes a change to the table's columns."""
        before = self._progress[name].columns
        if before == now:
            return
        self._progress[name] = replace(self._progress[name], columns=dict(now))
        if before and (change := schema_change(name, before, now, position)) is not None:
            self._changes.append(change)

    def _converters(self, oids: Sequence[int]) -> dict[int, Callable[[str], str]]:
        missing = set(oids) - set(self._types)
        if missing:
            self._types |= resolve_types(self._sql(), missing)
        made: dict[int, Callable[[str], str]] = {}
        for at, oid in enumerate(oids):
            kind = self._types[oid]
            is_money = "money" in (kind.family, kind.element.family if kind.element else "")
            convert = kind.converter(self._money_sample() if is_money else "")
            if convert is not None:
                made[at] = convert
        return made

    def _money_sample(self) -> str:
        if self._money is None:
            row = self._sql().execute(b"SELECT '1234567.89'::numeric::money::text").fetchone()
            self._money = str(row[0]) if row else ""
        return self._money
