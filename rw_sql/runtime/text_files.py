"""Files that a statement names, as text."""

from __future__ import annotations

from rw_sql.errors import FILE_UNREADABLE, SqlError


def read_text_file(path: str) -> str:
    """The text at a path or URI. Raises SqlError FILE_UNREADABLE."""
    import fsspec

    try:
        files, plain = fsspec.core.url_to_fs(path)
        return str(files.read_text(plain, encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SqlError(FILE_UNREADABLE, f"cannot read file {path!r}: {reason.lower()}") from error
