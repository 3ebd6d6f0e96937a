"""Lowers SHOW statements and DESCRIBE, which return rows and change nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rw_sql.errors import NOT_SUPPORTED, SqlError
from rw_sql.metastore.records import MaterializedViewRecord, SinkRecord, SourceRecord, TableRecord
from rw_sql.model.definitions import definition_of, source_columns, without_schema
from rw_sql.model.job_ids import sink_job, view_job
from rw_sql.model.job_specs import named_splits
from rw_sql.model.object_lookup import (
    SCHEMA_KINDS,
    find_connection,
    find_relation,
    find_secret,
    find_sink,
    find_source,
    find_table,
    find_view,
    is_schema,
    object_name,
    objects_in,
    undefined_object,
    undefined_schema,
)
from rw_sql.model.options import connection_options, shown
from rw_sql.model.relations import schema_columns
from rw_sql.model.source_readers import readers_of
from rw_sql.plan.ports.tables import LogSize
from rw_sql.plan.queries.maintenance import how_maintained, visible_keys
from rw_sql.plan.result.plan import Plan
from rw_sql.plan.statements.session.search_path import DEFAULT_PATH, explicit
from rw_sql.plan.statements.show.job_states import sink_state, source_state, view_state
from rw_sql.plan.statements.show.jobs import show_jobs
from rw_sql.plan.statements.show.listing import is_like, listing, matches
from rw_sql.syntax import parse_statement, render
from rw_sql.syntax.lexing.identifiers import PUBLIC
from rw_sql.syntax.statements import CreateSink, CreateSource, CreateTable

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import (
        Describe,
        ShowCreate,
        ShowObjects,
    )


def lower_show_objects(statement: ShowObjects, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers SHOW SOURCES and the other statements that list the objects of a kind, the schemas or the jobs."""
    if statement.where is not None:
        raise SqlError(
            NOT_SUPPORTED,
            f"SHOW {statement.kind} WHERE is not supported",
            span=statement.span,
            hint=f"use SHOW {statement.kind} LIKE 'pattern', or query the rw_catalog views with SELECT",
        )
    if statement.schema is not None and not is_schema(snapshot, statement.schema):
        raise undefined_schema(snapshot, statement.schema, statement.schema_span)
    match statement.kind:
        case "SCHEMAS":
            return _show_schemas(statement, snapshot)
        case "SOURCES":
            return _show_sources(statement, snapshot, inspector)
        case "MATERIALIZED VIEWS":
            return _show_materialized_views(statement, snapshot, inspector)
        case "TABLES":
            return _show_tables(statement, snapshot, inspector)
        case "SINKS":
            return _show_sinks(statement, snapshot, inspector)
        case "CONNECTIONS":
            return _show_connections(statement, snapshot)
        case "SECRETS":
            return _show_secrets(statement, snapshot)
        case "JOBS":
            return show_jobs(statement, snapshot, inspector)
        case _:
            raise SqlError(
                NOT_SUPPORTED,
                f"SHOW {statement.kind} is not supported yet",
                span=statement.span,
                hint="supported are SHOW SOURCES, TABLES, MATERIALIZED VIEWS, SINKS, JOBS, CONNECTIONS, SECRETS and "
                "SCHEMAS",
            )


def _show_schemas(statement: ShowObjects, snapshot: Snapshot) -> Plan:
    rows: list[tuple[object, ...]] = []
    for name in (PUBLIC, *(record.name for record in snapshot.all("schema"))):
        if is_like(statement, name):
            counts = Counter(record.kind for record in objects_in(snapshot, name))
            rows.append((name, *(counts[kind] for kind in SCHEMA_KINDS)))
    columns = (("name", "STRING"), *((f"{kind}s", "INT") for kind in SCHEMA_KINDS))
    return listing(statement, columns, sorted(rows, key=lambda row: str(row[0])))


def _show_sources(statement: ShowObjects, snapshot: Snapshot, inspector: Inspector) -> Plan:
    statuses = inspector.jobs.statuses()
    listed = [source for source in snapshot.all("source") if matches(statement, snapshot, source.name)]
    logs = inspector.tables.log_sizes(tuple(source.id for source in listed))
    rows: list[tuple[object, ...]] = []
    for source in listed:
        state, reason = source_state(snapshot, source, statuses)
        readers = ", ".join(view.name for view in snapshot.readers_of(source.id))
        assigned = {split for reader in readers_of(snapshot, source) for split in snapshot.splits(reader.fragment)}
        splits = len(named_splits(snapshot, source, assigned))
        log = logs.get(source.id, LogSize())
        since = None if log.since_ms is None else datetime.fromtimestamp(log.since_ms / 1000, UTC)
        told = (source.name, source.connector, state, reason, splits, source.is_shared, readers)
        rows.append((*told, log.rows, log.bytes, since, log.errors, ", ".join(log.empty)))
    columns = (
        ("name", "STRING"),
        ("connector", "STRING"),
        ("state", "STRING"),
        ("reason", "STRING"),
        ("splits", "INT"),
        ("is_shared", "BOOLEAN"),
        ("readers", "STRING"),
        ("log_rows", "BIGINT"),
        ("log_bytes", "BIGINT"),
        ("log_since", "TIMESTAMP"),
        ("decode_errors", "BIGINT"),
        ("empty_columns", "STRING"),
    )
    return listing(statement, columns, sorted(rows, key=lambda row: str(row[0])))


def _show_materialized_views(statement: ShowObjects, snapshot: Snapshot, inspector: Inspector) -> Plan:
    statuses = inspector.jobs.statuses()
    made = inspector.jobs.backfills()
    rows: list[tuple[object, ...]] = []
    for view in snapshot.all("materialized_view"):
        if not matches(statement, snapshot, view.name):
            continue
        state, reason = view_state(snapshot, view, statuses.get(view_job(view.id)), made)
        inputs = ", ".join(record.name for record in map(snapshot.get, view.inputs) if record is not None)
        keys = ", ".join(visible_keys(view))
        rows.append((view.name, state, reason, inputs, keys, view.query, how_maintained(view)))
    columns = (
        ("name", "STRING"),
        ("state", "STRING"),
        ("reason", "STRING"),
        ("inputs", "STRING"),
        ("keys", "STRING"),
        ("query", "STRING"),
        ("maintenance", "STRING"),
    )
    return listing(statement, columns, sorted(rows, key=lambda row: str(row[0])))


def _show_tables(statement: ShowObjects, snapshot: Snapshot, inspector: Inspector) -> Plan:
    statuses = inspector.jobs.statuses()
    made = inspector.jobs.backfills()
    rows: list[tuple[object, ...]] = []
    for table in snapshot.all("table"):
        if not matches(statement, snapshot, table.name):
            continue
        state, reason = view_state(snapshot, table, statuses.get(view_job(table.id)), made)
        source = snapshot.get(table.source_id) if table.source_id is not None else None
        kind = source.connector if isinstance(source, SourceRecord) else None
        told = (table.name, kind, state, reason, ", ".join(table.primary_key), table.conflict, table.is_append_only)
        rows.append((*told, ", ".join(reader.name for reader in snapshot.readers_of(table.id))))
    columns = (
        ("name", "STRING"),
        ("connector", "STRING"),
        ("state", "STRING"),
        ("reason", "STRING"),
        ("primary_key", "STRING"),
        ("on_conflict", "STRING"),
        ("is_append_only", "BOOLEAN"),
        ("readers", "STRING"),
    )
    return listing(statement, columns, sorted(rows, key=lambda row: str(row[0])))


def _show_sinks(statement: ShowObjects, snapshot: Snapshot, inspector: Inspector) -> Plan:
    statuses = inspector.jobs.statuses()
    rows: list[tuple[object, ...]] = []
    for sink in snapshot.all("sink"):
        if not matches(statement, snapshot, sink.name):
            continue
        state, reason = sink_state(sink, statuses.get(sink_job(sink.id)))
        inputs = ", ".join(record.name for record in map(snapshot.get, sink.inputs) if record is not None)
        rows.append((sink.name, sink.connector, sink.type, state, reason, inputs, ", ".join(sink.keys)))
    columns = (
        ("name", "STRING"),
        ("connector", "STRING"),
        ("type", "STRING"),
        ("state", "STRING"),
        ("reason", "STRING"),
        ("inputs", "STRING"),
        ("keys", "STRING"),
    )
    return listing(statement, columns, sorted(rows, key=lambda row: str(row[0])))


def _show_connections(statement: ShowObjects, snapshot: Snapshot) -> Plan:
    rows: list[tuple[object, ...]] = []
    for record in snapshot.all("connection"):
        if matches(statement, snapshot, record.name):
            users = ", ".join(user.name for user in snapshot.users_of(record.id))
            options = ", ".join(f"{k} = {v}" for k, v in shown(connection_options(snapshot, record)).items())
            rows.append((record.name, record.connector, options, users))
    columns = (("name", "STRING"), ("type", "STRING"), ("properties", "STRING"), ("used_by", "STRING"))
    return listing(statement, columns, sorted(rows, key=lambda row: str(row[0])))


def _show_secrets(statement: ShowObjects, snapshot: Snapshot) -> Plan:
    rows: list[tuple[object, ...]] = [
        (record.name, record.backend, ", ".join(user.name for user in snapshot.users_of(record.id)))
        for record in snapshot.all("secret")
        if matches(statement, snapshot, record.name)
    ]
    columns = (("name", "STRING"), ("backend", "STRING"), ("used_by", "STRING"))
    return listing(statement, columns, sorted(rows, key=lambda row: str(row[0])))


def lower_show_create(statement: ShowCreate, snapshot: Snapshot, search_path: tuple[str, ...] = DEFAULT_PATH) -> Plan:
    """Lowers SHOW CREATE, which shows the canonical definition in the catalog. Parsing the shown text yields the stored
    definition.

    If the search path differs from the default, names in ``public`` are qualified, so that the shown statement can be
    run with this search path.
    """
    dialect = "spark"
    match statement.kind:
        case "SOURCE":
            definition = find_source(snapshot, statement.name).definition
        case "TABLE":
            definition = find_table(snapshot, statement.name).definition
        case "MATERIALIZED VIEW":
            view = find_view(snapshot, statement.name)
            definition, dialect = view.definition, view.dialect
        case "SINK":
            definition = find_sink(snapshot, statement.name).definition
        case "CONNECTION":
            definition = find_connection(snapshot, statement.name).definition
        case "SECRET":
            definition = find_secret(snapshot, statement.name).definition
        case kind:
            raise SqlError(
                NOT_SUPPORTED,
                f"SHOW CREATE {kind} is not supported yet",
                span=statement.span,
                hint="SHOW CREATE supports SOURCE, TABLE, MATERIALIZED VIEW, SINK, CONNECTION and SECRET",
            )
    columns = (("name", "STRING"), ("create_sql", "STRING"))
    # The definition is parsed and rendered again, because an earlier version of rw_sql may have stored another
    # canonical form.
    made = parse_statement(definition)
    if isinstance(made, CreateSource | CreateTable | CreateSink):
        made = replace(made, format=without_schema(made.format))
    if search_path != DEFAULT_PATH:
        made = explicit(made, snapshot, dialect)
    return listing(statement, columns, [(object_name(statement.name), render(made))])


def lower_describe(statement: Describe, snapshot: Snapshot) -> Plan:
    """Lowers DESCRIBE, which shows the columns of a table, source, view or sink."""
    name = object_name(statement.name)
    record = find_relation(snapshot, name) or snapshot.find("sink", name)
    if isinstance(record, SourceRecord):
        listed = source_columns(definition_of(record))
        keys: tuple[str, ...] = ()
    elif isinstance(record, TableRecord):
        listed, keys = schema_columns(record.schema), record.primary_key
    elif isinstance(record, MaterializedViewRecord | SinkRecord):
        listed, keys = schema_columns(record.schema), record.keys
    else:
        raise undefined_object(snapshot, statement.name)
    rows: list[tuple[object, ...]] = [(name, kind, name in keys) for name, kind in listed]
    return listing(statement, (("name", "STRING"), ("type", "STRING"), ("is_key", "BOOLEAN")), rows)
