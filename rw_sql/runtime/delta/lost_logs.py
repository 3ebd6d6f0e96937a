"""Finds sources whose log is lost. A log is lost if the positions of its source refer to a log that does not exist.

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
    """Raises StalledError if a source's log is lost. Without this check, a new, empty log would be created, and the
    reader would continue at the old positions. The rows of the lost log would then be missing without any message."""
    path = warehouse.data(source.id, source.generation)
    # A job stores a position after it has created the log, so the position is read first.
    version = noted_version(metastore, source)
    if version >= 0 and latest_version(warehouse, path) < 0:
        raise StalledError(
            f"LOG lost: the positions of source {source.name} are those after version {version} of its log, but "
            f"{path} no longer exists: {log_remedy(metastore.snapshot(), source)}",
            is_lasting=True,
        )


def log_remedy(snapshot: Snapshot, source: SourceRecord) -> str:
    """The recommended action for a source whose log is lost."""
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
