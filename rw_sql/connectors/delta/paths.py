"""Checks the path of a Delta table."""

from __future__ import annotations

from urllib.parse import urlsplit

from rw_sql.connectors.spec import OptionError
from rw_sql.errors import INVALID_PROPERTY

_MISREAD = "[]^|\\%"
"""In a local path, delta-rs panics at the first four, reads a backslash as a slash, and decodes percent signs."""


def check_path(key: str, path: str) -> None:
    """Raises OptionError for a local path that delta-rs misreads. ``key`` is the option that contains the path."""
    found = [] if urlsplit(path).scheme else [character for character in _MISREAD if character in path]
    if found:
        raise OptionError(
            INVALID_PROPERTY,
            f"property \"{key}\" must not contain the character {found[0]}: '{path}'",
            key=key,
            hint="rename the folder",
        )
