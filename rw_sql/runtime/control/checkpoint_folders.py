"""Answers requests about checkpoints and their upstreams' files, and carries out effects on checkpoints. No Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from rw_sql.checkpoints.checkpoint import read_checkpoint
from rw_sql.checkpoints.delta_table import look_at_table, rows_between, version_at
from rw_sql.checkpoints.file_lists import missing_files, read_lists
from rw_sql.checkpoints.files import CheckpointFiles
from rw_sql.checkpoints.rewriting import find_undoable, in_use, rewrite, undo
from rw_sql.plan.ports.catalog import CheckpointText
from rw_sql.plan.ports.checkpoints import (
    CheckpointLook,
    CheckpointRequest,
    CountRows,
    FindMissingFiles,
    FindRewrite,
    FindVersionAt,
    LookAtCheckpoint,
    LookAtTable,
    ReadFileLists,
)
from rw_sql.plan.result.external_actions import Effect, RewriteCheckpoint, UndoCheckpoint

if TYPE_CHECKING:
    from collections.abc import Callable


def nothing_runs(_: str) -> str | None:
    """The default without Spark: no query runs in this process."""
    return None


def answer_checkpoint(request: CheckpointRequest, running: Callable[[str], str | None] = nothing_runs) -> object:
    """The answer to one request. ``running`` returns the query of this process with the given id, or None."""
    match request:
        case LookAtCheckpoint(path=path):
            checkpoint = read_checkpoint(CheckpointFiles.at(path))
            return CheckpointLook(checkpoint=checkpoint, running=running(checkpoint.query_id))
        case FindRewrite(path=path):
            files = CheckpointFiles.at(path)
            return find_undoable(files, read_checkpoint(files))
        case LookAtTable(path=path):
            return look_at_table(path)
        case CountRows():
            return rows_between(request.table, request.start, request.end)
        case FindVersionAt():
            return version_at(request.table, request.milliseconds)
        case ReadFileLists():
            return read_lists(CheckpointFiles.at(request.path), request.source)
        case FindMissingFiles():
            return missing_files(request.paths)
        case _:
            assert_never(request)


def read_checkpoint_text(path: str) -> CheckpointText:
    """The newest committed entry of a checkpoint's offset log. Raises SqlError NOT_A_CHECKPOINT if there is none."""
    found = read_checkpoint(CheckpointFiles.at(path))
    return CheckpointText(batch=found.batch, planned=found.planned, text=found.entry.render())


def carry_out(effect: Effect, *, actor: str, running: Callable[[str], str | None] = nothing_runs) -> int:
    """Carries out an effect and returns the number of the rewrite in the checkpoint's journal.

    Raises SqlError, with every file unchanged, if a job uses the checkpoint or has advanced it since it was read.
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
