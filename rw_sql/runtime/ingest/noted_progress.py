"""Reads and stores the progress of the snapshots of a change data capture source. This progress is in commits of the
source's log, and in a file beside the log, the note."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rw_sql.connectors.changes import TableProgress
from rw_sql.runtime.delta.delta_log import standing_commits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.metastore.records import SourceRecord
    from rw_sql.runtime.support.warehouse import Warehouse

_NOTE = "tables.json"


def stored_progress(warehouse: Warehouse, source: SourceRecord) -> dict[str, tuple[str, TableProgress]]:
    """Maps each upstream table to the name and the progress of its snapshot. The values come from the newest commit of
    the log that contains such values. If no commit after the note contains any, the values come from the note."""
    noted_at, noted = _note(warehouse, source)
    for version, commit in standing_commits(warehouse, warehouse.data(source.id, source.generation)):
        if version <= noted_at:
            break
        if commit.tables:
            return _read(commit.tables)
    return _read(noted)


def note_progress(warehouse: Warehouse, source: SourceRecord, version: int) -> None:
    """Stores the progress as of ``version`` in the note. Must be called before the commits up to that version are
    cleaned up, because the progress may be only in these commits.

    The progress in later commits is left out, because a REWIND may revert these commits but cannot revert the note.
    Like :func:`note_stretches`, this function does not read later commits.
    """
    noted_at, noted = _note(warehouse, source)
    if version <= noted_at:
        return
    table = warehouse.data(source.id, source.generation)
    standing = standing_commits(warehouse, table, down_to=noted_at + 1, newest=version)
    found = next((commit.tables for _, commit in standing if commit.tables), noted)
    if found:
        body = {"version": version, "tables": dict(found)}
        warehouse.write_text(_path(warehouse, source), json.dumps(body), is_durable=True)


def written_progress(tables: Mapping[str, tuple[str, TableProgress]]) -> dict[str, list[str]]:
    """The progress in the form in which a commit stores it."""
    return {table: [snapshot, progress.to_json()] for table, (snapshot, progress) in tables.items()}


def _read(tables: Mapping[str, list[str]]) -> dict[str, tuple[str, TableProgress]]:
    return {table: (snapshot, TableProgress.from_json(text)) for table, (snapshot, text) in tables.items()}


def _path(warehouse: Warehouse, source: SourceRecord) -> str:
    return f"{warehouse.read_ranges(source.id, source.generation)}.{_NOTE}"


def _note(warehouse: Warehouse, source: SourceRecord) -> tuple[int, dict[str, list[str]]]:
    try:
        body = json.loads(warehouse.read_text(_path(warehouse, source)))
    except FileNotFoundError:
        return -1, {}
    return int(body["version"]), dict(body["tables"])
