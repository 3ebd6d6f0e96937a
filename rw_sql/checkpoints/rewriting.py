"""Rewrites the positions in a checkpoint's offset log, and undoes such a rewrite.

A rewrite does not change the state of the query's operators. The next batch continues with this state and reads records
from the new positions. A rewrite changes the entry of the last *committed* batch and the entry of the batch before it,
because a source of Spark's older source interface reads both entries when the query starts. No batch is added or
removed, so the batch numbers continue, and no sink mistakes the next batch for an earlier batch.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rw_sql.checkpoints.checkpoint import stamp_of
from rw_sql.checkpoints.journal import (
    DONE,
    FOLDER,
    STARTED,
    UNDOING,
    UNDONE,
    JournalEntry,
    read_journal,
    write_journal,
)
from rw_sql.errors import CANNOT_UNDO_CHECKPOINT, CHECKPOINT_IN_USE, FILE_UNREADABLE, SqlError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.checkpoints.checkpoint import Checkpoint, Rewrite
    from rw_sql.checkpoints.files import CheckpointFiles


def watch(files: CheckpointFiles, stamp: str, seconds: float) -> None:
    """Watches the checkpoint for ``seconds``. Raises SqlError CHECKPOINT_IN_USE if the checkpoint changes during that
    time."""
    deadline = time.monotonic() + seconds
    while True:
        if stamp_of(files) != stamp:
            raise in_use(files.location)
        left = deadline - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(left, 0.25))


def in_use(path: str) -> SqlError:
    """Returns the error for a job that changes the checkpoint's files while rw_sql watches, rewrites or restores the
    files."""
    return SqlError(
        CHECKPOINT_IN_USE,
        f"a job is using checkpoint {path!r}: the checkpoint's files changed while rw_sql watched them",
        hint="stop the job, wait until it has ended, and repeat the command",
    )


def rewrite(files: CheckpointFiles, wanted: Rewrite, *, actor: str, watch_seconds: float) -> JournalEntry:
    """Rewrites the checkpoint. If the job changes the checkpoint during the call, restores the files that were already
    replaced, and raises SqlError.

    The function writes the journal before it changes a file. Therefore, :func:`undo` can restore the files if this
    process is killed during the rewrite.
    """
    with _locked(files):
        watch(files, wanted.stamp, watch_seconds)
        number = max((entry.number for entry in read_journal(files)), default=0) + 1
        entry = JournalEntry(
            number=number,
            state=STARTED,
            batch=wanted.batch,
            files=wanted.files,
            statement=wanted.statement,
            actor=actor,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            reason=wanted.reason,
        )
        write_journal(files, entry)
        try:
            for change in wanted.files:
                _replace(files, change.name, change.before, change.after)
            _require_newest(files, wanted.batch)
        except SqlError:
            _put_back(files, entry)
            raise
        done = entry.with_state(DONE)
        write_journal(files, done)
        return done


def find_undoable(files: CheckpointFiles, checkpoint: Checkpoint) -> JournalEntry:
    """The rewrite that undo would revert.

    Raises SqlError if there is no rewrite, if the job has planned a batch since the rewrite, or if another program has
    changed the rewritten files.
    """
    entries = [entry for entry in read_journal(files) if entry.state != UNDONE]
    if not entries:
        raise SqlError(
            CANNOT_UNDO_CHECKPOINT,
            f"checkpoint {files.location!r} has no rewrite to undo",
            hint=f"rw-sql checkpoint show {files.location} shows its positions",
        )
    entry = entries[-1]
    if checkpoint.planned > entry.batch:
        raise SqlError(
            CANNOT_UNDO_CHECKPOINT,
            f"the job continued after operation {entry.number}: it has planned batch {checkpoint.planned}, "
            f"and the operation rewrote batch {entry.batch}",
            hint=f"rw-sql checkpoint set-offsets {files.location} sets other positions; the files from before that "
            f"operation are in {files.path(FOLDER)}",
        )
    for change in entry.files:
        if files.read(change.name) not in (change.before, change.after):
            raise SqlError(
                CANNOT_UNDO_CHECKPOINT,
                f"{files.path(change.name)!r} was changed by another program after operation {entry.number}",
                hint=f"the files from before that operation are in {files.path(FOLDER)}",
            )
    return entry


def undo(files: CheckpointFiles, checkpoint: Checkpoint, entry: JournalEntry, *, watch_seconds: float) -> None:
    """Restores the files that a rewrite replaced.

    Raises SqlError, before a file is restored, if the job plans or commits a batch while the checkpoint is watched for
    ``watch_seconds``.
    """
    with _locked(files):
        watch(files, checkpoint.stamp, watch_seconds)
        write_journal(files, entry.with_state(UNDOING))
        for change in entry.files:
            if files.read(change.name) != change.before:
                _replace(files, change.name, change.after, change.before)
        write_journal(files, entry.with_state(UNDONE))


def _replace(files: CheckpointFiles, name: str, old: str, new: str) -> None:
    if files.read(name) != old:
        raise in_use(files.location)
    files.write(name, new)


def _require_newest(files: CheckpointFiles, batch: int) -> None:
    """Raises CHECKPOINT_IN_USE if the checkpoint has a later batch than ``batch``. A later batch means that the job was
    idle while rw_sql watched the checkpoint, and has continued since then."""
    if max(files.batches("offsets"), default=batch) > batch or max(files.batches("commits"), default=batch) > batch:
        raise in_use(files.location)


def _put_back(files: CheckpointFiles, entry: JournalEntry) -> None:
    for change in entry.files:
        if files.read(change.name) == change.after:
            files.write(change.name, change.before)
    write_journal(files, entry.with_state(UNDONE))


@contextmanager
def _locked(files: CheckpointFiles) -> Iterator[None]:
    """A context manager that allows only one rewriting process at a time.

    The lock works only on a local path. In an object store, the only protection is that rw_sql compares each file with
    its expected content before it writes the file.
    """
    if not files.is_local:
        yield
        return
    import fcntl
    from pathlib import Path

    folder = Path(files.path(FOLDER))
    try:
        folder.mkdir(exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise SqlError(
            FILE_UNREADABLE,
            f"cannot write {str(folder)!r}: {(error.strerror or str(error)).lower()}",
            hint="run this as the user that runs the job",
        ) from error
    with lock as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SqlError(
                CHECKPOINT_IN_USE,
                f"another process is rewriting checkpoint {files.location!r}",
                hint="run the command again once the checkpoint is rewritten",
            ) from error
        yield
