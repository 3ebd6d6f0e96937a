"""Finds refreshable tables whose Delta table is lost, and merges of a refresh whose staging table is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.metastore.refresh_records import FINISHING
from rw_sql.model.refresh_states import left_chunks
from rw_sql.runtime.delta.delta_log import last_batch, latest_version
from rw_sql.syntax.lexing.identifiers import sql_name

if TYPE_CHECKING:
    from rw_sql.metastore.refresh_records import RefreshRecord
    from rw_sql.runtime.support.warehouse import Warehouse


@dataclass(frozen=True, slots=True, kw_only=True)
class LostTable:
    """``word`` is the first word of the stall reason. ``problem`` is a clause whose subject is the refreshable table,
    and ``remedy`` is the recommended action."""

    word: str
    problem: str
    remedy: str


def find_lost_table(warehouse: Warehouse, record: RefreshRecord, generation: int) -> LostTable | None:
    """Returns the table that a refreshable table has lost; None if it has lost no table. ``generation`` is the
    generation of the refreshable table.

    A table that was never refreshed has nothing to lose. A merge needs the staging table until its last chunk is
    merged.
    """
    path = warehouse.data(record.table_id, generation)
    again = f"DROP TABLE {sql_name(record.name)} and create it again"
    if record.succeeded_ms is None and record.status != FINISHING:
        return None
    if latest_version(warehouse, path) < 0:
        problem = f"has been refreshed, but its table {path} no longer exists"
        return LostTable(word="TABLE", problem=problem, remedy=f"restore the table, or {again}")
    if record.status != FINISHING:
        return None
    staging = warehouse.staging(record.table_id, generation)
    staging = staging if warehouse.is_local else f"{staging}/{record.refresh}"
    # The job deletes the staging table after it has merged the last chunk, so the merged chunks are read last.
    is_missing = latest_version(warehouse, staging) < 0
    left = len(left_chunks(record, last_batch(warehouse, path, generation)))
    if not is_missing or not left:
        return None
    problem = (
        f"has {left} of {record.chunks} chunks of its refresh to merge, but their rows in {staging} no longer exist"
    )
    return LostTable(word="STAGING", problem=problem, remedy=f"restore the folder, or {again}")
