"""Removes the files that an interrupted start leaves in a query's checkpoint.

Spark and rw_sql write a checkpoint's file under a temporary name and then rename it. If the process is killed or
stopped between these two steps, the temporary file remains. Spark ignores this file from the second batch on. However,
if a query has no batch yet, Spark refuses to start the query on a checkpoint that is not empty
(STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY, Spark 4.1 and later).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rw_sql.runtime.support.warehouse import Warehouse

_FOLDERS = ("offsets", "commits")


def remove_leftovers(warehouse: Warehouse, checkpoint: str) -> None:
    """If no batch is planned in a checkpoint, removes all temporary files from it. Otherwise, changes nothing.

    No query may run on the checkpoint.
    """
    found = {folder: warehouse.list_names(f"{checkpoint}/{folder}") for folder in _FOLDERS}
    if any(name.isdecimal() for names in found.values() for name in names):
        return
    for folder, names in found.items():
        for name in names:
            warehouse.remove(f"{checkpoint}/{folder}/{name}")
