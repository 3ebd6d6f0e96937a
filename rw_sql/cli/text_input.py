"""Reads SQL from files and standard input, writes files, and converts errors of files to SqlErrors."""

from __future__ import annotations

import sys
from pathlib import Path

from rw_sql.errors import FILE_UNREADABLE, SqlError


def read_text(path: str) -> str:
    """Reads a file (``-``: standard input). All line ends become ``\\n``. Raises SqlError FILE_UNREADABLE."""
    return unix_lines(read_exactly(path))


def read_exactly(path: str) -> str:
    """Reads a file (``-``: standard input) and keeps its byte-order mark and line ends. Raises SqlError."""
    name = "standard input" if path == "-" else f'"{path}"'
    try:
        if path != "-":
            read = Path(path).read_bytes()
        elif (buffer := getattr(sys.stdin, "buffer", None)) is not None:
            read = buffer.read()
        else:
            read = sys.stdin.read().encode()
    except OSError as error:
        raise SqlError(
            FILE_UNREADABLE,
            f"cannot read {name}: {error.strerror}",
            hint="give a file that this process can read, or - for standard input",
        ) from error
    from rw_sql.runtime.support.text_files import decode_text

    return decode_text(read, name)


def unusable_file(error: OSError) -> SqlError | None:
    """The error for a file or folder that a command could not use; None if the exception does not concern a file."""
    from rw_sql.metastore.location import require_current_folder

    try:
        require_current_folder()
    except SqlError as deleted:
        return deleted
    if not isinstance(error.filename, str) or error.strerror is None:
        return None
    return SqlError(
        FILE_UNREADABLE,
        f'cannot use "{error.filename}": {error.strerror}',
        hint="give a file or folder that this process can read and write",
    )


def unix_lines(text: str) -> str:
    """The text, in which all line ends are ``\\n``."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def write_text(path: str, text: str) -> None:
    """Writes a file. Raises SqlError FILE_UNREADABLE if it cannot be written."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SqlError(
            FILE_UNREADABLE,
            f'cannot write "{path}": {error.strerror}',
            hint="give a file in a folder that exists and can be written",
        ) from error
