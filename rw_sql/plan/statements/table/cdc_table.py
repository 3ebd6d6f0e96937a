"""Lowers CREATE TABLE … FROM source TABLE 'schema.table', which creates a copy of one upstream table of a change
data capture source."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.connectors.registry import change_connector, connector
from rw_sql.errors import INVALID_DEFINITION, NOT_SUPPORTED, SqlError
from rw_sql.metastore.records import LivePosition, Operation, PutObject, TableRecord
from rw_sql.model.definitions import (
    definition_of,
    field_of,
    has_snapshot,
    include_name,
    is_cdc,
    option_text,
    table_definition,
)
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.model.job_specs import named_splits
from rw_sql.model.object_lookup import find_source, find_table, object_name, require_free
from rw_sql.model.options import source_options
from rw_sql.plan.checks.cdc_tables import (
    RATE_LIMIT,
    check_against_upstream,
    check_cdc_table,
    check_options,
    no_key,
    notices_of_options,
    require_no_lack,
    require_representable,
)
from rw_sql.plan.checks.column_names import placed
from rw_sql.plan.checks.tables import check_table
from rw_sql.plan.result.plan import Plan, ResultRow
from rw_sql.plan.result.steps import after, steps_of
from rw_sql.plan.statements.common import nothing
from rw_sql.plan.statements.table.table import table_record
from rw_sql.syntax import canonical_type, parse_statement, render
from rw_sql.syntax.lexing.identifiers import literal, quoted
from rw_sql.syntax.statements import CreateTable, Option, TableConstraint

if TYPE_CHECKING:
    from rw_sql.connectors.changes import UpstreamTable
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import AlterSet, ColumnDefinition


_MS_PER_HOUR = 3_600_000


def lower_create_cdc_table(
    statement: CreateTable, snapshot: Snapshot, inspector: Inspector, query_dialect: str
) -> Plan:
    """Checks the statement and the upstream table, and creates the table in one commit.

    If the statement has ``*`` in place of columns, the table gets the columns and the primary key of the upstream
    table.
    """
    name, written = object_name(statement.name), statement
    if statement.if_not_exists and snapshot.find("table", name):
        return nothing(statement, name, f'table "{name}" already exists')
    require_free(snapshot, statement.name)
    source = _cdc_source(statement, snapshot)
    check_cdc_table(statement, connector(source.connector).spec)
    options = source_options(snapshot, source)
    statement, table = _with_known_name(statement, snapshot, source)
    has_columns = statement.wildcard is None
    upstream = inspector.upstreams.describe_table(source.connector, options, table, is_needed=not has_columns)
    stored = _with_columns(statement, upstream, source.connector)
    check_table(stored)
    if upstream is not None:
        check_against_upstream(stored, upstream)
    declared = _declared_types(stored)
    lacks = inspector.upstreams.find_lacks(source.connector, options, {table: declared})
    place = statement.cdc_table.span if statement.cdc_table is not None else statement.name.span
    require_no_lack(lacks, name, place, source.name)
    record = replace(
        table_record(snapshot, inspector, source, stored, query_dialect),
        name=name,
        source_id=None,
        created_at_ms=inspector.clock(),
        live_from=_live_from(stored, snapshot, inspector, source),
        backfill_rate_limit=_rate_limit(stored),
    )
    changes = (PutObject(record=record),)
    if not after(snapshot, changes).users_of(source.id):
        raise TypeError("the new table does not use its source")
    begins = "begins with the rows of" if has_snapshot(stored) else "reads only the new changes of"
    return Plan(
        statement=written,
        steps=steps_of(snapshot, changes),
        operation=Operation(kind="CREATE TABLE", statement=render(written), objects=(name,), changes=changes),
        changes=(
            ResultRow(object=name, change="CREATED", detail=f"{begins} {table}; {record.maintenance.reason}"),
            *(ResultRow(object=name, change="NOTICE", detail=notice) for notice in notices_of_options(statement)),
        ),
        affected=(source.id, record.id),
    )


def _live_from(statement: CreateTable, snapshot: Snapshot, inspector: Inspector, source: SourceRecord) -> LivePosition:
    """Returns the place in the source's log after which the new table reads changes.

    A table with a snapshot begins at the position of the source's reader. This position may be before the end of the
    server's log, for example because the source is paused. A table without a snapshot begins at the end of the server's
    log. If the server does not report this end, the table begins at the reader's position too.
    """
    # The hour before the current hour. The clock of this process is precise enough to determine this hour, because the
    # clocks of two processes differ by less than an hour.
    hour = inspector.clock() // _MS_PER_HOUR - 1
    fragment, options = ingest_fragment(source.id), source_options(snapshot, source)
    split = next(iter(named_splits(snapshot, source, snapshot.splits(fragment))), "")
    row = snapshot.states(fragment).get(split)
    state = inspector.positions.of(source.id).states.get(split)
    offset = 0 if state is None else state.offset
    if state is not None and not has_snapshot(statement):
        end = inspector.upstreams.look_again(source.connector, options).splits.get(split)
        if end is not None and end.cluster == state.cluster:
            offset = max(offset, end.end)
    run = inspector.positions.newest_run(source.id)
    return LivePosition(since=0 if row is None else row.epoch, offset=offset, hour=hour, split=split, run=run)


def _rate_limit(statement: CreateTable) -> int | None:
    """The maximum number of rows per second that are read from a table's snapshot; None if there is no limit."""
    given = {option.key: option_text(option.value) for option in statement.options}
    return int(given[RATE_LIMIT]) if RATE_LIMIT in given else None


def lower_alter_table_rate_limit(statement: AlterSet, snapshot: Snapshot) -> Plan:
    """Lowers ALTER TABLE t SET backfill_rate_limit, which changes the maximum number of rows per second that are read
    from the snapshot of t's upstream table.

    The change of the limit restarts the reader of the table's source.
    """
    table = find_table(snapshot, statement.name)
    if table.live_from is None:
        raise SqlError(
            NOT_SUPPORTED,
            f'table "{table.name}" has no snapshot to limit: it is not a table of a database',
            span=statement.parameter_span,
            hint="ALTER TABLE … SET source_rate_limit limits the rate of its source",
        )
    given = tuple(Option(key=RATE_LIMIT, value=value, span=value.span) for value in statement.values[:1])
    written = table_definition(table.definition)
    kept = tuple(option for option in written.options if option.key != RATE_LIMIT)
    merged = replace(written, options=(*kept, *given))
    check_options(merged)
    limit = _rate_limit(merged)
    if limit == table.backfill_rate_limit:
        return nothing(statement, table.name, f"{RATE_LIMIT} has this value already")
    changes = (PutObject(record=replace(table, definition=render(merged), backfill_rate_limit=limit)),)
    old, new = ("no limit" if rate is None else str(rate) for rate in (table.backfill_rate_limit, limit))
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, changes),
        operation=Operation(
            kind="ALTER TABLE SET", statement=render(statement), objects=(table.name,), changes=changes
        ),
        changes=(ResultRow(object=table.name, change="ALTERED", detail=f"{RATE_LIMIT}: {old} -> {new}"),),
        affected=(*table.inputs, table.id),
    )


def column_filled(statement: CreateTable) -> str:
    """Returns the end of the message "NULL in existing rows until …" about a new column of a table."""
    return "the table has been read again" if has_snapshot(statement) else "they change upstream"


def require_upstream_column(
    statement: CreateTable, field: str, snapshot: Snapshot, inspector: Inspector, source: SourceRecord
) -> None:
    """Raises SqlError if the upstream table does not have the declared primary key, or has no column ``field`` of a
    type that fits the declared type."""
    options = source_options(snapshot, source)
    table = _table_name(statement, change_connector(source.connector).table_prefix)
    upstream = inspector.upstreams.describe_table(source.connector, options, table, is_needed=False)
    if upstream is not None:
        check_against_upstream(statement, upstream, only=field)
    declared = {name: kind for name, kind in _declared_types(statement).items() if name == field}
    lacks = inspector.upstreams.find_lacks(source.connector, options, {table: declared})
    require_no_lack(lacks, statement.name.key, statement.name.span, source.name)


def _declared_types(statement: CreateTable) -> dict[str, str]:
    return {
        field_of(column): canonical_type(column.data_type) for column in statement.columns if column.generated is None
    }


def _cdc_source(statement: CreateTable, snapshot: Snapshot) -> SourceRecord:
    if statement.cdc_table is None:
        raise TypeError("the statement names no source")
    source = find_source(snapshot, statement.cdc_table.source)
    if not is_cdc(definition_of(source)):
        raise SqlError(
            INVALID_DEFINITION,
            f'source "{source.name}" has no tables: its connector is {source.connector}',
            span=statement.cdc_table.source.span,
            hint="FROM source TABLE '…' needs a source that captures a database: WITH (connector = 'postgres-cdc', …)",
        )
    return source


def _table_name(statement: CreateTable, prefix: tuple[str, str]) -> str:
    if statement.cdc_table is None:
        raise TypeError("the statement names no table")
    table = statement.cdc_table.table
    if "." not in table:
        raise SqlError(
            INVALID_DEFINITION,
            f"The upstream table name must contain {prefix[0]} name prefix, e.g. '{prefix[1]}.table'",
            span=statement.cdc_table.span,
            hint=f"TABLE {literal(f'{prefix[1]}.{table}')}",
        )
    return table


def _with_known_name(statement: CreateTable, snapshot: Snapshot, source: SourceRecord) -> tuple[CreateTable, str]:
    """Returns the statement, and the name of its upstream table. If another table of the source reads the same upstream
    table, both results have the spelling that the other table uses. The reader would treat two spellings as two
    upstream tables."""
    kind = change_connector(source.connector)
    table = _table_name(statement, kind.table_prefix)
    plain = kind.plain_name(table)
    for user in snapshot.users_of(source.id):
        known = table_definition(user.definition).cdc_table if isinstance(user, TableRecord) else None
        if known is not None and kind.plain_name(known.table) == plain:
            table = known.table
            break
    if statement.cdc_table is None:
        raise TypeError("the statement names no table")
    return replace(statement, cdc_table=replace(statement.cdc_table, table=table)), table


def _with_columns(statement: CreateTable, upstream: UpstreamTable | None, connector_name: str) -> CreateTable:
    """The statement in its stored form: with columns in place of ``*``, and with explicit names of INCLUDE columns."""
    include = tuple(replace(each, alias=include_name(connector_name, each)) for each in statement.include)
    stored = replace(statement, if_not_exists=False, include=include)
    if statement.wildcard is None:
        return stored
    if upstream is None:
        raise TypeError("the columns of the upstream table are unknown")
    if not upstream.key:
        raise no_key(statement, upstream)
    require_representable(statement, upstream)
    return replace(
        stored,
        wildcard=None,
        columns=placed(_declared(upstream), statement.name.span),
        constraints=(TableConstraint(kind="PRIMARY KEY", columns=upstream.key),),
    )


def _declared(upstream: UpstreamTable) -> tuple[ColumnDefinition, ...]:
    taken = (column for column in upstream.columns if column.canonical is not None)
    listed = ", ".join(f"{quoted(column.name)} {column.canonical}" for column in taken)
    made = parse_statement(f"CREATE TABLE t ({listed}) WITH (connector = 'c') FORMAT PLAIN ENCODE JSON")
    if not isinstance(made, CreateTable):
        raise TypeError("the parsed statement is not CREATE TABLE")
    return made.columns
