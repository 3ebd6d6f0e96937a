"""Checks the path or URI of a warehouse. This module must not import delta-rs, because ``pip install rw-sql`` without
extras does not install delta-rs."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from rw_sql.errors import FILE_UNREADABLE, INVALID_PARAMETER, SqlError
from rw_sql.object_stores import local_location, unfit_local_part, unfit_part

SCHEMA_NAME = "rw_catalog"
"""The name of the catalog's folder in a warehouse, and of the catalog's schema in Spark."""


def catalog_folder(warehouse: str) -> str:
    """The path or URI of the catalog's folder in a warehouse. Raises SqlError INVALID_PARAMETER if Delta cannot use the
    warehouse's path or URI."""
    warehouse = local_location(warehouse)
    if "://" not in warehouse:
        warehouse = str(absolute_path(warehouse))
    require_fit(warehouse)
    return f"{warehouse.rstrip('/')}/{SCHEMA_NAME}"


def absolute_path(path: str | Path) -> Path:
    """Converts a local path to an absolute path without ``~`` and symbolic links.

    Raises SqlError FILE_UNREADABLE if the path is relative and the current folder was deleted, or if the path begins
    with ``~`` and the user has no home folder.
    """
    try:
        expanded = Path(path).expanduser()
    except RuntimeError as error:
        raise SqlError(
            FILE_UNREADABLE, f"cannot find {str(path)!r}: the user has no home folder", hint="give an absolute path"
        ) from error
    if not expanded.is_absolute():
        require_current_folder()
    return expanded.resolve()


def require_folder(path: str) -> None:
    """Raises SqlError FILE_UNREADABLE if a local path, or one of its parents, is a file instead of a folder.

    Without this check, the error would look like the error of an object store that does not respond.
    """
    for place in (Path(path), *Path(path).parents):
        try:
            is_file = not stat.S_ISDIR(place.stat().st_mode)
        except FileNotFoundError:
            continue
        except OSError:
            if place.parent != place:
                continue
            return
        if is_file:
            raise SqlError(
                FILE_UNREADABLE,
                f'"{path}" cannot be a warehouse: "{place}" is a file',
                hint="name a folder with --warehouse PATH or RW_SQL_WAREHOUSE",
            )
        return


def require_current_folder() -> None:
    """Raises SqlError FILE_UNREADABLE if the current folder of this process has been deleted."""
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise SqlError(
            FILE_UNREADABLE, "the current folder of this process was deleted", hint="cd to a folder that exists"
        ) from error


def require_fit(location: str) -> None:
    """Raises SqlError INVALID_PARAMETER for an absolute path, or a URI of an object store, that Delta and Spark would
    resolve to different places. Without this check, the catalog and the jobs' files would be stored in different
    places."""
    is_uri = "://" in location
    unfit = unfit_part(location) if is_uri else unfit_local_part(location)
    if unfit is not None:
        example = "a URI whose path has letters, digits, blanks, - and _, such as s3://bucket/warehouse"
        raise SqlError(
            INVALID_PARAMETER,
            f"the warehouse {location!r} cannot be used: it contains {unfit}, and Delta and Spark would read different "
            "places",
            hint=f"give {example if is_uri else 'a folder whose path has letters, digits, blanks, - and _'}",
        )
