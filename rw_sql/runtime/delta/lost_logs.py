"""Finds sources whose log is lost or too old. A log is lost if the positions of its source refer to a log that does not
exist. A log is too old if the positions refer to a version after the log's last version, for example because the log
was restored from a backup that is older than the positions.

A missing log does not count as lost if no job has created it yet, or if statements have set all positions of the source
since the loss. In these two cases, no position refers to a version of the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.registry import connector, connector_names
from rw_sql.metastore.records import FORGOTTEN
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.runtime.delta.delta_log import latest_version
from rw_sql.runtime.support.failures import StalledError
from rw_sql.syntax.lexing.identifiers import sql_name

if TYPE_CHECKING:
    from rw_sql.metastore import Metastore, Snapshot
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.runtime.support.warehouse import Warehouse


def noted_version(metastore: Metastore, source: SourceRecord) -> int:
    """The newest version of a source's log to which a position of the source refers; -1 if no position refers to the
    log."""
    fragment = ingest_fragment(source.id)
    notes = metastore.jobs.noted_positions(fragment)
    newest = -1
    for split, row in metastore.snapshot().states(fragment).items():
        if row.state == FORGOTTEN:
            continue
        # The note without a split is valid for all splits.
        counted = [note.log_version for note in map(notes.get, (split, "")) if note is not None and note.counts(row)]
        newest = max(newest, row.log_version, *counted)
    return newest


def require_log(warehouse: Warehouse, metastore: Metastore, source: SourceRecord) -> None:
    """Raises StalledError if a source's log is lost or too old. Without this check, the reader would continue at the
    stored positions, with a new, empty log or with the old log. The rows that the log lacks would then be missing
    without any message."""
    path = warehouse.data(source.id, source.generation)
    # A job commits to the log before it stores the position, so the position is read first.
    version = noted_version(metastore, source)
    if version < 0 or (newest := latest_version(warehouse, path)) >= version:
        return
    what = f"{path} no longer exists" if newest < 0 else f"{path} ends at version {newest}"
    raise StalledError(
        f"LOG {'lost' if newest < 0 else 'too old'}: the positions of source {source.name} are those after version "
        f"{version} of its log, but {what}: {log_remedy(metastore.snapshot(), source)}",
        is_lasting=True,
    )


def log_remedy(snapshot: Snapshot, source: SourceRecord) -> str:
    """The recommended action for a source whose log is lost or too old."""
    name = sql_name(source.name)
    # The package of a third party's connector may be missing here.
    is_known = source.connector in connector_names()
    if is_known and getattr(connector(source.connector), "immovable", None) is not None:
        kind = "SOURCE" if snapshot.table_of(source.id) is None else "TABLE"
        return (
            f"restore a backup of the warehouse, or copy the rows that are left, DROP {kind} {name} CASCADE, and "
            "create it and what reads it again: its upstream does not send the records again"
        )
    return (
        f"restore a backup of the warehouse, or read the source again: RESET SOURCE SPLITS {name} "
        "WITH (FORGET_OFFSETS = true), and then rebuild what reads it"
    )
