"""Defines the port for foreign checkpoints, and for the tables and files that the jobs of these checkpoints read. A
foreign checkpoint is the checkpoint of a job that rw_sql does not run."""

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
    """A checkpoint. If a query in this process uses the checkpoint, ``running`` is the name of this query in
    messages."""

    checkpoint: Checkpoint
    running: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointText:
    """The last committed batch of a checkpoint, and the text of the batch's offsets.

    ``planned`` is the last planned batch. If the planned batch is later than the committed batch, the planned batch is
    running or was interrupted.
    """

    batch: int
    planned: int
    text: str


class CheckpointPort(Protocol):
    """Reads foreign checkpoints, and the tables and files that their jobs read. Paths are spelled as in the
    statement."""

    def look(self, path: str) -> CheckpointLook:
        """The state of a checkpoint."""
        ...

    def text(self, path: str) -> CheckpointText:
        """The last committed entry of a Structured Streaming checkpoint's offset log."""
        ...

    def undoable_rewrite(self, path: str) -> JournalEntry:
        """The last rewrite of a checkpoint, from its journal. Raises SqlError if the rewrite cannot be undone."""
        ...

    def table(self, path: str) -> DeltaTable:
        """A Delta table's id and the versions in its log."""
        ...

    def rows_between(self, table: DeltaTable, start: int, end: int) -> VersionRows:
        """Returns the number of rows that the versions ``[start, end)`` of a table have added, and the versions that
        have changed existing rows."""
        ...

    def version_at(self, table: DeltaTable, milliseconds: int) -> int:
        """The first version of a table that was committed at or after the given time."""
        ...

    def file_lists(self, path: str, source: str) -> FileLists:
        """The lists of files that a file source has read."""
        ...

    def missing_files(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        """Returns those of the given files that no longer exist."""
        ...
