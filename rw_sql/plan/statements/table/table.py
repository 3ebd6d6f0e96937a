"""Lowers CREATE TABLE, DROP TABLE and DROP CONNECTOR. A table with a connector has a source of its own, and contains
the rows that result from the records of this source."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.connectors.registry import connector
from rw_sql.connectors.support.nullable_schemas import nullable_schema
from rw_sql.errors import CANNOT_REFRESH, INVALID_EXPRESSION, NOT_SUPPORTED, SqlError
from rw_sql.metastore.records import (
    KEYED,
    DropObject,
    ForgetSplitStates,
    Maintenance,
    Operation,
    PutObject,
    SourceRecord,
    TableRecord,
    UnassignSplits,
)
from rw_sql.metastore.refresh_records import FINISHING
from rw_sql.model.definitions import (
    PAUSED_AT_BIRTH,
    cdc_rows,
    has_changes,
    include_name,
    named_fields,
    primary_key,
    source_columns,
    source_of_table,
    table_definition,
)
from rw_sql.model.job_ids import reader_fragment, view_job
from rw_sql.model.object_lookup import find_source_of, find_table, object_name, require_free
from rw_sql.model.parameters import streaming_parallelism
from rw_sql.model.refresh_states import refresh_of
from rw_sql.model.relations import relation_of
from rw_sql.model.resource_groups import written_group
from rw_sql.model.source_readers import forget_fragments
from rw_sql.model.view_inputs import order_columns
from rw_sql.plan.checks.cdc_tables import require_source_between
from rw_sql.plan.checks.columns import is_validated, without_switch
from rw_sql.plan.checks.schemas import with_schema
from rw_sql.plan.checks.tables import check_runnable, check_table, conflict_of, table_columns
from rw_sql.plan.ports.queries import WHOLE
from rw_sql.plan.result.plan import Plan, ResultRow
from rw_sql.plan.result.steps import after, steps_of
from rw_sql.plan.statements.common import begin_reading, drop_plan, drop_with_dependents, nothing
from rw_sql.plan.statements.source.source import forget_source, lower_create_source
from rw_sql.plan.statements.table.refreshable import lower_create_refreshable, refresh_options
from rw_sql.syntax import parse_statement, render, spark_type
from rw_sql.syntax.dialect.to_spark import to_spark
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.statements import ColumnDefinition, CreateSource, Query

if TYPE_CHECKING:
    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import AlterTableDropConnector, CreateTable, DropTable, Expression, IncludeColumn


def lower_create_table(statement: CreateTable, snapshot: Snapshot, inspector: Inspector, query_dialect: str) -> Plan:
    """Lowers CREATE TABLE with a connector. Checks the statement and the upstream, and creates the table and its source
    in one commit."""
    name = object_name(statement.name)
    if statement.if_not_exists and snapshot.find("table", name):
        return nothing(statement, name, f'table "{name}" already exists')
    require_free(snapshot, statement.name)
    require_source_between(statement)
    statement = with_schema(statement, snapshot, inspector)
    check_runnable(statement)
    check_table(statement)
    refreshed = refresh_options(statement)
    if refreshed.is_full:
        must_fit = is_validated(statement.options)
        statement = replace(statement, options=without_switch(statement.options))

        def make(then: Snapshot, source: SourceRecord) -> TableRecord:
            return table_record(then, inspector, source, statement, query_dialect)

        return lower_create_refreshable(statement, snapshot, inspector, refreshed, make, must_fit=must_fit)
    source_plan = lower_create_source(source_of_table(statement), snapshot, inspector, is_of_table=True)
    if source_plan.operation is None:
        raise TypeError("the plan of the new source has no operation")
    then = after(snapshot, source_plan.operation.changes)
    source = then.find("source", name)
    if source is None:
        raise TypeError("the new source is not in the resulting catalog")
    record = table_record(then, inspector, source, statement, query_dialect)
    changes: list[Change] = [*source_plan.operation.changes, PutObject(record=record)]
    if not source.is_shared:
        changes += begin_reading(then, inspector, source, record, (), statement.name.span)
    splits = source_plan.changes[0].detail
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, tuple(changes)),
        operation=Operation(kind="CREATE TABLE", statement=render(statement), objects=(name,), changes=tuple(changes)),
        changes=(ResultRow(object=name, change="CREATED", detail=f"{splits}; {record.maintenance.reason}"),),
        affected=(source.id, record.id),
    )


def table_record(
    snapshot: Snapshot,
    inspector: Inspector,
    source: SourceRecord,
    statement: CreateTable,
    query_dialect: str,
    stored_names: tuple[tuple[str, str], ...] = (),
) -> TableRecord:
    """The catalog record of a new table over a source. Raises SqlError if the table's expressions are invalid."""
    key = primary_key(statement)
    query = table_query(statement, query_dialect)
    own = relation_of(source)
    if statement.cdc_table is not None:
        query = reading(query, source.name)
        own = replace(own, columns=source_columns(cdc_rows(statement)))
    names = named_fields(statement)
    relation = replace(own, columns=tuple((names.get(name, name), kind) for name, kind in own.columns))
    if key:
        relation = replace(relation, columns=(*relation.columns, *order_columns(source)))
    found = inspector.queries.analyze(query, (relation,), form=WHOLE)
    if found.refusal is not None:
        raise _refused(statement, found.refusal, found.hint)
    rows = query
    if key:
        rows = _with_columns(query, relation.columns[len(own.columns) :])
    kept = tuple(option for option in statement.options if option.key != PAUSED_AT_BIRTH)
    definition = replace(statement, if_not_exists=False, options=kept)
    return TableRecord(
        id=snapshot.next_id,
        name=source.name,
        definition=render(definition),
        query=query,
        inputs=(source.id,),
        schema=nullable_schema(found.schema),
        keys=() if statement.is_append_only else key,
        dialect=query_dialect,
        created_at_ms=source.created_at_ms,
        maintenance=Maintenance(strategy=KEYED if key else "", reason=_how_kept(statement, key), query=rows),
        source_id=source.id,
        primary_key=key,
        conflict=conflict_of(statement),
        version_columns=statement.version_columns,
        is_append_only=statement.is_append_only or not key,
        stored_names=stored_names,
        parallelism=streaming_parallelism(snapshot),
        resource_group=written_group(statement.options),
    )


def _how_kept(statement: CreateTable, key: tuple[str, ...]) -> str:
    if not key:
        return "rows are only appended"
    keys = ", ".join(key)
    if statement.is_append_only:
        return f"the first row of each ({keys}) is appended"
    return f"rows are replaced by key ({keys})" + (", and deleted by it" if has_changes(statement) else "")


def table_query(statement: CreateTable, dialect: str) -> str:
    """The Spark SQL query that computes a table's columns from a row of its source."""
    declared = {column.name: column for column in statement.columns}
    items = []
    for name, kind in table_columns(statement):
        column = declared.get(name)
        quoted = _quoted(name)
        if column is None or (column.generated is None and column.default is None):
            items.append(quoted)
        elif column.generated is not None:
            items.append(f"CAST(({_expression(column.generated, dialect)}) AS {kind}) AS {quoted}")
        elif column.default is not None:
            value = f"CAST(({_expression(column.default, dialect)}) AS {spark_type(column.data_type)})"
            items.append(f"coalesce({quoted}, {value}) AS {quoted}")
    return f"SELECT {', '.join(items)} FROM {_quoted(object_name(statement.name))}"


def _with_columns(query: str, more: tuple[tuple[str, str], ...]) -> str:
    head, _, table = query.rpartition(" FROM ")
    return f"{head}, {', '.join(_quoted(name) for name, _ in more)} FROM {table}"


def reading(query: str, name: str) -> str:
    """Returns a table's query, which reads the table's source under the name ``name``."""
    return f"{query.rpartition(' FROM ')[0]} FROM {_quoted(name)}"


def _expression(expression: Expression, dialect: str) -> str:
    if dialect != "risingwave":
        return expression.text
    text = to_spark(Query(text=f"SELECT {expression.text} AS x", span=expression.span)).text
    return text.removeprefix("SELECT ").removesuffix(" AS x")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _refused(statement: CreateTable, why: str, hint: str | None) -> SqlError:
    written = [e for c in statement.columns for e in (c.generated, c.default) if e is not None]
    span: Span = written[0].span if written else statement.name.span
    return SqlError(INVALID_EXPRESSION, why, span=span, hint=hint)


def lower_drop_table(statement: DropTable, snapshot: Snapshot) -> Plan:
    """Lowers DROP TABLE, which drops the table and its source.

    The statement fails if views or sinks read the table. With CASCADE, it drops these views and sinks too.
    """
    name = object_name(statement.name)
    if statement.if_exists and snapshot.find("table", name) is None:
        return nothing(statement, name, f'table "{name}" does not exist')
    table = find_table(snapshot, statement.name)
    changes = drop_with_dependents(snapshot, table.id, "table", name, statement.name.span, statement.is_cascade)
    source = snapshot.get(table.source_id) if table.source_id is not None else None
    if isinstance(source, SourceRecord):
        changes.append(DropObject(id=source.id))
    changes += forget_fragments(snapshot, [change.id for change in changes if isinstance(change, DropObject)])
    if isinstance(source, SourceRecord):
        changes += forget_source(snapshot, source)
    refresh = refresh_of(snapshot, table.id)
    if refresh is not None:
        changes.append(DropObject(id=refresh.id))
    plan = drop_plan(statement, snapshot, "DROP TABLE", changes)
    rows = tuple(row for row in plan.changes if (row.object, row.detail) != (name, "source"))
    return replace(plan, changes=rows)


def lower_drop_connector(statement: AlterTableDropConnector, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers ALTER TABLE … DROP CONNECTOR, which drops the table's source. The table, its rows and its readers
    remain."""
    table = find_table(snapshot, statement.name)
    source = find_source_of(snapshot, "TABLE", statement.name)
    status = inspector.jobs.statuses().get(view_job(table.id))
    if table.added_columns and status is not None and status.state == "STALLED":
        raise SqlError(
            NOT_SUPPORTED,
            f"the job of table '{table.name}' does not run, and may not have added the new columns yet: "
            f"{status.reason}",
            span=statement.name.span,
            hint=f"RESUME SOURCE {sql_name(table.name)} if it is paused, then repeat this statement; SHOW JOBS shows "
            "the reason",
        )
    written = table_definition(table.definition)
    included = tuple(_as_column(source.connector, column) for column in written.include)
    own = tuple(replace(column, field=None) for column in written.columns)
    definition = replace(written, columns=(*own, *included), include=(), options=(), format=None)
    changes: list[Change] = [
        PutObject(record=replace(table, definition=render(definition), source_id=None, inputs=())),
        DropObject(id=source.id),
        *forget_source(snapshot, source),
    ]
    refresh = refresh_of(snapshot, table.id)
    if refresh is not None:
        if refresh.status == FINISHING:
            raise SqlError(
                CANNOT_REFRESH,
                f"a refresh of table '{table.name}' is being merged, and a partial merge would match no state of the "
                "upstream",
                span=statement.name.span,
                hint=f"WAIT TABLE {sql_name(table.name)}, then drop its connector",
            )
        changes.append(DropObject(id=refresh.id))
    fragment = reader_fragment(table.id, source.id)
    if snapshot.splits(fragment) or snapshot.states(fragment):
        changes.append(UnassignSplits(fragment=fragment, splits=tuple(snapshot.splits(fragment))))
        changes.append(ForgetSplitStates(fragment=fragment, splits=tuple(snapshot.states(fragment))))
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, tuple(changes)),
        operation=Operation(
            kind="DROP CONNECTOR",
            statement=render(statement),
            objects=(table.name, *(record.name for record in snapshot.dependents_of(table.id))),
            changes=tuple(changes),
        ),
        changes=(ResultRow(object=table.name, change="ALTERED", detail="its connector is dropped: its rows stay"),),
        affected=(table.id,),
    )


def _as_column(connector_name: str, column: IncludeColumn) -> ColumnDefinition:
    """Converts an INCLUDE column to an ordinary column of the table."""
    kind = column.inner_type
    if kind is None:
        known = "BYTEA" if column.inner is not None else connector(connector_name).spec.include[column.kind].type
        made = parse_statement(f"CREATE SOURCE s (c {known}) WITH (connector = 'c') FORMAT PLAIN ENCODE JSON")
        if not isinstance(made, CreateSource):
            raise TypeError("the column has no type")
        kind = made.columns[0].data_type
    return ColumnDefinition(name=include_name(connector_name, column), data_type=kind)
