"""Reads the offset log of a checkpoint that lies anywhere fsspec reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import FILE_UNREADABLE, INVALID_OFFSETS_FILE, SqlError
from rw_sql.plan.requests import CheckpointText

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_HINT = "give the checkpointLocation of a Structured Streaming query"


def read_checkpoint(path: str) -> CheckpointText:
    """The newest committed batch of a checkpoint. Raises SqlError where there is none, or it cannot be read."""
    import fsspec

    try:
        files, plain = fsspec.core.url_to_fs(path)
        root = plain.rstrip("/")
        if not files.isdir(root):
            raise SqlError(FILE_UNREADABLE, f"cannot read checkpoint {path!r}: there is no such folder", hint=_HINT)
        committed, planned = (_batches(files, f"{root}/{folder}") for folder in ("commits", "offsets"))
        if not committed:
            raise SqlError(INVALID_OFFSETS_FILE, f"checkpoint {path!r} has no committed batch", hint=_HINT)
        newest = committed[-1]
        text = str(files.read_text(f"{root}/offsets/{newest}", encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SqlError(FILE_UNREADABLE, f"cannot read checkpoint {path!r}: {reason.lower()}", hint=_HINT) from error
    return CheckpointText(batch=newest, planned=max(planned, default=newest), text=text)


def _batches(files: AbstractFileSystem, folder: str) -> list[int]:

    try:
        names = [str(found).rpartition("/")[2] for found in files.ls(folder, detail=False)]
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if name.isdigit())
