"""Describes the inputs of tables, views and sinks in the form in which the jobs use them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.metastore.records import (
    DeltaTableRecord,
    LivePosition,
    MaterializedViewRecord,
    SinkRecord,
    SourceRecord,
    TableRecord,
)
from rw_sql.model.backfill_ranges import History
from rw_sql.model.definitions import (
    CHANGE_COLUMN,
    INDEX_COLUMN,
    UNCHANGED_COLUMN,
    cdc_rows,
    definition_of,
    has_changes,
    has_index,
    has_unchanged,
    has_wide_offsets,
    is_cdc,
    named_fields,
    source_columns,
    source_watermark,
    table_definition,
)
from rw_sql.model.relations import changes_rows, kept_watermark, schema_columns, seen_columns, stored_columns
from rw_sql.syntax import render
from rw_sql.syntax.lexing.identifiers import quoted_for_spark

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore import Snapshot

_LATER = ("_rw_batch", INDEX_COLUMN[0])
"""The hidden columns that are missing in logs that older versions of rw_sql created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewInput:
    """One relation that a table, view or sink reads. The relation is the log of a source, or the rows of a table or
    view.

    ``columns`` are the columns that queries can see. If a table with a primary key reads a log, ``columns`` also
    contains the log's columns for the order and kind of changes. ``stored`` are the columns of the input's files.
    ``aliases`` are the pairs (column, name in the files) for columns whose names differ. If the input's rows are
    replaced, ``keys`` are the columns, including hidden columns, that identify a row. If rows are only appended,
    ``keys`` is empty. ``history`` describes the backfill; None if the log is read from the beginning (see
    :mod:`rw_sql.model.backfill_ranges`). ``path`` is the path of an external Delta table; empty for any other input.
    ``has_feed`` is True if the external table has a change feed. A table of a change data capture source decodes its
    input itself. For such a table, ``decoded_by`` is the source definition that describes the table's rows
    (:func:`rw_sql.model.definitions.cdc_rows`), and ``live_from`` is the field with the same name in the table's
    record.
    """

    id: int
    name: str
    kind: str
    generation: int
    columns: tuple[str, ...]
    stored: tuple[str, ...]
    watermark: tuple[str, str] | None
    keys: tuple[str, ...] = ()
    history: str = ""
    path: str = ""
    has_feed: bool = False
    aliases: tuple[tuple[str, str], ...] = ()
    decoded_by: str = ""
    live_from: LivePosition | None = None

    @property
    def selected(self) -> tuple[str, ...]:
        """The SELECT list that computes ``columns`` from the columns of the files."""
        return self.selection(self.columns)

    def selection(self, columns: Iterable[str]) -> tuple[str, ...]:
        """The SELECT list that computes the given columns, which may be hidden columns, from the columns of the
        files."""
        stored = dict(self.aliases)
        return tuple(
            f"{quoted_for_spark(stored[name])} AS {quoted_for_spark(name)}"
            if name in stored
            else quoted_for_spark(name)
            for name in columns
        )

    @property
    def is_changing(self) -> bool:
        """True if rows of the input may be replaced or deleted. Such an input is read through its change data feed."""
        return bool(self.keys) or self.has_feed


def view_inputs(snapshot: Snapshot, view: MaterializedViewRecord | SinkRecord) -> tuple[ViewInput, ...]:
    """The inputs of a view or sink."""
    found = []
    texts = view.histories if isinstance(view, MaterializedViewRecord) else ()
    histories = {History.from_text(text).source_id: text for text in texts}
    for input_id in view.inputs:
        record = snapshot.get(input_id)
        columns: tuple[str, ...] = ()
        aliases: tuple[tuple[str, str], ...] = ()
        watermark = None
        stored: tuple[str, ...] | None = None
        decoded_by, live_from = "", None
        if isinstance(record, SourceRecord):
            statement, seen = definition_of(record), seen_columns(record, view)
            if isinstance(view, TableRecord) and view.live_from is not None:
                stored = tuple(name for name, _ in seen)
                statement = cdc_rows(table_definition(view.definition))
                seen = source_columns(statement)
                decoded_by, live_from = render(statement), view.live_from
            names = named_fields(table_definition(view.definition)) if isinstance(view, TableRecord) else {}
            columns = tuple(names.get(name, name) for name, _ in seen)
            aliases = tuple((name, field) for field, name in names.items())
            watermark = source_watermark(statement)
            if isinstance(view, TableRecord) and view.primary_key:
                # If a table was created before one of these columns existed, its query lacks that column.
                hidden = [name for name, _ in order_columns(record)]
                columns += tuple(name for name in hidden if name not in _LATER or name in view.maintenance.query)
                # keyed_query makes the table's query select this column.
                columns += (UNCHANGED_COLUMN[0],) if has_unchanged(statement) else ()
        elif isinstance(record, MaterializedViewRecord):
            columns = tuple(name for name, _ in seen_columns(record, view))
            aliases = record.stored_names if isinstance(record, TableRecord) else ()
            watermark = kept_watermark(record)
        elif isinstance(record, DeltaTableRecord):
            columns = tuple(name for name, _ in schema_columns(record.schema))
        else:
            raise LookupError(f"{view.kind} {view.name} reads object {input_id}, which is not in the catalog")
        found.append(
            ViewInput(
                id=record.id,
                name=record.name,
                kind=record.kind,
                generation=record.generation,
                columns=columns,
                stored=(
                    _stored(record)
                    if isinstance(record, TableRecord)
                    else stored
                    if stored is not None
                    else tuple(dict(aliases).get(name, name) for name in columns)
                ),
                watermark=watermark,
                keys=record.keys if isinstance(record, MaterializedViewRecord) else (),
                history=histories.get(record.id, ""),
                path=record.path if isinstance(record, DeltaTableRecord) else "",
                has_feed=isinstance(record, DeltaTableRecord) and record.has_change_feed,
                aliases=aliases,
                decoded_by=decoded_by,
                live_from=live_from,
            )
        )
    return tuple(found)


def _stored(table: TableRecord) -> tuple[str, ...]:
    """The columns of a table's files, including columns that its job has not added yet."""
    return (*(stored for _, stored in stored_columns(table)), *table.dropped_columns)


def keyed_query(table: TableRecord) -> str:
    """Returns the query with which a table with a primary key reads the log of its source. If the log has the column
    UNCHANGED_COLUMN, the result selects this column too."""
    query = table.maintenance.query
    if not has_unchanged(table_definition(table.definition)):
        return query
    head, _, source = query.rpartition(" FROM ")
    return f"{head}, `{UNCHANGED_COLUMN[0]}` FROM {source}"


def order_columns(source: SourceRecord) -> tuple[tuple[str, str], ...]:
    """Returns the hidden columns of a source's log that determine which record of a key is the newest. Each column
    comes with its type."""
    statement = definition_of(source)
    offset = ("_rw_offset", "STRING" if has_wide_offsets(statement) else "BIGINT")
    order: tuple[tuple[str, str], ...] = (
        ("_rw_run", "BIGINT"),
        ("_rw_batch", "BIGINT"),
        ("_rw_split", "STRING"),
        offset,
    )
    if has_index(statement):
        order = (*order, INDEX_COLUMN)
    return (*order, *((CHANGE_COLUMN,) if is_cdc(statement) or has_changes(statement) else ()))


def fed_by(snapshot: Snapshot, reader: MaterializedViewRecord | SinkRecord) -> frozenset[int]:
    """Returns the ids of the inputs whose change feeds the object's job reads, because rows of these inputs are
    replaced or deleted. The result is empty for a sink with a query."""
    if isinstance(reader, SinkRecord) and reader.query:
        return frozenset()
    inputs = (snapshot.get(id_) for id_ in reader.inputs)
    return frozenset(record.id for record in inputs if record is not None and changes_rows(record))
