"""Stores the columns that were added to upstream tables, but that tables of the source lack. The source's notice in
SHOW JOBS shows these columns."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.errors import SqlError
from rw_sql.model.definitions import field_of, table_definition
from rw_sql.syntax import parse_statement
from rw_sql.syntax.lexing.identifiers import quoted, sql_name

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from rw_sql.connectors.changes import SchemaChange
    from rw_sql.metastore.records import SourceRecord, TableRecord
    from rw_sql.runtime.support.warehouse import Warehouse

_FILE = "columns.json"


@dataclass(slots=True)
class UnreadColumns:
    """The columns of each upstream table that were added while the source read the table. ``columns`` maps each
    upstream table to the names of these columns and their types in the database's notation. Columns that already
    existed when the source's tables were created are not included.

    The columns are stored in the file ``path``, because the notice must remain after a restart. Without a warehouse,
    they are only in memory.
    """

    warehouse: Warehouse | None = None
    path: str = ""
    columns: dict[str, dict[str, str]] = field(default_factory=dict)

    @staticmethod
    def of(warehouse: Warehouse, source: SourceRecord) -> UnreadColumns:
        """The stored columns of a source. A file that is not JSON counts as missing, because a damaged file must not
        prevent the source from starting."""
        path = f"{warehouse.read_ranges(source.id, source.generation)}.{_FILE}"
        stored: dict[str, dict[str, str]] | None = None
        with suppress(FileNotFoundError):
            stored = warehouse.read_json(path)
        return UnreadColumns(warehouse, path, stored or {})

    def note(self, change: SchemaChange, unread: Collection[str]) -> None:
        """Stores a change of an upstream table's columns. ``unread`` are those added columns that a table of the source
        lacks."""
        known = self.columns.get(change.table, {})
        kept = {name: change.retyped.get(name, kind) for name, kind in known.items() if name not in change.dropped}
        kept |= {name: change.added[name] for name in unread}
        if kept != known:
            self._store(change.table, kept)

    def _store(self, table: str, columns: dict[str, str]) -> None:
        self.columns[table] = columns
        if self.warehouse is not None:
            # The upstream reports a new column only once.
            self.warehouse.write_text(self.path, json.dumps(self.columns, sort_keys=True), is_durable=True)

    def notice(self, table: str, tables: Sequence[TableRecord], known: Collection[str]) -> str | None:
        """The notice about an upstream table. ``tables`` are the tables that read this upstream table. The result is
        None if all of them read every added column.

        ``known`` are the present columns of the upstream table; empty if they are not known yet. If no table lacks a
        stored column any more, the column is forgotten, because a table that is created later leaves the column out on
        purpose.
        """
        columns = {name: kind for name, kind in self.columns.get(table, {}).items() if not known or name in known}
        missing = lacking(tables, known, columns)
        found = {name: columns[name] for name, without in missing.items() if without}
        if tables and len(found) < len(missing):
            self._store(table, {name: kind for name, kind in self.columns[table].items() if missing.get(name) != []})
        if not found:
            return None
        listed = ", ".join(f"{name} {kind}" for name, kind in found.items())
        added = "; ".join(_addition(record, name, found[name]) for name in found for record in missing[name])
        return f"table {table} has new columns upstream: {listed}: {added}"


def _addition(table: TableRecord, name: str, kind: str) -> str:
    """The statement that adds a column to a table. If the upstream type is not a type of rw_sql's dialect, the
    statement has an ellipsis in place of the type."""
    text = f"ALTER TABLE {sql_name(table.name)} ADD COLUMN {quoted(name)}"
    try:
        parse_statement(f"{text} {kind}")
    except SqlError:
        return f"{text} …"
    return f"{text} {kind}"


def _fields(table: TableRecord) -> frozenset[str]:
    """The upstream columns that a table reads."""
    columns = table_definition(table.definition).columns
    return frozenset(field_of(column) for column in columns if column.generated is None)


def lacking(
    tables: Sequence[TableRecord], known: Collection[str], added: Collection[str]
) -> dict[str, list[TableRecord]]:
    """Maps each upstream column in ``added`` to the tables that lack this column. ``known`` are the upstream columns
    that are not in ``added``.

    If at least one table reads a column, the result for this column contains only those of the other tables that read
    all columns in ``known``. The remaining tables leave out columns on purpose.
    """
    fields = {record.id: _fields(record) for record in tables}
    found: dict[str, list[TableRecord]] = {}
    for name in added:
        without = [record for record in tables if name not in fields[record.id]]
        is_read = len(without) < len(tables)
        found[name] = [record for record in without if not is_read or fields[record.id].issuperset({*known} - {*added})]
    return found
