"""Finds the SQL files of a folder, for every command that accepts a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rw_sql.errors import FILE_UNREADABLE, SqlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def folder_files(folder: str) -> list[str]:
    """The SQL files of a folder and its subfolders, except hidden files and folders. Links to folders are followed.

    Raises SqlError for a folder without SQL files, and for a folder or a link that cannot be read. If unreadable files
    were skipped, ``diff`` would drop the objects that these files define.
    """
    root = Path(folder)
    if not root.is_dir():
        raise SqlError(FILE_UNREADABLE, f'"{folder}" is not a folder', hint="give a folder that exists")
    found = sorted(files_below(root, lambda path: path.suffix.lower() == ".sql"))
    if not found:
        raise SqlError(
            FILE_UNREADABLE, f'folder "{folder}" has no .sql file', hint="give a folder with files that end in .sql"
        )
    return [str(path) for path in found]


def files_below(folder: Path, is_wanted: Callable[[Path], bool], above: tuple[Path, ...] = ()) -> Iterator[Path]:
    """The files in ``folder`` and its subfolders for which ``is_wanted`` returns True. Hidden files and folders are
    skipped.

    ``above`` are the real paths of the folders that contain ``folder``. A link to one of these folders is not followed,
    because the search would otherwise never end. Raises SqlError for a folder or a link that cannot be read.
    """
    real = folder.resolve()
    if real in above:
        return
    try:
        entries = list(folder.iterdir())
    except OSError as error:
        raise _unreadable(folder, error.strerror or "") from error
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from files_below(entry, is_wanted, (*above, real))
        elif is_wanted(entry):
            if not entry.exists():
                raise _unreadable(entry, "its target does not exist")
            if entry.is_file():
                yield entry


def _unreadable(path: Path, why: str) -> SqlError:
    return SqlError(
        FILE_UNREADABLE, f'cannot read "{path}": {why}', hint="remove it, or make it readable for this process"
    )


def files_of(paths: Sequence[str]) -> list[str]:
    """Returns ``paths``, with each folder replaced by its SQL files. Raises SqlError for a folder without SQL files."""
    return [file for path in paths for file in (folder_files(path) if Path(path).is_dir() else [path])]
