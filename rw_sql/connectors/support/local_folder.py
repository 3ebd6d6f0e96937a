"""Checks whether a local folder is writable, without writing to it."""

from __future__ import annotations

import os
from pathlib import Path

from rw_sql.connectors.sink import SinkLook


def look_at_folder(path: str, *, must_be_empty: bool = False) -> SinkLook:
    """Checks that this process can write files to the folder, or can create the folder. If ``must_be_empty`` is true, a
    folder that contains files is a misfit. Errors are returned, never raised."""
    folder = Path(path)
    try:
        if must_be_empty and folder.is_dir() and any(folder.iterdir()):
            return SinkLook(
                misfit=f"{path} contains files and is not a Delta table", hint="name an empty or new folder"
            )
        while not folder.exists():
            folder = folder.parent
    except OSError as error:
        return SinkLook(error=f"{path}: {(error.strerror or str(error)).lower()}")
    if not folder.is_dir():
        return SinkLook(misfit=f"{folder} is a file, not a folder", hint="name a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        return SinkLook(
            misfit=f"{folder} cannot be written by this user",
            hint="give this user the permission to write, or choose another folder",
        )
    return SinkLook()
