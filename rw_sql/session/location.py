"""Determines the default warehouse of a process."""

from __future__ import annotations

import os

from rw_sql.errors import UNDEFINED_OBJECT, SqlError
from rw_sql.runtime.support.warehouse import Warehouse

WAREHOUSE_VARIABLE = "RW_SQL_WAREHOUSE"
DEFAULT_WAREHOUSE = "./rw_warehouse"


def warehouse_at(location: str | None) -> Warehouse:
    """Returns the warehouse at ``location``, which is a path or URI. The default is ``$RW_SQL_WAREHOUSE`` or, if this
    variable is not set, ``./rw_warehouse``."""
    return Warehouse.at(location or os.environ.get(WAREHOUSE_VARIABLE, DEFAULT_WAREHOUSE))


def require_exists(warehouse: Warehouse, hint: str) -> None:
    """Raises SqlError UNDEFINED_OBJECT, with the given hint, if no warehouse exists at this path or URI."""
    if not warehouse.list_names(f"{warehouse.uri}/rw_catalog/migrations/_delta_log"):
        raise SqlError(UNDEFINED_OBJECT, f"there is no warehouse at {warehouse.uri}", hint=hint)
