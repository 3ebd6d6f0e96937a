"""Determines the readers of a source: one shared reader, or a direct reader for each view. Also defines how the reader
of a change data capture source reads the source's upstream tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.errors import SPLITS_UNKNOWN, SqlError
from rw_sql.metastore.records import (
    ForgetSplitStates,
    MaterializedViewRecord,
    RebuildRecord,
    SinkRecord,
    UnassignSplits,
)
from rw_sql.model.job_ids import fragment_object, ingest_fragment, reader_fragment, view_job
from rw_sql.model.pauses import pauses_of
from rw_sql.syntax.lexing.identifiers import sql_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change, ObjectRecord, SourceRecord

_USERS = (MaterializedViewRecord, SinkRecord, RebuildRecord)

UNREAD = "no view reads the source yet: each view begins at scan.startup.mode when the view is created"
"""The status of a source that is not shared and has no reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One reader of a source. ``fragment`` is the id of the fragment with the reader's splits and positions. ``job`` is
    the id of the job that runs the reader.

    ``view`` is the view whose direct reader this is; None for a shared reader.
    """

    source: SourceRecord
    fragment: str
    job: str
    view: MaterializedViewRecord | None = None

    @property
    def label(self) -> str:
        """The reader's name in previews. It contains the source's name and, for a direct reader, the view's name."""
        return f"source {self.source.name}" + (f", read by {self.view.name}" if self.view is not None else "")

    def dependents(self, snapshot: Snapshot) -> tuple[ObjectRecord, ...]:
        """The objects that directly or indirectly receive this reader's records, in creation order."""
        if self.view is None:
            return snapshot.dependents_of(self.source.id)
        return (self.view, *snapshot.dependents_of(self.view.id))


def readers_of(snapshot: Snapshot, source: SourceRecord) -> tuple[Reader, ...]:
    """The readers of a source.

    A shared source has exactly one reader, even while this reader does not run. A source that is not shared has one
    reader for each view that reads the source.
    """
    if source.is_shared:
        fragment = ingest_fragment(source.id)
        return (Reader(source=source, fragment=fragment, job=fragment),)
    return tuple(
        Reader(source=source, fragment=reader_fragment(view.id, source.id), job=view_job(view.id), view=view)
        for view in snapshot.readers_of(source.id)
        if isinstance(view, MaterializedViewRecord)
    )


def only_fragment(snapshot: Snapshot, source: SourceRecord, span: Span) -> str:
    """The id of the only fragment that has positions of a source.

    Raises SqlError if there is no such fragment. Also raises SqlError if there are several fragments, because their
    positions may differ.
    """
    readers = readers_of(snapshot, source)
    if len(readers) != 1:
        views = ", ".join(reader.view.name for reader in readers if reader.view is not None)
        raise SqlError(
            SPLITS_UNKNOWN,
            f'source "{source.name}" has no single position: '
            + (f"{views} read it separately" if views else "no view reads it yet"),
            span=span,
            hint=f"SHOW SOURCE SPLITS {sql_name(source.name)} shows all positions; name the offsets with VALUES",
        )
    return readers[0].fragment


def unread(source: SourceRecord) -> Reader:
    """Returns a reader without splits. It stands for the readers of a source that is not shared and has no reader
    yet."""
    fragment = ingest_fragment(source.id)
    return Reader(source=source, fragment=fragment, job=fragment)


def is_read(snapshot: Snapshot, source: SourceRecord) -> bool:
    """True if a table, view, sink or rebuild reads the source, or if the source's ``keeps_reader`` is true, which makes
    its reader run even if no object reads the source."""
    return source.keeps_reader or any(isinstance(user, _USERS) for user in snapshot.users_of(source.id))


def is_running(snapshot: Snapshot, source: SourceRecord) -> bool:
    """True if :func:`is_read` is true for the source, and the source is not paused. The result does not depend on the
    rate limit, even if it is 0."""
    return is_read(snapshot, source) and not pauses_of(snapshot, source.id)


def newest_change(snapshot: Snapshot, source: SourceRecord, fragment: str | None = None) -> int:
    """The last epoch that changed a source, its connection, its secrets, or the splits or positions of one of its
    readers. ``fragment`` is the id of this reader's fragment; None stands for the shared reader."""
    return max(
        snapshot.fragment_epoch(ingest_fragment(source.id) if fragment is None else fragment),
        *(snapshot.object_epoch(id_) for id_ in (source.id, *source.uses)),
    )


def forget_fragments(snapshot: Snapshot, dropped: Iterable[int]) -> tuple[Change, ...]:
    """The changes that remove the assigned splits and the positions of the direct readers of dropped views."""
    gone = set(dropped)
    changes: list[Change] = []
    for fragment in sorted({*snapshot.assigned, *snapshot.stored}):
        if ":" in fragment and fragment_object(fragment) in gone:
            changes.append(UnassignSplits(fragment=fragment, splits=tuple(snapshot.splits(fragment))))
            changes.append(ForgetSplitStates(fragment=fragment, splits=tuple(snapshot.states(fragment))))
    return tuple(changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRead:
    """Describes which rows of an upstream table the table with the id ``table`` needs.

    ``reset`` is the epoch of the last statement that made the source repeat the snapshots of its tables; 0 if there was
    no such statement after the table's creation. If columns were added to the table, ``columns`` is the number of all
    columns of the table, including dropped columns. Otherwise, ``columns`` is 0. ``last_id`` is the table's id. If
    columns were added, it is instead an id that is greater than the ids of all objects that were created before the
    last addition. If ``has_snapshot`` is false, the table needs only changes, not the existing rows.
    """

    table: int
    reset: int = 0
    columns: int = 0
    has_snapshot: bool = True
    last_id: int = 0

    @property
    def is_repeated(self) -> bool:
        """True if the table may already have rows when its snapshot begins, because the snapshot repeats an earlier
        snapshot."""
        return self.reset > 0 or self.columns > 0

    def __str__(self) -> str:
        columns = f".{self.columns}" if self.columns else ""
        return f"{self.table}.{self.reset}{columns}{'' if self.has_snapshot else '-'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CdcTableSpec:
    """The settings with which the reader of a change data capture source reads one upstream table.

    ``reads`` has an entry for each table that reads the upstream table. ``columns`` are the upstream columns that these
    tables read. A snapshot reads the rows in the order of ``key_columns``, in chunks of ``chunk_rows`` rows, and at
    most ``rate`` rows per second. None means the default for ``chunk_rows``, and no limit for ``rate``. Tables without
    a snapshot need no changes up to the position ``live_from``.
    """

    upstream: str
    reads: tuple[TableRead, ...]
    columns: tuple[str, ...]
    key_columns: tuple[str, ...]
    chunk_rows: int | None = None
    rate: int | None = None
    live_from: int = 0

    @property
    def snapshot(self) -> str:
        """The name of the snapshot that the tables in ``reads`` share. It is stored with the snapshot's progress."""
        return ",".join(map(str, self.reads))

    @property
    def tables(self) -> tuple[int, ...]:
        """The ids of the tables in ``reads``."""
        return tuple(read.table for read in self.reads)

    @property
    def has_snapshot(self) -> bool:
        """True if at least one table in ``reads`` needs the existing rows of the upstream table."""
        return any(read.has_snapshot for read in self.reads)

    @property
    def repeats(self) -> bool:
        """True if the snapshot repeats an earlier snapshot for at least one table in ``reads``."""
        return any(read.is_repeated for read in self.reads if read.has_snapshot)
