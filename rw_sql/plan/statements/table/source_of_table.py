"""Changes a table's definition when the definition of its source changes, so that the two stay consistent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.metastore.records import PutObject, SourceRecord, TableRecord
from rw_sql.model.definitions import definition_of, table_definition, with_source
from rw_sql.plan.result.steps import steps_of
from rw_sql.syntax import render

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change, ObjectRecord
    from rw_sql.plan.result.plan import Plan

RESHAPING = (
    "ADD COLUMN",
    "DROP COLUMN",
    "RENAME TABLE",
    "RENAME SOURCE",
    "SWAP TABLE",
    "SWAP SOURCE",
    "REFRESH SCHEMA",
)
"""The kinds of operations after which a table's definition can no longer be derived from an older definition of its
source."""


def added_fields(snapshot: Snapshot, source: SourceRecord) -> int:
    """The number of columns that ALTER TABLE … ADD COLUMN has added at the end of a source. Older records lack these
    columns."""
    table = snapshot.table_of(source.id)
    if table is None:
        return 0
    added = {name for name, _ in table.added_columns}
    columns = table_definition(table.definition).columns
    return sum(column.generated is None and column.name in added for column in columns)


def with_tables(snapshot: Snapshot, plan: Plan) -> Plan:
    """Returns the plan. If the plan changes the source of a table, the result also changes the definition of this
    table."""
    operation = plan.operation
    if operation is None:
        return plan
    changes = following(snapshot, operation.changes)
    if changes == operation.changes:
        return plan
    return replace(plan, operation=replace(operation, changes=changes), steps=steps_of(snapshot, changes))


def following(snapshot: Snapshot, changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """Returns the changes. For each changed source that belongs to a table, the result also contains the change to the
    table's definition."""
    told = {change.record.id for change in changes if isinstance(change, PutObject)}
    sources = {
        c.record.id: c.record for c in changes if isinstance(c, PutObject) and isinstance(c.record, SourceRecord)
    }
    more: list[Change] = []
    for source in sources.values():
        table = snapshot.table_of(source.id)
        if table is None or table.id in told:
            continue
        definition = render(with_source(table_definition(table.definition), definition_of(source)))
        if definition != table.definition:
            more.append(PutObject(record=replace(table, definition=definition)))
    return (*changes, *more)


def without_tables(changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """Returns the changes without the changes to tables. :func:`following` derives the changes to tables from the
    changes to the tables' sources."""
    return tuple(c for c in changes if not (isinstance(c, PutObject) and isinstance(c.record, TableRecord)))


def follows_source(old: ObjectRecord | None, new: ObjectRecord | None) -> bool:
    """True if two records of a table differ at most in the definition. This is the case after a change to the
    properties of the table's source."""
    if not isinstance(old, TableRecord) or not isinstance(new, TableRecord):
        return False
    return replace(old, definition=new.definition) == new
