"""Reads checkpoints, and the tables and files to which checkpoints refer, for planning. Also carries out changes to
checkpoints.

This module does not use Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from rw_sql.checkpoints.checkpoint import read_checkpoint
from rw_sql.checkpoints.delta_table import look_at_table, rows_between, version_at
from rw_sql.checkpoints.file_lists import missing_files, read_lists
from rw_sql.checkpoints.files import CheckpointFiles
from rw_sql.checkpoints.rewriting import find_undoable, in_use, rewrite, undo
from rw_sql.plan.ports.checkpoints import CheckpointLook, CheckpointText
from rw_sql.plan.result.external_actions import Effect, RewriteCheckpoint, UndoCheckpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.checkpoints.delta_table import DeltaTable, VersionRows
    from rw_sql.checkpoints.file_lists import FileLists
    from rw_sql.checkpoints.journal import JournalEntry


def nothing_runs(_: str) -> str | None:
    """Returns None. This function is the default for ``running``, for processes without Spark, because they run no
    queries."""
    return None


class CheckpointFolders:
    """Implements ``CheckpointPort``. ``running`` is a function that returns the name of this process's running query
    with a given id, or None if no such query runs."""

    def __init__(self, running: Callable[[str], str | None] = nothing_runs) -> None:
        self._running = running

    def look(self, path: str) -> CheckpointLook:
        checkpoint = read_checkpoint(CheckpointFiles.at(path))
        return CheckpointLook(checkpoint=checkpoint, running=self._running(checkpoint.query_id))

    def text(self, path: str) -> CheckpointText:
        found = read_checkpoint(CheckpointFiles.at(path))
        return CheckpointText(batch=found.batch, planned=found.planned, text=found.entry.render())

    def undoable_rewrite(self, path: str) -> JournalEntry:
        files = CheckpointFiles.at(path)
        return find_undoable(files, read_checkpoint(files))

    def table(self, path: str) -> DeltaTable:
        return look_at_table(path)

    def rows_between(self, table: DeltaTable, start: int, end: int) -> VersionRows:
        return rows_between(table, start, end)

    def version_at(self, table: DeltaTable, milliseconds: int) -> int:
        return version_at(table, milliseconds)

    def file_lists(self, path: str, source: str) -> FileLists:
        return read_lists(CheckpointFiles.at(path), source)

    def missing_files(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        return missing_files(paths)


def carry_out(effect: Effect, *, actor: str, running: Callable[[str], str | None] = nothing_runs) -> int:
    """Carries out an effect, which rewrites a checkpoint or undoes a rewrite. Returns the number of this rewrite in the
    checkpoint's journal.

    If a query uses the checkpoint, or has advanced it since the effect was planned, raises SqlError and changes no
    file.
    """
    files = CheckpointFiles.at(effect.path)
    checkpoint = read_checkpoint(files)
    if running(checkpoint.query_id) is not None:
        raise in_use(effect.path)
    match effect:
        case RewriteCheckpoint():
            return rewrite(files, effect.rewrite, actor=actor, watch_seconds=effect.watch_seconds).number
        case UndoCheckpoint():
            if checkpoint.stamp != effect.stamp:
                raise in_use(effect.path)
            entry = find_undoable(files, checkpoint)
            undo(files, checkpoint, entry, watch_seconds=effect.watch_seconds)
            return entry.number
        case _:
            assert_never(effect)
