"""The interface of a connector that captures a database's changes: one reader for all tables of a source.

A source has one split, the server's slot (MySQL: its binlog). A position is the end of a committed transaction, as a
whole number that grows: everything up to it has been read, and the next transaction ends after it. Batches end on
commits. Each table is first read in chunks of its key, beside the stream; chunks and changes leave in one order.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from rw_sql.connectors.base import RESOLVE_TIMEOUT_SECONDS
from rw_sql.errors import SqlError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from rw_sql.connectors.base import SplitState
    from rw_sql.errors import ErrorCode

INSERT, UPDATE, DELETE, SNAPSHOT, TRUNCATE = "c", "u", "d", "r", "t"
"""The values of ``op`` in :attr:`Taken.records`."""


class CaptureError(SqlError):
    """Why changes cannot be read. ``is_temporary``: a new reader may succeed without any change upstream."""

    def __init__(self, kind: ErrorCode, message: str, *, hint: str | None = None, is_temporary: bool = False) -> None:
        super().__init__(kind, message, hint=hint)
        self.is_temporary = is_temporary


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamColumn:
    """A column as the database has it: its type as the database writes it, and rw_sql's canonical type for ``(*)``.

    ``canonical`` is None if rw_sql has no type for it, and ``refusal`` then says why and what to do. ``family`` groups
    types with the same text form (see ``types`` of the connector). ``default`` is a constant default, as text. ``also``
    are further types, besides wider ones, that a column can be declared with.
    """

    name: str
    type: str
    canonical: str | None = None
    family: str = "other"
    refusal: str | None = None
    default: str | None = None
    is_nullable: bool = True
    is_generated: bool = False
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTable:
    """A table as the database describes it. ``key`` are the columns of its primary key, in the key's order."""

    table: str
    columns: tuple[UpstreamColumn, ...]
    key: tuple[str, ...]
    rows_estimated: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProgress:
    """How far the snapshot of one table is. It is stored in the same commit as the rows that it counts.

    ``table`` is ``schema.table``. ``columns`` maps the known columns to the database's types; empty until the reader
    has seen the table. ``next_key`` is the JSON object of the last key read, None before the first chunk. ``again``
    are keys (JSON objects) of rows that the next chunk reads once more, because a change of theirs left out a value
    that the snapshot had not read. ``identity`` tells the table, and its part in the publication, from later ones of
    the same name. ``chunk_rows`` is the number of rows of a chunk; with None the reader adapts it to the rows' size. A
    table without a snapshot begins with ``is_done``.
    """

    table: str
    columns: Mapping[str, str] = field(default_factory=dict)
    key_columns: tuple[str, ...] = ()
    identity: str | None = None
    next_key: str | None = None
    again: tuple[str, ...] = ()
    is_done: bool = False
    rows_done: int = 0
    rows_estimated: int | None = None
    chunk_rows: int | None = None

    def to_json(self) -> str:
        """The progress as JSON, keys sorted."""
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> TableProgress:
        """The progress that :meth:`to_json` wrote; fields that it lacks have their defaults."""
        made: dict[str, Any] = json.loads(text)
        for key in ("key_columns", "again"):
            made[key] = tuple(made.get(key, ()))
        return replace(cls(table=made.pop("table")), **made)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """A table's columns changed upstream. ``position`` is the end of the first transaction with the new columns.

    ``added``, ``dropped`` and ``retyped`` map column names to types as the database writes them; of a retyped column it
    is the new one, and ``old`` has the one before. A column that was renamed is dropped and added.
    """

    table: str
    position: int
    added: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)
    retyped: Mapping[str, str] = field(default_factory=dict)
    old: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a reader returns: whole transactions and finished chunks.

    ``records`` has the columns of :func:`records_schema`. ``position`` may be newer than the last record.
    ``progress`` has all tables of the reader. ``end`` is the server's end as far as known, ``transactions`` the number
    of transactions that were read (with or without a record).
    """

    records: pa.Table
    position: int
    progress: Mapping[str, TableProgress]
    changes: tuple[SchemaChange, ...] = ()
    notices: tuple[str, ...] = ()
    transactions: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """Something that the server lacks: one sentence, and the statement (or setting) that mends it.

    ``check`` groups them: server, role, slot, publication, table, column.
    """

    check: Literal["server", "role", "slot", "publication", "table", "column"]
    message: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotDetails:
    """The slot as SHOW SOURCE SPLITS shows it. ``retained_bytes`` is the log that the server keeps for it.

    ``lag_bytes`` is the log after the acknowledged position. ``status`` is PostgreSQL's ``wal_status``: reserved,
    extended, unreserved or lost. ``safe_bytes`` is how much more log may be written before the slot may be lost; None
    without a limit.

    MySQL has no slots: ``name`` is the oldest file of its log, ``status`` how long it keeps files. ``files`` are the
    first position and the bytes of each file, and ``per_byte`` how many positions a byte has.
    """

    name: str
    acknowledged: int | None
    restart: int | None
    end: int
    status: str | None
    retained_bytes: int | None
    lag_bytes: int | None
    safe_bytes: int | None
    active_pid: int | None
    cluster: str
    incarnation: str | None
    files: tuple[tuple[int, int], ...] = ()
    per_byte: int = 1

    def bytes_behind(self, position: int) -> int:
        """The bytes of the server's log between a position and its end."""
        if not self.files:
            return max(0, self.end - position)
        firsts = [first for first, _ in self.files[1:]]
        behind = 0
        for (first, size), after in zip(self.files, [*firsts, None], strict=True):
            if after is None or position < after:
                behind += max(0, size - max(0, position - first) // self.per_byte)
        return behind


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What :meth:`ChangeConnector.prepare` found or made upstream. What it made, :meth:`ChangeConnector.release` may
    drop. ``state`` is the slot's position. ``end`` is the end of the log afterwards: a new source that reads from a
    slot older than its publication must begin there, because the server looks for the publication where the log is
    read.
    """

    state: SplitState
    made_slot: bool
    made_publication: bool
    end: int = 0
    added_tables: tuple[str, ...] = ()


class ChangeReader(Protocol):
    """Reads the changes of a source's tables over one connection. One thread calls it; :meth:`close` may come from
    another."""

    def open(self, position: SplitState, tables: Mapping[str, TableProgress]) -> None:
        """Checks that the server still has everything after the position, and starts to read there.

        Raises CaptureError: the slot is missing, lost, ahead of the position, in use or another one; the server is
        another one or on another timeline; the publication lacks a table; a table lacks a key.
        """
        ...

    def take(self, max_rows: int, wait_seconds: float) -> Taken:
        """Whole transactions and chunks, until ``max_rows`` or more are there or the time is over.

        One transaction may have more rows. Raises CaptureError with the reason if the connection broke or the server
        ended it; what had been taken before stays valid.
        """
        ...

    def acknowledge(self, position: int) -> None:
        """Allows the server to forget everything up to this position, which must have been committed. Repeatable."""
        ...

    def set_tables(self, tables: Mapping[str, TableProgress]) -> None:
        """Replaces the tables while it reads: new ones begin with their snapshot, missing ones are left out.

        The progress of a table that it already reads is not changed. Raises CaptureError as :meth:`open`.
        """
        ...

    def set_rate_limit(self, rows_per_second: float | None) -> None:
        """Limits the rows per second of snapshots; 0 pauses them, None removes the limit."""
        ...

    def close(self) -> None:
        """Ends the connections; a :meth:`take` in progress returns or raises."""
        ...


@runtime_checkable
class ChangeConnector(Protocol):
    """A connector whose sources are read by a :class:`ChangeReader`. Options are as for
    :class:`rw_sql.connectors.base.Connector`, with ``slot.name`` and ``publication.name`` filled in."""

    def change_reader(self, options: Mapping[str, str]) -> ChangeReader:
        """A reader for one run. Does not contact the upstream yet."""
        ...

    def show_position(self, position: int) -> str:
        """A position as the database writes it."""
        ...

    def filled_in(self, options: Mapping[str, str], unique: str) -> dict[str, str]:
        """The options with generated names where they are missing: ``unique`` is a word of letters and digits."""
        ...

    def describe_table(
        self, options: Mapping[str, str], table: str, *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> UpstreamTable:
        """The columns and the key of ``schema.table``. Raises CaptureError if it is missing or unreadable."""
        ...

    def find_lacks(
        self,
        options: Mapping[str, str],
        tables: Mapping[str, Mapping[str, str] | None],
        *,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> tuple[Lack, ...]:
        """What the server lacks for this source and these tables (with their declared columns, name → canonical type;
        None: all). Raises CaptureError if the server does not answer."""
        ...

    def prepare(
        self, options: Mapping[str, str], tables: Sequence[str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> Prepared:
        """Makes the slot and the publication if they are missing, and adds the tables to the publication.

        Running it twice changes nothing more. Raises CaptureError.
        """
        ...

    def release(
        self,
        options: Mapping[str, str],
        *,
        slot: bool,
        publication: bool,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> tuple[str, ...]:
        """Drops the slot and the publication, if they exist; the caller passes True only for what :meth:`prepare` made.

        Returns a notice for each thing that could not be dropped, with the statement that drops it.
        """
        ...

    def slot_details(
        self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> SlotDetails | None:
        """The slot now; None if it does not exist. Raises CaptureError if the server does not answer."""
        ...


def records_schema() -> pa.Schema:
    """The columns of :attr:`Taken.records`.

    ``key`` and ``row`` are JSON objects from column names to the database's text, or null. ``key`` is the key before
    the change, for a delete and for an update that changed the key. ``unchanged`` are columns that an update left out
    of ``row`` because their (large) value stayed as it was.
    """
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("_rw_split", pa.string(), nullable=False),
            pa.field("_rw_offset", pa.int64(), nullable=False),
            pa.field("_rw_index", pa.int64(), nullable=False),
            pa.field("table", pa.string(), nullable=False),
            pa.field("op", pa.string(), nullable=False),
            pa.field("key", pa.string()),
            pa.field("row", pa.string()),
            pa.field("unchanged", pa.list_(pa.string())),
            pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        ]
    )
