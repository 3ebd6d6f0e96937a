"""Decodes transactions of pgoutput to records. Rows of the same table and shape are decoded together.

The order of the messages is preserved. The meaning of a row depends on the preceding Relation message. The rows between
two Relation messages therefore form a *run*, and each run is decoded table by table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rw_sql.connectors.changes import (
    BATCH_BYTES,
    DELETE,
    INSERT,
    TRUNCATE,
    UPDATE,
    CaptureError,
    records_schema,
)
from rw_sql.connectors.postgres_cdc import pgoutput
from rw_sql.connectors.postgres_cdc.server import AGAIN
from rw_sql.connectors.postgres_cdc.tuples import (
    TEXT,
    BrokenTupleError,
    Cells,
    converted,
    json_rows,
    unchanged_names,
    walk,
)
from rw_sql.errors import UPSTREAM_MISSING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rw_sql.connectors.postgres_cdc.pgoutput import Relation, Transaction
    from rw_sql.connectors.postgres_cdc.tuples import Bytes, Numbers

_PIECE_MESSAGES = 8192
_PIECE_BYTES = 1 << 24
_OP_NAMES = pa.array([INSERT, UPDATE, DELETE], pa.string())


@dataclass(slots=True)
class KnownTable:
    """A table in the stream. ``table`` is the table's name in the records, and ``key`` are the columns of the table's
    primary key.

    ``converters`` maps column numbers to functions that convert the column's text. ``is_tracked`` is true while the
    table's snapshot is being read. The decoder then records the keys of changed rows, and the reader discards the
    outdated rows of the snapshot.
    """

    table: str
    relation: Relation
    key: tuple[str, ...]
    converters: Mapping[int, Callable[[str], str]]
    is_tracked: bool = False
    names: tuple[str, ...] = field(init=False)
    key_at: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.names = tuple(column.name for column in self.relation.columns)
        self.key_at = tuple(self.names.index(name) for name in self.key if name in self.names)

    @property
    def has_converted_key(self) -> bool:
        """True if a column of the key has a converter."""
        return any(at in self.converters for at in self.key_at)


@dataclass(frozen=True, slots=True)
class TrackedChange:
    """A change to a table whose snapshot is being read.

    ``keys`` are JSON objects: the row's key before and after the change.

    ``again`` is the key after the change if the change omitted values; otherwise None. A TRUNCATE has no keys.
    """

    table: str
    xid: int
    keys: tuple[str, ...]
    again: str | None = None
    moved: bool = False


@dataclass(slots=True)
class Decoded:
    """The records of decoded transactions, in the order of the log. ``tracked`` are the transactions' changes to tables
    whose snapshot is being read."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    tracked: list[TrackedChange] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """The number of records."""
        return sum(batch.num_rows for batch in self.batches)

    @property
    def size(self) -> int:
        """The size of the records in bytes."""
        return sum(batch.nbytes for batch in self.batches)

    def has_room(self, rows: int) -> bool:
        """True if there are fewer than ``rows`` records, and these records together have fewer than BATCH_BYTES
        bytes."""
        return self.rows < rows and self.size < BATCH_BYTES


class Decoder:
    """Decodes the transactions of one connection, in the order of the log.

    ``on_relation`` is called with each Relation message and the position of its transaction, and returns the table, or
    None if the table is not read. If the position is None, the message was received earlier, and the table's columns
    may have changed since then. ``ignored_to`` is called with each Relation message and the position of its
    transaction. It returns the position up to which the changes of the relation are ignored, or -1 if no changes are
    ignored. The server sends another Relation message only if the relation changes. At the first change after the
    returned position, the decoder therefore calls ``on_relation`` itself, with the last Relation message.
    """

    def __init__(
        self,
        split: str,
        on_relation: Callable[[Relation, int | None], KnownTable | None],
        ignored_to: Callable[[Relation, int], int] = lambda _relation, _position: -1,
    ) -> None:
        self._split = split
        self._on_relation = on_relation
        self._ignored_to = ignored_to
        self._ignored: dict[int, int] = {}
        self._relations: dict[int, Relation] = {}
        self._tables: dict[int, KnownTable | None] = {}

    def refresh(self) -> None:
        """Calls ``on_relation`` again for each known relation, because the set of tables to read has changed."""
        self._tables = {
            oid: None if oid in self._ignored else self._on_relation(relation, None)
            for oid, relation in self._relations.items()
        }

    def decode(self, transactions: Sequence[Transaction], into: Decoded) -> None:
        """Adds the records of the transactions to ``into``. Raises CaptureError for a row that cannot be read."""
        messages: list[bytes] = []
        owners: list[tuple[Transaction, int, int]] = []
        size = 0
        for transaction in transactions:
            ordinal = 0
            for piece in transaction.pieces(_PIECE_MESSAGES, _PIECE_BYTES):
                owners.append((transaction, ordinal, len(piece)))
                ordinal += len(piece)
                messages += piece
                size += sum(map(len, piece))
                if len(messages) >= _PIECE_MESSAGES or size >= _PIECE_BYTES:
                    self._piece(messages, owners, into)
                    messages, owners, size = [], [], 0
        if messages:
            self._piece(messages, owners, into)

    def _piece(self, messages: list[bytes], owners: list[tuple[Transaction, int, int]], into: Decoded) -> None:
        lengths = np.fromiter(map(len, messages), dtype=np.int64, count=len(messages))
        buffer = np.frombuffer(b"".join(messages), dtype=np.uint8)
        starts = np.cumsum(lengths) - lengths
        kinds = buffer[starts]
        counts = np.array([count for _, _, count in owners])
        first = np.repeat(np.cumsum(counts) - counts, counts)
        run = _Run(
            buffer=buffer,
            starts=starts,
            kinds=kinds,
            positions=np.repeat(np.array([each.position for each, _, _ in owners], dtype=np.int64), counts),
            times=np.repeat(np.array([each.time for each, _, _ in owners], dtype=np.int64), counts),
            xids=np.repeat(np.array([each.xid for each, _, _ in owners], dtype=np.int64), counts),
            ordinals=np.arange(len(messages)) - first + np.repeat([ordinal for _, ordinal, _ in owners], counts),
        )
        is_row = (kinds == pgoutput.INSERT) | (kinds == pgoutput.UPDATE) | (kinds == pgoutput.DELETE)
        done = 0
        for at in [*np.flatnonzero(~is_row).tolist(), len(messages)]:
            if at > done:
                self._rows(run, np.arange(done, at), into)
            if at < len(messages):
                self._control(messages[at], run, at, into)
            done = at + 1

    def _control(self, message: bytes, run: _Run, at: int, into: Decoded) -> None:
        position = int(run.positions[at])
        match message[0]:
            case pgoutput.RELATION:
                relation = pgoutput.parse_relation(message)
                self._relations[relation.oid], self._tables[relation.oid] = relation, None
                self._ignored[relation.oid] = self._ignored_to(relation, position)
                self._known(relation.oid, position)
            case pgoutput.TRUNCATE:
                for oid in pgoutput.parse_truncate(message):
                    known = self._known(oid, position)
                    if known is not None:
                        into.batches.append(self._truncated(known, run, at))
                        if known.is_tracked:
                            into.tracked.append(TrackedChange(known.table, int(run.xids[at]), ()))
            case pgoutput.TYPE | pgoutput.ORIGIN | pgoutput.MESSAGE:
                pass
            case kind:
                raise pgoutput.BrokenMessageError(f"a message of the unknown kind {chr(kind)!r}")

    def _known(self, oid: int, position: int) -> KnownTable | None:
        """The table of a change at ``position``; None if the change is ignored."""
        ignored = self._ignored.get(oid)
        if ignored is not None and position > ignored:
            del self._ignored[oid]
            self._tables[oid] = self._on_relation(self._relations[oid], position)
        return self._tables.get(oid)

    def _truncated(self, known: KnownTable, run: _Run, at: int) -> pa.RecordBatch:
        return make_batch(
            self._split,
            known.table,
            ops=pa.array([TRUNCATE], pa.string()),
            keys=pa.nulls(1, pa.string()),
            rows=pa.nulls(1, pa.string()),
            unchanged=pa.nulls(1, pa.list_(pa.string())),
            positions=run.positions[at : at + 1],
            ordinals=run.ordinals[at : at + 1],
            times=run.times[at : at + 1],
        )

    def _rows(self, run: _Run, rows: Numbers, into: Decoded) -> None:
        starts = run.starts[rows]
        oids = np.zeros(len(rows), dtype=np.int64)
        for offset in range(1, 5):
            oids = (oids << 8) | run.buffer[starts + offset]
        made: list[tuple[Numbers, pa.RecordBatch]] = []
        for oid in np.unique(oids).tolist():
            if oid not in self._tables:
                raise pgoutput.BrokenMessageError(f"a row of the unknown relation {oid}")
            of_table = rows[oids == oid]
            if oid in self._ignored:
                of_table = of_table[run.positions[of_table] > self._ignored[oid]]
            known = self._known(oid, int(run.positions[of_table[0]])) if len(of_table) else None
            if known is not None:
                made.append((of_table, self._of_table(known, run, of_table, into)))
        if len(made) == 1:
            into.batches.append(made[0][1])
        elif made:
            order = np.argsort(np.concatenate([at for at, _ in made]), kind="stable")
            whole = pa.Table.from_batches([batch for _, batch in made]).combine_chunks().to_batches()[0]
            into.batches.append(whole.take(pa.array(order)))

    def _of_table(self, known: KnownTable, run: _Run, rows: Numbers, into: Decoded) -> pa.RecordBatch:
        try:
            return self._table_rows(known, run, rows, into)
        except BrokenTupleError as error:
            raise CaptureError(UPSTREAM_MISSING, f"table {known.table}: {error}") from error

    def _table_rows(self, known: KnownTable, run: _Run, rows: Numbers, into: Decoded) -> pa.RecordBatch:
        buffer, width = run.buffer, len(known.names)
        kinds, count = run.kinds[rows], len(rows)
        markers = buffer[run.starts[rows] + 5]
        with_old = np.flatnonzero((markers == ord("K")) | (markers == ord("O")))
        new_at = run.starts[rows] + 6
        old: Cells | None = None
        if len(with_old):
            old, after = walk(buffer, new_at[with_old], width)
            new_at[with_old] = after + 1
        with_new = np.flatnonzero(kinds != pgoutput.DELETE)
        new, _ = walk(buffer, new_at[with_new], width)
        key_json = raw_keys = pa.nulls(count, pa.string())
        if old is not None:
            both = np.isin(with_old, with_new, assume_unique=True)
            if both.any():
                place = np.searchsorted(with_new, with_old[both])
                new.fill_unchanged(old.pick(both), place)
            key_json = raw_keys = self._old_keys(known, old, new, with_old, with_new, both, count)
            if known.has_converted_key:
                is_null = pa.array(raw_keys.is_null())
                old = _convert(known, old)
                texts = self._json(known, old.columns(known.key_at), [known.names[at] for at in known.key_at])
                key_json = pc.if_else(is_null, pa.scalar(None, pa.string()), _spread(texts, with_old, count))
        raw, new = new, _convert(known, new)
        row_json = _spread(self._json(known, new, known.names), with_new, count)
        unchanged = _spread(unchanged_names(new, known.names), with_new, count)
        if known.is_tracked:
            self._track(known, run, rows, raw, with_new, raw_keys, into)
        codes = np.select([kinds == pgoutput.INSERT, kinds == pgoutput.UPDATE], [0, 1], 2)
        return make_batch(
            self._split,
            known.table,
            ops=_OP_NAMES.take(pa.array(codes)),
            keys=key_json,
            rows=row_json,
            unchanged=unchanged,
            positions=run.positions[rows],
            ordinals=run.ordinals[rows],
            times=run.times[rows],
        )

    def _old_keys(
        self,
        known: KnownTable,
        old: Cells,
        new: Cells,
        with_old: Numbers,
        with_new: Numbers,
        both: Any,
        count: int,
    ) -> pa.Array:
        """Returns the keys before the change. Only deletes, and updates that changed the key, have a key before the
        change."""
        old_key = old.columns(known.key_at)
        if (old_key.kinds != TEXT).any():
            raise CaptureError(
                UPSTREAM_MISSING,
                f"a change of table {known.table} lacks the primary key of its row, because of the table's replica "
                "identity",
                hint=f"ALTER TABLE {known.table} REPLICA IDENTITY DEFAULT; then {AGAIN}",
            )
        names = [known.names[at] for at in known.key_at]
        texts = self._json(known, old_key, names)
        if both.any():
            place = np.searchsorted(with_new, with_old[both])
            after = self._json(known, new.columns(known.key_at).pick(place), names)
            same = pc.equal(texts.filter(pa.array(both)), after).to_numpy(zero_copy_only=False)
            is_same = np.zeros(len(with_old), dtype=bool)
            is_same[np.flatnonzero(both)] = same
            texts = pc.if_else(pa.array(is_same), pa.scalar(None, pa.string()), texts)
        return _spread(texts, with_old, count)

    def _track(
        self,
        known: KnownTable,
        run: _Run,
        rows: Numbers,
        new: Cells,
        with_new: Numbers,
        old_keys: pa.Array,
        into: Decoded,
    ) -> None:
        names = [known.names[at] for at in known.key_at]
        after = _spread(self._json(known, new.columns(known.key_at), names), with_new, len(rows)).to_pylist()
        lacks = np.zeros(len(rows), dtype=bool)
        lacks[with_new] = (new.kinds == ord("u")).any(axis=0)
        for xid, before, key, again in zip(
            run.xids[rows].tolist(), old_keys.to_pylist(), after, lacks.tolist(), strict=True
        ):
            keys = tuple(each for each in (before, key) if each is not None)
            into.tracked.append(TrackedChange(known.table, xid, keys, key if again else None, before is not None))

    def _json(self, known: KnownTable, cells: Cells, names: Sequence[str]) -> pa.Array:
        return json_of(known.table, cells, names, known.key)


@dataclass(slots=True)
class _Run:
    """A run of row messages in one buffer. Each array has one entry per message."""

    buffer: Bytes
    starts: Numbers
    kinds: Bytes
    positions: Numbers
    times: Numbers
    xids: Numbers
    ordinals: Numbers


def json_of(table: str, cells: Cells, names: Sequence[str], key: Iterable[str]) -> pa.Array:
    """Does the same as :func:`json_rows`, but the errors name the column and the row."""
    try:
        return json_rows(cells, names)
    except BrokenTupleError as error:
        row: int | None = getattr(error, "row", None)
        if row is None:
            raise
        for column, name in enumerate(names):
            try:
                (cells.value(column, row) or b"").decode()
            except UnicodeDecodeError:
                raise unreadable(table, name, _key_of(cells, names, key, row), "is not UTF-8") from error
        raise


def _convert(known: KnownTable, cells: Cells) -> Cells:
    return convert_cells(known.table, cells, known.names, known.key, known.converters)


def convert_cells(
    table: str,
    cells: Cells,
    names: Sequence[str],
    key: Iterable[str],
    converters: Mapping[int, Callable[[str], str]],
) -> Cells:
    """Does the same as :func:`converted`, but the errors name the column and the row."""
    try:
        return converted(cells, converters)
    except ValueError as error:
        if not hasattr(error, "cell"):
            raise
        column, row = error.cell
        shown = (cells.value(column, row) or b"").decode(errors="replace")[:60]
        raise unreadable(table, names[column], _key_of(cells, names, key, row), f'cannot be read: "{shown}"') from error


def unreadable(table: str, column: str, key: str, reason: str) -> CaptureError:
    """The error for a value that cannot be read."""
    return CaptureError(
        UPSTREAM_MISSING,
        f'column "{column}" of table {table}, row {key}: the value {reason}',
        hint=f"change the value upstream, or remove the column from the publication; then {AGAIN}",
    )


def _key_of(cells: Cells, names: Sequence[str], key: Iterable[str], row: int) -> str:
    shown = [
        f"{name} = {(cells.value(names.index(name), row) or b'').decode(errors='replace')}"
        for name in key
        if name in names
    ]
    return "(" + ", ".join(shown) + ")"


def _spread(values: pa.Array, at: Numbers, count: int) -> pa.Array:
    """Returns an array of length ``count``. The array has ``values`` at these ascending indexes, and NULL at all other
    indexes."""
    if len(at) == count:
        return values
    if not len(at):
        return pa.nulls(count, values.type)
    places = np.zeros(count, dtype=np.int64)
    places[at] = np.arange(len(at))
    is_null = np.ones(count, dtype=bool)
    is_null[at] = False
    return values.take(pa.array(places, mask=is_null))


def make_batch(
    split: str,
    table: str,
    *,
    ops: pa.Array,
    keys: pa.Array,
    rows: pa.Array,
    unchanged: pa.Array,
    positions: Numbers,
    ordinals: Numbers,
    times: Numbers,
) -> pa.RecordBatch:
    """Returns records of one table, with the columns of :func:`records_schema`."""
    count = len(positions)
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(split, pa.string()), count),
            pa.array(positions, pa.int64()),
            pa.array(ordinals, pa.int64()),
            pa.repeat(pa.scalar(table, pa.string()), count),
            ops,
            keys,
            rows,
            unchanged,
            pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        ],
        schema=records_schema(),
    )
