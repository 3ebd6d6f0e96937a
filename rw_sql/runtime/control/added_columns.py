"""Adds the columns that appear in the tables of a captured database to the tables of its change data capture source.
The option ``auto.schema.change`` enables this."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rw_sql.connectors.changes import CaptureError
from rw_sql.errors import SqlError
from rw_sql.metastore import ConcurrentCommit
from rw_sql.metastore.records import Operation, SourceRecord, TableRecord
from rw_sql.model.definitions import field_of, table_definition
from rw_sql.model.options import source_options
from rw_sql.plan.result.steps import after
from rw_sql.plan.statements.table.columns import lower_add_column
from rw_sql.runtime.control.inspector import WarehouseInspector
from rw_sql.syntax import parse_statement
from rw_sql.syntax.lexing.identifiers import quoted, sql_name
from rw_sql.syntax.statements import AlterAddColumn

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change
    from rw_sql.runtime.jobs.context import Context

logger = logging.getLogger(__name__)


def add_columns(context: Context, source_id: int, table: str, known: Collection[str], added: Mapping[str, str]) -> bool:
    """Adds the new columns ``added`` of an upstream table to those tables of the source that read all its other columns
    (``known``). All columns are added in one operation.

    Columns in ``known`` that the upstream table no longer has do not count. For example, if a column is renamed
    upstream, and a user drops the old column from a table, this table still gets the column with the new name. Returns
    False if no column was added, for example because the type of the column is not supported. Errors are logged. If
    another statement was committed at the same time, no column is added, but the result is True: the source's reader
    restarts and tries again.
    """
    snapshot = context.metastore.snapshot()
    source = snapshot.get(source_id)
    if not isinstance(source, SourceRecord):
        return False
    inspector = WarehouseInspector(context, snapshot)
    changes: list[Change] = []
    statements: list[str] = []
    try:
        options = source_options(snapshot, source)
        upstream = inspector.upstreams.describe_table(source.connector, options, table, is_needed=True)
        types = {column.name: column.canonical for column in upstream.columns} if upstream is not None else {}
        fields = dict(_tables(snapshot, source, table, types.keys() & set(known)))
        for name in fields:
            for column in added:
                if column in fields[name]:
                    continue
                if types.get(column) is None:
                    logger.warning(
                        "source %s: the type of column %s of table %s is not supported", source.name, column, table
                    )
                    continue
                text = f"ALTER TABLE {sql_name(name)} ADD COLUMN IF NOT EXISTS {quoted(column)} {types[column]}"
                statement = parse_statement(text)
                if not isinstance(statement, AlterAddColumn):
                    raise TypeError(f"{text} adds a column")
                plan = lower_add_column(statement, after(snapshot, tuple(changes)), inspector)
                if plan.operation is not None:
                    changes += plan.operation.changes
                    statements.append(plan.operation.statement)
        if not changes:
            return False
        operation = Operation(
            kind="ADD COLUMN",
            statement="; ".join(statements),
            objects=tuple(fields),
            changes=tuple(changes),
            actor=context.owner,
        )
        context.metastore.commit(operation, based_on=snapshot)
    except ConcurrentCommit:
        return True  # The reader restarts, finds the new columns once more, and adds them then.
    except (CaptureError, SqlError) as error:
        logger.warning("source %s: columns of table %s are not added: %s", source.name, table, error)
        return False
    return True


def _tables(
    snapshot: Snapshot, source: SourceRecord, table: str, known: Collection[str]
) -> Iterator[tuple[str, frozenset[str]]]:
    """The source's tables that read all columns ``known`` of an upstream table, each with the columns that it reads."""
    for user in snapshot.users_of(source.id):
        if isinstance(user, TableRecord) and user.live_from is not None:
            written = table_definition(user.definition)
            fields = frozenset(field_of(column) for column in written.columns)
            if written.cdc_table is not None and written.cdc_table.table == table and fields.issuperset(known):
                yield user.name, fields
