"""Checks the path or URI of a Delta table, and compares the paths of its files."""

from __future__ import annotations

import posixpath

from rw_sql.connectors.spec import OptionError
from rw_sql.errors import INVALID_PROPERTY
from rw_sql.object_stores import local_location, unfit_local_part, unfit_part


def check_path(key: str, path: str) -> None:
    """Raises OptionError for a path that delta-rs misreads, or that delta-rs and Spark interpret differently.

    ``key`` is the option that contains the path.
    """
    if "://" in path and (unfit := unfit_part(path)) is not None:
        raise OptionError(
            INVALID_PROPERTY,
            f"property \"{key}\" contains {unfit}: delta-rs and Spark would use different places for '{path}'",
            key=key,
            hint=f"{key} = '/path/of/the/table', or 's3://bucket/path' with letters, digits, blanks, - and _",
        )
    if "://" in path or path.startswith("file:"):
        return
    # delta-rs decodes percent signs in the path of a table.
    if (unfit := unfit_local_part(path) or ("the character '%'" if "%" in path else None)) is not None:
        raise OptionError(
            INVALID_PROPERTY,
            f"property \"{key}\" must not contain {unfit}: '{path}'",
            key=key,
            hint="rename the folder",
        )


def full_path(table: str, file: str) -> str:
    """The path or URI of a file of the table at ``table``. ``file`` is the file's decoded path in the log, which is
    absolute or relative to the table."""
    is_absolute = "://" in file or file.startswith(("/", "file:/"))
    return file if is_absolute else f"{table}/{file}"


def comparable_path(path: str) -> str:
    """Normalizes a file's path or decoded URI, so that all spellings of a local path give the same text. The result has
    no scheme, no empty names, and no names ``.`` or ``..``. Spark reports the paths of files in this form, but with a
    scheme. The URIs of object stores are returned unchanged, because :func:`check_path` refuses other spellings of
    these URIs."""
    local = local_location(path)
    return f"/{posixpath.normpath(local).lstrip('/')}" if local.startswith("/") else path
