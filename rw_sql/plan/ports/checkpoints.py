"""Defines the port for foreign checkpoints. A foreign checkpoint is the checkpoint of a job that rw_sql does not run.
The port also covers the tables and files that such jobs read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rw_sql.checkpoints.checkpoint import Checkpoint
    from rw_sql.checkpoints.delta_table import DeltaTable, VersionRows
    from rw_sql.checkpoints.file_lists import FileLists
    from rw_sql.checkpoints.journal import JournalEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointLook:
    """The state of a checkpoint. If a query that runs in this process uses the checkpoint, ``running`` is the query's
    name in messages; otherwise None."""

    checkpoint: Checkpoint
    running: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointText:
    """``batch`` is the last committed batch of a checkpoint, and ``text`` contains the offsets of this batch.

    ``planned`` is the last planned batch. If ``planned`` is greater than ``batch``, the planned batch is running or was
    interrupted.
    """

    batch: int
    planned: int
    text: str


class CheckpointPort(Protocol):
    """The port for foreign checkpoints, and for the tables and files that their jobs read. The methods accept paths as
    they are spelled in the statement."""

    def look(self, path: str) -> CheckpointLook:
        """Returns the state of a checkpoint."""
        ...

    def text(self, path: str) -> CheckpointText:
        """Returns the last committed entry of the offset log in a Structured Streaming checkpoint."""
        ...

    def undoable_rewrite(self, path: str) -> JournalEntry:
        """Returns the last rewrite of a checkpoint, from the journal of its rewrites. Raises SqlError if this rewrite
        cannot be undone."""
        ...

    def table(self, path: str) -> DeltaTable:
        """Returns the id of a Delta table, and the versions in the table's log."""
        ...

    def rows_between(self, table: DeltaTable, start: int, end: int) -> VersionRows:
        """Examines the versions ``[start, end)`` of a table. Returns the number of rows that they add, and the versions
        that change existing rows."""
        ...

    def version_at(self, table: DeltaTable, milliseconds: int) -> int:
        """Returns the first version of a table that was committed at or after the given time."""
        ...

    def file_lists(self, path: str, source: str) -> FileLists:
        """Returns the lists of files that a Spark file source has read."""
        ...

    def missing_files(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the files in ``paths`` that no longer exist."""
        ...
