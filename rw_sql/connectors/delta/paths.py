"""Checks the path or URI of a Delta table."""

from __future__ import annotations

from urllib.parse import urlsplit

from rw_sql.connectors.spec import OptionError
from rw_sql.errors import INVALID_PROPERTY
from rw_sql.object_stores import unfit_part

_MISREAD = "[]^|\\%"
"""In a local path, delta-rs panics at the first four, reads a backslash as a slash, and decodes percent signs."""


def check_path(key: str, path: str) -> None:
    """Raises OptionError for a path that delta-rs misreads, or reads differently from Spark.

    ``key`` is the option that contains the path.
    """
    if "://" in path and (unfit := unfit_part(path)) is not None:
        raise OptionError(
            INVALID_PROPERTY,
            f"property \"{key}\" contains {unfit}: delta-rs and Spark would use different places for '{path}'",
            key=key,
            hint=f"{key} = '/path/of/the/table', or 's3://bucket/path' with letters, digits, blanks, - and _",
        )
    found = [] if urlsplit(path).scheme else [character for character in _MISREAD if character in path]
    if found:
        raise OptionError(
            INVALID_PROPERTY,
            f"property \"{key}\" must not contain the character {found[0]}: '{path}'",
            key=key,
            hint="rename the folder",
        )
