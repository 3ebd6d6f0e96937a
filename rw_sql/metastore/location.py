"""The place of a warehouse's catalog. Imports no Delta, which a light installation lacks."""

from __future__ import annotations

import re
from pathlib import Path

from rw_sql.errors import INVALID_PARAMETER, SqlError
from rw_sql.object_stores import local_location, unfit_part

SCHEMA_NAME = "rw_catalog"
"""The catalog's folder in a warehouse, and its schema in Spark."""

_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")


def catalog_folder(warehouse: str) -> str:
    """The folder of a warehouse's catalog. Raises SqlError INVALID_PARAMETER for a place that Delta cannot address."""
    warehouse = local_location(warehouse)
    if "://" in warehouse:
        require_fit(warehouse)
    else:
        warehouse = str(Path(warehouse).absolute())
        if _ESCAPE.search(warehouse):
            raise SqlError(
                INVALID_PARAMETER,
                f"the warehouse {warehouse!r} cannot be used: Delta reads % and two hex digits as a character",
                hint="give a folder without % in its path",
            )
    return f"{warehouse.rstrip('/')}/{SCHEMA_NAME}"


def require_fit(uri: str) -> None:
    """Raises SqlError INVALID_PARAMETER for a URI of an object store that the libraries of a warehouse read
    differently: the catalog and the files of the jobs would be in different places."""
    unfit = unfit_part(uri)
    if unfit is not None:
        raise SqlError(
            INVALID_PARAMETER,
            f"the warehouse {uri!r} cannot be used: it contains {unfit}, and Delta and Spark would read different "
            "places",
            hint="give a URI whose path has letters, digits, blanks, - and _, such as s3://bucket/warehouse",
        )
