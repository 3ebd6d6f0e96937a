"""The interface of a connector that captures a database's changes. One reader reads all tables of a source.

A source has one split, the server's slot (MySQL: the server's binlog). A position is an increasing integer that denotes
the end of a committed transaction. A reader at a position has read all transactions that end at or before this
position. A batch never ends inside a transaction. While the reader streams changes, it reads each table's existing rows
in chunks, in the order of the primary key. The reader returns chunks and changes in one sequence.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from rw_sql.connectors.base import RESOLVE_TIMEOUT_SECONDS
from rw_sql.errors import UPSTREAM_MISSING, SqlError, near_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import pyarrow as pa

    from rw_sql.connectors.base import SplitState, UpstreamSplit
    from rw_sql.connectors.slot_details import SlotDetails
    from rw_sql.errors import ErrorCode

INSERT, UPDATE, DELETE, SNAPSHOT, TRUNCATE = "c", "u", "d", "r", "t"
"""The values of the column ``op`` in :attr:`Taken.records`. SNAPSHOT marks an existing row that a snapshot read."""

BATCH_BYTES = 128 << 20
"""The size in bytes at which a batch of :meth:`ChangeReader.take` ends, even if the batch has fewer rows than
requested. A single transaction may exceed this size."""


KEY_ORDER = "key order"
"""The name of the trait that stores the order of a table's keys, after the table's snapshot has begun. The trait
contains the collations that the key's columns had when the chunk that ends at :attr:`TableProgress.next_key` was read.
If the order of the keys has changed since then, the unread rows are no longer exactly the rows after this key."""


class CaptureError(SqlError):
    """Raised if changes cannot be read. The message contains the reason. If ``is_temporary`` is true, a retry with a
    new reader may succeed without any change upstream."""

    def __init__(self, kind: ErrorCode, message: str, *, hint: str | None = None, is_temporary: bool = False) -> None:
        super().__init__(kind, message, hint=hint)
        self.is_temporary = is_temporary


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamColumn:
    """A column of a database table. ``type`` is the column's type in the database's own notation. ``canonical`` is the
    rw_sql type that the column gets in a column list ``(*)``.

    If rw_sql has no equivalent type, ``canonical`` is None, and ``refusal`` contains the reason and a remedy.
    ``family`` is the name that the connector's module ``types`` gives to all types with the same text form. ``default``
    is the text of the column's default if the default is a constant. ``accepts`` is a function that returns true for
    each canonical type with which the column can be declared. If it is None, the column can be declared with
    ``canonical`` and with wider types.
    """

    name: str
    type: str
    canonical: str | None = None
    family: str = "other"
    refusal: str | None = None
    default: str | None = None
    is_nullable: bool = True
    is_generated: bool = False
    accepts: Callable[[str], bool] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTable:
    """A table as the database describes it. ``key`` lists the primary key's columns in the order of the key."""

    table: str
    columns: tuple[UpstreamColumn, ...]
    key: tuple[str, ...]
    rows_estimated: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProgress:
    """The progress of one table's snapshot. It is stored together with the rows that were read, in one commit.

    ``table`` is ``schema.table``. ``columns`` maps the known columns to the database's types; it is empty until the
    reader has read the table's definition. A column's type is empty if an earlier snapshot has left only the column's
    name. ``next_key`` is the last key read, as a JSON object; None before the first chunk. ``again`` lists the keys
    (JSON objects) of rows that the next chunk must re-read, because a change to such a row omitted a value that the
    snapshot had not read yet. ``identity`` changes if the table, or its entry in the publication, is dropped and
    recreated under the same name. ``traits`` are further properties of the upstream table. From the traits, the
    connector recognizes that the stream lacks changes to rows, or that the order of the keys has changed (KEY_ORDER).
    ``chunk_rows`` is the number of rows per chunk; if it is None, the reader adapts the number to the size of the rows.
    ``is_done`` is true if all rows were read, or if the table is read without a snapshot.

    If the snapshot has not begun, and tables of rw_sql keep the rows of an earlier snapshot, ``continues`` is the
    ``identity`` at the end of the earlier snapshot. The reader must then return all changes after its position, because
    a snapshot contains no deletes. If both ``identity`` and ``continues`` are None, the reader may omit the changes
    that the snapshot contains. ``kept_for`` lists the tables of rw_sql that keep the rows of the earlier snapshot, in
    the notation of a snapshot's name. If ``keeps_times`` is true, these tables have received every change. A row that
    is read again then keeps its stored time.

    ``has_live_tables`` is true if a table of rw_sql reads only changes, without a snapshot. The reader may then omit
    only the changes up to the position ``live_from``: the end of the server's log when the first of these tables was
    created (0 if unknown). ``is_repeated`` is true if markers enclose the snapshot's rows in the source's log.
    ``is_repeated`` is None if rw_sql 0.1.0 stored the progress.
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
    traits: Mapping[str, str] = field(default_factory=dict)
    continues: str | None = None
    is_repeated: bool | None = None
    kept_for: str = ""
    keeps_times: bool = False
    has_live_tables: bool = False
    live_from: int = 0

    @property
    def key_order(self) -> str | None:
        """The trait KEY_ORDER; None if the order of the keys is not known."""
        return self.traits.get(KEY_ORDER)

    @property
    def ignores_columns(self) -> bool:
        """True if changes to the columns from before the snapshot are ignored. This is the case if every table of
        rw_sql gets all values again, or if only the names of the columns are known."""
        return self.continues is not None and (not self.has_live_tables or "" in self.columns.values())

    def to_json(self) -> str:
        """The progress as JSON with sorted keys."""
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> TableProgress:
        """Parses the text of :meth:`to_json`. Fields that the text lacks get their default values."""
        made: dict[str, Any] = json.loads(text)
        made |= {key: tuple(made.get(key, ())) for key in ("key_columns", "again")}
        return replace(cls(table=made.pop("table")), **made)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """A change to the columns of an upstream table. ``position`` is the end of the first transaction with the new
    columns.

    ``added``, ``dropped`` and ``retyped`` map column names to types in the database's notation. ``retyped`` has the new
    type of a column, and ``old`` has its previous type. A renamed column appears as one dropped and one added column.
    """

    table: str
    position: int
    added: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)
    retyped: Mapping[str, str] = field(default_factory=dict)
    old: Mapping[str, str] = field(default_factory=dict)


def schema_change(table: str, before: Mapping[str, str], now: Mapping[str, str], position: int) -> SchemaChange | None:
    """The change from the columns in ``before`` (name → type) to the columns in ``now``; None if the columns are equal.
    A column whose type in ``before`` is empty counts as unchanged, whatever its type in ``now`` is."""
    retyped = {column: kind for column, kind in now.items() if before.get(column, "") not in ("", kind)}
    added = {column: kind for column, kind in now.items() if column not in before}
    dropped = {column: kind for column, kind in before.items() if column not in now}
    if not (added or dropped or retyped):
        return None
    return SchemaChange(
        table=table,
        position=position,
        added=added,
        dropped=dropped,
        retyped=retyped,
        old={column: before[column] for column in retyped},
    )


def other_key(table: str, before: Sequence[str], now: Sequence[str]) -> CaptureError:
    """The error for a table whose primary key differs from the key with which its rows were read."""
    return CaptureError(
        UPSTREAM_MISSING,
        f"the primary key of table {table} is ({', '.join(now)}) now, but was ({', '.join(before)})",
        hint=f"drop the tables of rw_sql that read it, and create them again: CREATE TABLE … (*) FROM SOURCE_NAME "
        f"TABLE '{table}'",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The result of :meth:`ChangeReader.take`: whole transactions and whole chunks of snapshots.

    ``records`` has the columns of :func:`records_schema`. ``position`` is the position after the result. It may be
    after the last record, because some transactions have no record. ``progress`` covers all tables of the reader.
    ``end`` is the end of the server's log, according to the server's last report. ``transactions`` is the number of
    transactions that were read, including those without a record.
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
    """A requirement that the server does not meet. ``message`` is a sentence about the problem, and ``hint`` is the
    statement or the setting that solves it. ``check`` is the category of the requirement: server, role, slot,
    publication, table or column. ``is_for_slot`` is true if the server already has its maximum number of slots. In this
    case, dropping a slot solves the problem."""

    check: Literal["server", "role", "slot", "publication", "table", "column"]
    message: str
    hint: str
    is_for_slot: bool = False


def unread_column(table: str, name: str, declared: str, there: Collection[str]) -> Lack:
    """The :class:`Lack` for a column that the changes of a table do not contain. ``there`` are the table's columns. If
    the column is one of them, the database generates its values, and the message says so. Otherwise, the message says
    that the table has no such column."""
    if name in there:
        return Lack(
            check="column",
            message=f"Column '{name}' of table {table} is generated, so it is not in the stream",
            hint=f"omit it, or compute it here: {name} {declared} AS …",
        )
    near = near_names(name, there)
    return Lack(
        check="column",
        message=f"Column '{name}' not found in the upstream database: table {table} has no such column",
        hint=(f'did you mean "{near[0]}"? ' if near else "") + "its columns: " + ", ".join(sorted(there)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeCount:
    """The number of those transactions between two positions that changed a table of the source, and the number of
    their changes.

    ``first_end`` is the position after the first of these transactions; None if there is no such transaction. If
    ``is_exact`` is false, the numbers are lower limits, because the upstream did not send all transactions in time.
    """

    transactions: int
    changes: int
    first_end: int | None = None
    is_exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The objects that :meth:`ChangeConnector.prepare` found or created upstream. :meth:`ChangeConnector.release` may
    drop the objects that ``prepare`` created. ``state`` is the slot's position. ``end`` is the end of the log after the
    call. The server decodes each change with the publication as it was at the position of the change. If the slot is
    older than the publication, the publication is known to exist only from ``end`` on. Therefore, a new source must
    begin at ``end``."""

    state: SplitState
    made_slot: bool
    made_publication: bool
    end: int = 0
    added_tables: tuple[str, ...] = ()


class ChangeReader(Protocol):
    """Reads the changes to a source's tables over one connection. One thread at a time calls its methods, except
    :meth:`close`, which any thread may call."""

    def open(self, position: SplitState, tables: Mapping[str, TableProgress], *, reached: int | None = None) -> None:
        """Checks that the server still has all changes after ``position``, and starts to read them.

        ``reached`` is the position that earlier readers reached; None if it is unknown, or if the tables are read
        again. ``reached`` is before ``position`` if a statement has moved the source forward. The log between the two
        positions may then contain changes of a transaction that is committed after ``position``, such as an XA
        transaction of MySQL.

        Raises CaptureError if the slot is missing, recreated, invalidated, in use, or ahead of the position. Also
        raises CaptureError if the position is from another server or timeline, if the publication lacks a table, or if
        a table has no key.
        """
        ...

    def take(self, max_rows: int, wait_seconds: float) -> Taken:
        """Returns whole transactions and whole chunks. Waits until the result has at least ``max_rows`` rows or
        BATCH_BYTES bytes, or until ``wait_seconds`` have passed. A single transaction may exceed both limits of size.
        Raises CaptureError if the connection is lost. The results of earlier calls stay valid."""
        ...

    def acknowledge(self, position: int) -> None:
        """Allows the server to discard its log up to this position. The caller must have committed all changes up to
        this position. The caller may repeat the call with the same position."""
        ...

    def set_tables(self, tables: Mapping[str, TableProgress]) -> None:
        """Replaces the set of tables while the reader runs. New tables begin with their snapshot, and removed tables
        are no longer read. The progress of tables that are already being read stays unchanged. Raises CaptureError like
        :meth:`open`."""
        ...

    def set_rate_limit(self, rows_per_second: float | None) -> None:
        """Limits the number of rows per second that snapshots read. 0 pauses the snapshots, and None removes the
        limit."""
        ...

    def close(self) -> None:
        """Closes the connections. A call of :meth:`take` that is in progress then returns or raises CaptureError."""
        ...


@runtime_checkable
class ChangeConnector(Protocol):
    """A connector whose sources are read by a :class:`ChangeReader`. ``options`` has the same meaning as in
    :class:`rw_sql.connectors.base.Connector`, but :meth:`filled_in` has added missing names."""

    passed_text: str
    """The beginning of the message for a position that is too old. The first position that the upstream still has
    follows this text.
    """
    kept_text: str
    """A clause for a notice. The clause describes what happens to the upstream's log while a source is paused."""
    positions_count_bytes: bool
    """True if the difference of two positions is the number of bytes between them in the upstream's log."""
    table_prefix: tuple[str, str]
    """The name of an upstream table has two parts. This pair contains the word for the first part, and an example of
    it."""

    def plain_name(self, table: str) -> str:
        """Returns a table's name with only the necessary quotes. All spellings of one name give the same result."""
        ...

    def change_reader(self, options: Mapping[str, str]) -> ChangeReader:
        """A reader for one run. Does not contact the upstream yet."""
        ...

    def show_position(self, position: int) -> str:
        """``position`` in the database's own notation."""
        ...

    def explain_other(self, before: SplitState, now: UpstreamSplit) -> str:
        """Returns one clause that explains why the position ``before``, which comes from another upstream, is not valid
        in the upstream ``now``."""
        ...

    def filled_in(self, options: Mapping[str, str], unique: str) -> dict[str, str]:
        """The options, with generated names for missing ``slot.name`` and ``publication.name``. ``unique`` is the
        variable part of these names: letters and digits."""
        ...

    def describe_table(
        self, options: Mapping[str, str], table: str, *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> UpstreamTable:
        """The columns and the key of ``schema.table``. Raises CaptureError if the table is missing or unreadable."""
        ...

    def find_lacks(
        self,
        options: Mapping[str, str],
        tables: Mapping[str, Mapping[str, str] | None],
        *,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> tuple[Lack, ...]:
        """The requirements of this source and these tables that the server does not meet. ``tables`` maps each table to
        its declared columns (name → canonical type), or to None for all columns. Raises CaptureError if the server does
        not respond."""
        ...

    def owns_publication(self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS) -> bool | None:
        """True if :meth:`prepare` has created the publication for this source, according to a mark on the server. None
        if the publication is missing and :meth:`prepare` would create it. Otherwise False. Raises CaptureError."""
        ...

    def prepare(
        self,
        options: Mapping[str, str],
        tables: Sequence[str],
        *,
        awaits_publication: bool = False,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> Prepared:
        """Creates the slot and the publication if they are missing. Adds the tables to the publication. The caller may
        repeat the call. ``awaits_publication`` is true if an earlier call may have created the publication before it
        failed, and nothing has been read since then. Raises CaptureError."""
        ...

    def release(
        self,
        options: Mapping[str, str],
        *,
        slot: bool,
        publication: bool,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> tuple[str, ...]:
        """If ``slot`` is true, drops the slot. If ``publication`` is true, drops the publication. Objects that do not
        exist are ignored. The caller passes True only for an object that :meth:`prepare` created.

        Returns a notice for each object that cannot be dropped with these options. The notice shows the statement with
        which a user can drop the object. Raises a temporary CaptureError if the server does not respond, or if another
        reader uses the slot. The caller must then repeat the call.
        """
        ...

    def slot_details(
        self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> SlotDetails | None:
        """The current state of the slot; None if the slot does not exist. Raises CaptureError if the server does not
        respond."""
        ...

    def check_position(
        self, options: Mapping[str, str], position: SplitState, *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> None:
        """Raises CaptureError if a reader cannot continue at ``position``, or if the server does not respond. The error
        is the one that :meth:`ChangeReader.open` would raise for the slot and the position.
        """
        ...

    def slot_removal(self, options: Mapping[str, str]) -> str | None:
        """The statement that drops the slot and that a user must run on the server; None if the server has no
        slots."""
        ...

    def count_changes(
        self,
        options: Mapping[str, str],
        start: int,
        end: int,
        tables: Collection[str],
        *,
        only_first: bool = False,
        includes_earlier: bool = True,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> ChangeCount | None:
        """Counts the transactions that end after ``start`` and at or before ``end``, and that changed one of the
        upstream tables ``tables``. If ``only_first`` is true, counts only the first of these transactions. If the
        upstream itself selects tables, as PostgreSQL's publication does, ignores ``tables`` and counts the changes to
        the selected tables. If ``includes_earlier`` is false, does not count transactions whose changes precede
        ``start`` in the log: a reader that a move takes back to ``start`` does not read them again. Returns None if the
        upstream cannot count them, for example while the source is being read, or after some of the transactions were
        removed.
        """
        ...


def records_schema() -> pa.Schema:
    """The columns of :attr:`Taken.records`.

    ``op`` is INSERT, UPDATE, DELETE, SNAPSHOT or TRUNCATE. ``key`` and ``row`` are null or JSON objects that map column
    names to values in the database's text form. ``key`` is the key before the change. It is set for deletes and for
    updates that changed the key. ``unchanged`` lists columns that the ``row`` of an update lacks, because the database
    does not send large values that did not change.
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
