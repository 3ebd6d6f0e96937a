"""The journal of rewrites, stored inside the checkpoint: backups, actor and reason, and what undo needs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from rw_sql.errors import NOT_A_CHECKPOINT, SqlError

if TYPE_CHECKING:
    from rw_sql.checkpoints.files import CheckpointFiles

FOLDER = "_rw_sql"
"""The journal's folder. Spark ignores unknown folders in a checkpoint."""

STARTED = "started"
DONE = "done"
UNDOING = "undoing"
UNDONE = "undone"
UNFINISHED = (STARTED, UNDOING)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One file of a checkpoint before and after a rewrite, as whole texts."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One rewrite. ``number`` counts from 1 in each checkpoint; ``batch`` is the batch whose entry was rewritten."""

    number: int
    state: str
    batch: int
    files: tuple[FileChange, ...]
    statement: str
    actor: str
    at: str
    reason: str | None = None

    def with_state(self, state: str) -> JournalEntry:
        """The entry with another state."""
        return replace(self, state=state)


def read_journal(files: CheckpointFiles) -> tuple[JournalEntry, ...]:
    """All rewrites of a checkpoint, oldest first."""
    names = sorted(name for name in files.stamps(FOLDER) if name.endswith(".json"))
    return tuple(_entry(files, f"{FOLDER}/{name}") for name in names)


def write_journal(files: CheckpointFiles, entry: JournalEntry) -> None:
    """Writes an entry, replacing the one with the same number."""
    files.write(f"{FOLDER}/{entry.number:06d}.json", json.dumps(asdict(entry), indent=2, ensure_ascii=False) + "\n")


def _entry(files: CheckpointFiles, name: str) -> JournalEntry:
    try:
        body = json.loads(files.read(name))
        changes = tuple(FileChange(**change) for change in body.pop("files"))
        return JournalEntry(files=changes, **body)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise SqlError(
            NOT_A_CHECKPOINT,
            f"{files.path(name)!r} is no record of a rewrite: {error}",
            hint="it was written by rw-sql checkpoint; put it back, or move it away if it need not be undone",
        ) from error
