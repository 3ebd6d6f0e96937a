"""Lowers the statements that create, drop, pause and resume sinks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.connectors.sink import APPEND_ONLY
from rw_sql.errors import (
    INVALID_DEFINITION,
    SINK_CANNOT_FOLLOW,
    SqlError,
)
from rw_sql.metastore.records import DropObject, MaterializedViewRecord, Operation, PutObject, SinkRecord, SourceRecord
from rw_sql.model.definitions import option_text
from rw_sql.model.object_lookup import (
    find_relation,
    find_sink,
    object_name,
    other_than_relation,
    require_free,
    spoken,
    undefined_relation,
)
from rw_sql.model.options import plan_options, shared_definition
from rw_sql.model.parameters import streaming_parallelism
from rw_sql.model.relations import relation_of, schema_columns
from rw_sql.plan.checks.columns import is_validated, without_switch
from rw_sql.plan.checks.sinks import SinkInput, check_sink
from rw_sql.plan.checks.upstreams import STORED_IN_LIST, require_target
from rw_sql.plan.queries.delta_inputs import delta_table, only_appended
from rw_sql.plan.queries.maintenance import visible_keys
from rw_sql.plan.queries.view_query import plan_query, require_log
from rw_sql.plan.result.plan import Plan, ResultRow
from rw_sql.plan.result.steps import after, steps_of
from rw_sql.plan.statements.common import drop_plan, nothing, require_not_rebuilding, sink_record
from rw_sql.syntax import render
from rw_sql.syntax.lexing.identifiers import spark_name, spark_word, sql_name

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import CreateSink, DropSink, Name, PauseSink, ResumeSink


def lower_create_sink(statement: CreateSink, snapshot: Snapshot, inspector: Inspector, query_dialect: str) -> Plan:
    """Lowers CREATE SINK. The definition, the query and the target are checked before the sink is stored."""
    name = object_name(statement.name)
    if statement.if_not_exists and snapshot.find("sink", name):
        return nothing(statement, name, f'sink "{name}" already exists')
    require_free(snapshot, statement.name)
    must_fit = is_validated(statement.options)
    written, statement = statement, replace(statement, options=without_switch(statement.options))
    given = _input(statement, snapshot, inspector, query_dialect)
    added: list[Change] = [PutObject(record=table) for table in given.new]
    base, snapshot = snapshot, after(snapshot, tuple(added))
    require_not_rebuilding(snapshot, given.inputs, statement.name.span)
    kind_name, shape = check_sink(snapshot, statement, given)
    if must_fit:
        target = inspector.upstreams.look_at_target(kind_name, plan_options(snapshot, statement), shape)
        place = statement.name.span
        shared = shared_definition(snapshot, statement.options)
        require_target(
            target, name, place, options=statement.options, stored=STORED_IN_LIST, is_new=True, definition=shared
        )
    stored = replace(statement, if_not_exists=False)
    starts: list[tuple[int, int]] = []
    if not _has_snapshot(statement):
        for input_id in given.inputs:
            # ``snapshot`` lacks an external table that this statement adds to the catalog.
            starts.append((input_id, inspector.after(snapshot).tables.version(input_id)))
    blank = SinkRecord(
        id=snapshot.next_id,
        name=name,
        definition=render(stored),
        connector=kind_name,
        options=(),
        inputs=given.inputs,
        schema=shape.schema,
        type=shape.type,
        encode=shape.encode,
        keys=shape.keys,
        query=given.query,
        replaces=bool(given.query and given.keys),
        starts=tuple(starts),
        created_at_ms=inspector.clock(),
        parallelism=streaming_parallelism(snapshot),
    )
    record = sink_record(snapshot, blank, stored)
    changes: list[Change] = [*added, PutObject(record=record)]
    for input_id in given.inputs:
        view = snapshot.get(input_id)
        if isinstance(view, MaterializedViewRecord) and view.keys and not view.has_change_feed:
            changes.append(PutObject(record=replace(view, has_change_feed=True)))
    answers = [ResultRow(object=name, change="CREATED", detail=f"{shape.type}, from {given.name}")]
    if shape.type != APPEND_ONLY and not given.keys and not given.is_ordered:
        keys = ", ".join(shape.keys)
        answers.append(
            ResultRow(
                object=name,
                change="NOTICE",
                detail=f"rows of {given.name} have no order: if several rows have the same ({keys}), the sink keeps "
                "any one of them",
            )
        )
    answers += [ResultRow(object=name, change="NOTICE", detail=s) for s in only_appended(snapshot, record.inputs)]
    return Plan(
        statement=written,
        steps=steps_of(base, tuple(changes)),
        operation=Operation(kind="CREATE SINK", statement=render(written), objects=(name,), changes=tuple(changes)),
        changes=tuple(answers),
        affected=(record.id,),
    )


def _input(statement: CreateSink, snapshot: Snapshot, inspector: Inspector, query_dialect: str) -> SinkInput:
    if statement.relation is not None:
        return _relation_input(statement, statement.relation, snapshot, inspector)
    if statement.query is None:
        raise TypeError("the sink has neither a relation nor a query")
    found = plan_query(
        snapshot,
        inspector,
        statement.query,
        f'sink "{statement.name.key}"',
        query_dialect,
        closes_windows=statement.is_emit_on_window_close,
    )
    return SinkInput(
        name="the query",
        inputs=found.inputs,
        schema=found.schema,
        query=found.text,
        keys=found.keys,
        is_ordered=False,
        new=found.new,
    )


_INPUTS_LISTED = "SHOW SOURCES and SHOW MATERIALIZED VIEWS list the objects that a sink can read"


def _relation_input(statement: CreateSink, name: Name, snapshot: Snapshot, inspector: Inspector) -> SinkInput:
    is_elsewhere = len(name.parts) > 2
    record = None if is_elsewhere else find_relation(snapshot, object_name(name))
    if isinstance(record, MaterializedViewRecord):
        if visible_keys(record) != record.keys:
            raise SqlError(
                SINK_CANNOT_FOLLOW,
                f'{spoken(record.kind)} "{record.name}" replaces rows, but has no columns that identify a row',
                span=name.span,
                hint=_grouped_by_key(statement, record),
            )
        return SinkInput(
            name=f'{spoken(record.kind)} "{record.name}"',
            inputs=(record.id,),
            schema=record.schema,
            keys=record.keys,
            has_before=bool(record.keys),
            is_ordered=False,
        )
    if record is None and (found := _delta_input(name, snapshot, inspector)) is not None:
        return found
    if not isinstance(record, SourceRecord):
        other = None if is_elsewhere else other_than_relation(snapshot, name.key, name.span)
        raise other or undefined_relation(snapshot, name, _INPUTS_LISTED)
    if isinstance(record, SourceRecord):
        require_log(record, name.span)
    columns = inspector.queries.analyze(f"SELECT * FROM {quoted_spark(record.name)}", (relation_of(record),))
    return SinkInput(name=f'source "{record.name}"', inputs=(record.id,), schema=columns.schema)


def _grouped_by_key(statement: CreateSink, view: MaterializedViewRecord) -> str:
    """The hint for a sink that needs a key, but reads a view without a key. The hint's statement creates a view that
    groups the rows by a key."""
    columns = [name for name, _ in schema_columns(view.schema)]
    texts = [option_text(option.value) for option in statement.options if option.key == "primary_key"]
    named = {word.strip().lower() for text in texts for word in text.split(",")}
    keys = [name for name in columns if name.lower() in named] or columns[:1]
    others = [f"max({spark_word(name)}) AS {spark_word(name)}" for name in columns if name not in keys]
    by = ", ".join(map(spark_word, keys))
    key = keys[0] if len(keys) == 1 else "key"
    new = sql_name(f"{view.name}_by_{key}")
    query = f"SELECT {', '.join([by, *others])} FROM {spark_name(view.name)} GROUP BY {by}"
    where = "" if named else f", if {by} identifies a row"
    return (
        f"create the sink from a view that groups by the key{where}: CREATE MATERIALIZED VIEW {new} AS {query}"
        "; if the view has a GROUP BY, select its columns instead"
    )


def _delta_input(name: Name, snapshot: Snapshot, inspector: Inspector) -> SinkInput | None:
    """Returns the record of an external Delta table that a sink reads; None if there is no such table."""
    written = ".".join(quoted_spark(part) for part in name.parts)
    table, is_new = delta_table(snapshot, inspector, written, name.last, name.span)
    if table is None:
        return None
    return SinkInput(
        name=f"table {name}",
        inputs=(table.id,),
        schema=table.schema,
        has_before=table.has_change_feed,
        is_changing=table.has_change_feed,
        is_ordered=table.has_change_feed,
        new=(table,) if is_new else (),
    )


def quoted_spark(name: str) -> str:
    """Returns a name with quotes for Spark."""
    return "`" + name.replace("`", "``") + "`"


def _has_snapshot(statement: CreateSink) -> bool:
    for option in statement.options:
        if option.key == "snapshot" and option_text(option.value).lower() == "false":
            if statement.query is not None:
                raise SqlError(
                    INVALID_DEFINITION,
                    "`snapshot = false` is only for CREATE SINK … FROM a source or materialized view",
                    span=option.key_place,
                    hint="CREATE MATERIALIZED VIEW v AS …; then CREATE SINK … FROM v",
                )
            return False
    return True


def lower_drop_sink(statement: DropSink, snapshot: Snapshot) -> Plan:
    """Lowers DROP SINK. The rows in the target are kept."""
    name = object_name(statement.name)
    if statement.if_exists and snapshot.find("sink", name) is None:
        return nothing(statement, name, f'sink "{name}" does not exist')
    return drop_plan(statement, snapshot, "DROP SINK", [DropObject(id=find_sink(snapshot, statement.name).id)])


def _put(statement: PauseSink | ResumeSink, snapshot: Snapshot, record: SinkRecord, kind: str, word: str) -> Plan:
    change = PutObject(record=record)
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, (change,)),
        operation=Operation(
            kind=kind,
            statement=render(statement),
            objects=(record.name,),
            changes=(change,),
            reason=statement.reason,
        ),
        changes=(ResultRow(object=record.name, change=word, detail=statement.reason or ""),),
        affected=(record.id,),
    )


def lower_pause_sink(statement: PauseSink, snapshot: Snapshot) -> Plan:
    """Lowers PAUSE SINK, which stops the sink. The sink remains stopped after restarts and keeps its positions."""
    sink = find_sink(snapshot, statement.name)
    if sink.is_paused:
        return nothing(statement, sink.name, "already paused")
    paused = replace(sink, is_paused=True, pause_reason=statement.reason)
    return _put(statement, snapshot, paused, "PAUSE SINK", "PAUSED")


def lower_resume_sink(statement: ResumeSink, snapshot: Snapshot) -> Plan:
    """Lowers RESUME SINK. The sink continues at the positions that it had when it was paused."""
    sink = find_sink(snapshot, statement.name)
    if not sink.is_paused:
        return nothing(statement, sink.name, "it is not paused")
    return _put(statement, snapshot, replace(sink, is_paused=False, pause_reason=None), "RESUME SINK", "RESUMED")
