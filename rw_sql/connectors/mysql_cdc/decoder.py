"""Decodes rows of the binary log to records. The description of the table determines how its rows are decoded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from rw_sql.connectors.changes import (
    BATCH_BYTES,
    DELETE,
    INSERT,
    SNAPSHOT,
    TRUNCATE,
    UPDATE,
    CaptureError,
    records_schema,
)
from rw_sql.connectors.mysql_cdc import events
from rw_sql.connectors.mysql_cdc.server import AGAIN
from rw_sql.connectors.mysql_cdc.templates import Template
from rw_sql.connectors.mysql_cdc.values import reader_of, skip_of
from rw_sql.errors import UPSTREAM_MISSING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rw_sql.connectors.mysql_cdc.events import RowsPart, StreamColumn
    from rw_sql.connectors.mysql_cdc.values import Reader

_MICROSECONDS = 1_000_000


@dataclass(slots=True)
class KnownTable:
    """A table of the stream. ``table`` is the table's name in the records, and ``key`` are the columns of the table's
    primary key.

    ``names`` are the columns in the log's order. The columns in ``left_out``, such as generated columns, are not in the
    records.
    """

    table: str
    columns: tuple[StreamColumn, ...]
    names: tuple[str, ...]
    readers: tuple[Reader, ...]
    key: tuple[str, ...]
    left_out: frozenset[str] = frozenset()
    template: Template = field(init=False)
    is_kept: tuple[bool, ...] = field(init=False)
    key_steps: tuple[tuple[Reader | None, Callable[[bytes, int], int]], ...] = field(init=False)
    key_order: tuple[int, ...] = field(init=False)
    has_all: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_kept = tuple(name not in self.left_out for name in self.names)
        self.key_steps = tuple(
            (read if name in self.key else None, skip_of(column))
            for name, column, read in zip(self.names, self.columns, self.readers, strict=True)
        )
        self.key_order = tuple([name for name in self.names if name in self.key].index(name) for name in self.key)
        self.template = Template([name for name in self.names if name not in self.left_out], self.key)
        self.has_all = not self.left_out


class Records:
    """The records of a batch, in the order in which they are added. Each column of :func:`records_schema` is a list."""

    def __init__(self, split: str) -> None:
        self._split = split
        self.tables: list[str] = []
        self.ops: list[str] = []
        self.keys: list[str | None] = []
        self.rows: list[str | None] = []
        self.positions: list[int] = []
        self.ordinals: list[int] = []
        self.times: list[int] = []
        self.size = 0

    def __len__(self) -> int:
        return len(self.ops)

    def add(
        self, table: str, op: str, key: str | None, row: str | None, position: int, ordinal: int, time: int
    ) -> None:
        """Adds a record."""
        self.tables.append(table)
        self.ops.append(op)
        self.keys.append(key)
        self.rows.append(row)
        self.positions.append(position)
        self.ordinals.append(ordinal)
        self.times.append(time)
        self.size += len(row) if row is not None else 0

    def has_room(self, rows: int) -> bool:
        """True if the batch has fewer than ``rows`` records, and these records together have fewer than BATCH_BYTES
        characters."""
        return len(self.ops) < rows and self.size < BATCH_BYTES

    def cut(self, count: int) -> None:
        """Keeps the first ``count`` records and removes the others."""
        for column in (self.tables, self.ops, self.keys, self.rows, self.positions, self.ordinals, self.times):
            del column[count:]
        self.size = sum(len(row) for row in self.rows if row is not None)

    def truncate(self, table: str, position: int, ordinal: int, seconds: int) -> None:
        """Adds the record of a TRUNCATE."""
        self.add(table, TRUNCATE, None, None, position, ordinal, seconds * _MICROSECONDS)

    def snapshot(self, table: str, rows: Sequence[str], position: int, first: int) -> None:
        """Adds the records of a snapshot's chunk; ``first`` is the ``_rw_index`` of the first record."""
        count = len(rows)
        self.tables += [table] * count
        self.ops += [SNAPSHOT] * count
        self.keys += [None] * count
        self.rows += rows
        self.positions += [position] * count
        self.ordinals += range(first, first + count)
        self.times += [0] * count
        self.size += sum(map(len, rows))

    def as_table(self) -> pa.Table:
        """The columns of :func:`records_schema`."""
        count = len(self.ops)
        return pa.Table.from_arrays(
            [
                pa.repeat(pa.scalar(self._split, pa.string()), count),
                pa.array(self.positions, pa.int64()),
                pa.array(self.ordinals, pa.int64()),
                pa.array(self.tables, pa.string()),
                pa.array(self.ops, pa.string()),
                pa.array(self.keys, pa.string()),
                pa.array(self.rows, pa.string()),
                pa.nulls(count, pa.list_(pa.string())),
                pa.array(self.times, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
            ],
            schema=records_schema(),
        )


def decode_rows(
    known: KnownTable,
    part: RowsPart,
    into: Records,
    position: int,
    ordinal: int,
    seconds: int,
    touched: dict[str, int] | None,
) -> int:
    """Adds the rows of an event to ``into``, and returns the number of these rows. If ``touched`` is given, adds the
    keys of the rows to ``touched``, each key with ``position``.

    Raises CaptureError for a row that cannot be read.
    """
    data, at, size = part.data, part.at, len(part.data)
    time = seconds * _MICROSECONDS
    template = known.template
    count = ordinal
    if not part.is_full or part.count != len(known.names):
        raise CaptureError(
            UPSTREAM_MISSING,
            f"a change of table {known.table} does not contain all columns of its row",
            hint=f"SET GLOBAL binlog_row_image = 'FULL', for sessions that set it too; then {AGAIN}",
        )
    while at < size:
        before: str | None = None
        row: str | None = None
        if part.what == events.UPDATE:
            before, at = _key(known, data, at)
        if part.what == events.DELETE:
            before, at = _key(known, data, at)
            key = before
            op = DELETE
        else:
            cells, at = _cells(known, data, at)
            row, key = template.row(cells), template.key(cells)
            op = INSERT if part.what == events.WRITE else UPDATE
        if touched is not None:
            touched[key] = position
            if before is not None:
                touched[before] = position
        into.add(known.table, op, before if op == DELETE or before != key else None, row, position, count, time)
        count += 1
    return count - ordinal


def _key(known: KnownTable, data: bytes, at: int) -> tuple[str, int]:
    """Returns the key of a row, and the offset of the row's end."""
    width = (len(known.readers) + 7) >> 3
    nulls = int.from_bytes(data[at : at + width], "little")
    start = at
    at += width
    made: list[str] = []
    try:
        for read, skip in known.key_steps:
            if nulls & 1:
                pass
            elif read is None:
                at = skip(data, at)
            else:
                text, at = read(data, at)
                made.append(text)
            nulls >>= 1
    except ValueError as error:
        raise unreadable(known, data, start, error) from error
    return known.template.key_of([made[place] for place in known.key_order]), at


def _cells(known: KnownTable, data: bytes, at: int) -> tuple[list[str], int]:
    """Returns those cells of a row that the records contain, and the offset of the row's end."""
    width = (len(known.readers) + 7) >> 3
    nulls = int.from_bytes(data[at : at + width], "little")
    start = at
    at += width
    made: list[str] = []
    number = 0
    try:
        if not nulls and known.has_all:
            for read in known.readers:
                text, at = read(data, at)
                made.append(text)
            return made, at
        for read, is_kept in zip(known.readers, known.is_kept, strict=True):
            if nulls >> number & 1:
                text = "null"
            else:
                text, at = read(data, at)
            if is_kept:
                made.append(text)
            number += 1
    except ValueError as error:
        raise unreadable(known, data, start, error) from error
    return made, at


def unreadable(known: KnownTable, data: bytes, start: int, error: ValueError) -> CaptureError:
    """The error for a value that cannot be read. The error's message names the column and the key of the row."""
    at = start + ((len(known.readers) + 7) >> 3)
    nulls = int.from_bytes(data[start:at], "little")
    column = ""
    shown: dict[str, str] = {}
    for number, (name, read) in enumerate(zip(known.names, known.readers, strict=True)):
        if nulls >> number & 1:
            continue
        try:
            text, at = read(data, at)
        except ValueError:
            column = column or name
            raw = reader_of(known.columns[number], "", lambda part: part.decode(errors="replace"))
            try:
                text, at = raw(data, at)
            except ValueError:
                break
        if name in known.key:
            shown[name] = text.strip('"')
    row = ", ".join(f"{name} = {shown[name]}" for name in known.key if name in shown)
    return CaptureError(
        UPSTREAM_MISSING,
        f'column "{column}" of table {known.table}, row ({row}): the value cannot be read: {error}',
        hint=f"change the value upstream; then {AGAIN}",
    )
