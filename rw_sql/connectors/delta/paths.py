"""Checks the path or URI of a Delta table."""

from __future__ import annotations

from rw_sql.connectors.spec import OptionError
from rw_sql.errors import INVALID_PROPERTY
from rw_sql.object_stores import unfit_local_part, unfit_part


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
