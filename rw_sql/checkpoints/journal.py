"""Reads and writes the journal of a checkpoint's rewrites, which is stored in the checkpoint's folder. For each
rewrite, the journal contains the user, the reason, and the files' old content. Undo restores this content."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from rw_sql.errors import NOT_A_CHECKPOINT, SqlError

if TYPE_CHECKING:
    from rw_sql.checkpoints.files import CheckpointFiles

FOLDER = "_rw_sql"
"""The journal's folder, below the checkpoint's root. Spark ignores folders that it does not know."""

STARTED = "started"
DONE = "done"
UNDOING = "undoing"
UNDONE = "undone"
UNFINISHED = (STARTED, UNDOING)


class FileChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole text of one file of a checkpoint before and after a rewrite."""

    name: str
    before: str
    after: str


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rewrite. ``number`` is the rewrite's number within the checkpoint, starting at 1. ``batch`` is the last batch
    whose entry was rewritten. ``state`` is STARTED, DONE, UNDOING or UNDONE. If the state of an entry is in UNFINISHED,
    the rewrite or its undo was interrupted."""

    number: int
    state: str
    batch: int
    files: tuple[FileChange, ...]
    statement: str
    actor: str
    at: str
    reason: str | None = None

    def with_state(self, state: str) -> JournalEntry:
        """A copy of the entry with the given state."""
        return msgspec.structs.replace(self, state=state)


def read_journal(files: CheckpointFiles) -> tuple[JournalEntry, ...]:
    """All rewrites of a checkpoint, oldest first."""
    names = sorted(name for name in files.stamps(FOLDER) if name.endswith(".json"))
    return tuple(_entry(files, f"{FOLDER}/{name}") for name in names)


def write_journal(files: CheckpointFiles, entry: JournalEntry) -> None:
    """Writes an entry. The entry replaces an earlier entry with the same number."""
    text = msgspec.json.format(msgspec.json.encode(entry), indent=2).decode()
    files.write(f"{FOLDER}/{entry.number:06d}.json", text + "\n")


def _entry(files: CheckpointFiles, name: str) -> JournalEntry:
    try:
        return msgspec.json.decode(files.read(name), type=JournalEntry)
    except ValueError as error:
        raise SqlError(
            NOT_A_CHECKPOINT,
            f"{files.path(name)!r} is not a record of a rewrite: {error}",
            hint="restore this file from a backup; if you delete it instead, this rewrite cannot be undone",
        ) from error
