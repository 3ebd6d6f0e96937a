"""Finds the SQL files of a folder, for every command that accepts a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rw_sql.errors import FILE_UNREADABLE, SqlError

if TYPE_CHECKING:
    from collections.abc import Sequence


def folder_files(folder: str) -> list[str]:
    """The SQL files of a folder and its subfolders, except hidden ones.

    Raises SqlError for a folder without SQL files.
    """
    root = Path(folder)
    if not root.is_dir():
        raise SqlError(FILE_UNREADABLE, f'"{folder}" is not a folder', hint="give a folder that exists")
    found = sorted(
        path
        for path in root.rglob("*.sql")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(root).parts)
    )
    if not found:
        raise SqlError(
            FILE_UNREADABLE, f'folder "{folder}" has no .sql file', hint="give a folder with files that end in .sql"
        )
    return [str(path) for path in found]


def files_of(paths: Sequence[str]) -> list[str]:
    """The paths, with each folder replaced by its SQL files. Raises SqlError for a folder without SQL files."""
    return [file for path in paths for file in (folder_files(path) if Path(path).is_dir() else [path])]
