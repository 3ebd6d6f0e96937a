"""Lowers the statements that create, drop, pause and resume sources."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.connectors.registry import captures_changes, change_connector, connector, connector_names
from rw_sql.errors import (
    DEPENDENTS_EXIST,
    INVALID_DEFINITION,
    INVALID_PROPERTY,
    NOT_SUPPORTED,
    SqlError,
)
from rw_sql.metastore.records import (
    AssignSplits,
    DropObject,
    ForgetSplitStates,
    Operation,
    PauseRecord,
    PutObject,
    SourceRecord,
    UnassignSplits,
)
from rw_sql.model.definitions import (
    PAUSED_AT_BIRTH,
    REFRESH_OPTIONS,
    connector_of,
    is_cdc,
    option_text,
)
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.model.object_lookup import find_source, object_name, require_free
from rw_sql.model.options import plan_options, shared_definition, source_options, visible
from rw_sql.model.sharing import is_to_be_shared, with_sharing
from rw_sql.model.source_readers import forget_fragments, is_read, readers_of
from rw_sql.model.startup import birth_of
from rw_sql.plan.checks.cdc_tables import require_no_lack
from rw_sql.plan.checks.columns import columns_of, lists_columns, require_columns
from rw_sql.plan.checks.formats import require_rows
from rw_sql.plan.checks.schemas import with_schema
from rw_sql.plan.checks.sources import check_source
from rw_sql.plan.checks.upstreams import require_upstream
from rw_sql.plan.effects.discovery import discover
from rw_sql.plan.result.plan import Plan, ResultRow
from rw_sql.plan.result.steps import steps_of
from rw_sql.plan.statements.common import (
    ALL_SOURCES,
    drop_plan,
    drop_with_dependents,
    nothing,
    source_record,
    states_change,
    take_up_new_topics,
)
from rw_sql.plan.statements.source.upstream_names import with_generated_names
from rw_sql.syntax import render
from rw_sql.syntax.lexing.identifiers import sql_name

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import (
        CreateSource,
        DropSource,
        PauseAllSources,
        PauseSource,
        ResumeAllSources,
        ResumeSource,
    )


def lower_create_source(
    statement: CreateSource,
    snapshot: Snapshot,
    inspector: Inspector,
    *,
    is_shared: bool = True,
    is_of_table: bool = False,
) -> Plan:
    """Lowers CREATE SOURCE. Checks the statement and the upstream, and resolves the splits' start positions to offsets.

    ``is_shared`` is the default for the property ``shared`` if the statement does not set this property. For a source
    that is not shared, each view resolves the start positions itself. ``is_of_table`` is True if CREATE TABLE creates
    the source for its table. Only such a source may have a change format.
    """
    name = object_name(statement.name)
    if statement.if_not_exists and snapshot.find("source", name):
        return nothing(statement, name, f'source "{name}" already exists')
    require_free(snapshot, statement.name)
    if not is_of_table:
        require_rows(statement)
        _require_stream(statement)
    is_paused = _paused_at_birth(statement)
    stored = replace(
        statement,
        if_not_exists=False,
        options=tuple(option for option in statement.options if option.key != PAUSED_AT_BIRTH),
    )
    if not is_of_table:
        stored = with_schema(stored, snapshot, inspector)
    stored = _with_columns(stored, snapshot, inspector)
    kind_name = check_source(snapshot, stored)
    kind = connector(kind_name)
    stored = with_sharing(stored, kind, is_shared=is_shared)
    created_at_ms = inspector.clock()
    stored = with_generated_names(stored, snapshot, snapshot.next_id, created_at_ms)
    options = plan_options(snapshot, stored)
    upstream = inspector.upstreams.look(kind_name, options)
    shared = shared_definition(snapshot, statement.options)
    require_upstream(upstream, name, statement.name.span, options=statement.options, is_new=True, definition=shared)
    if is_cdc(stored):
        require_no_lack(inspector.upstreams.find_lacks(kind_name, options, {}), name, statement.name.span, name)
    place = statement.name.span
    require_columns(inspector, kind_name, options, stored.columns, name, place, of="table" if is_of_table else "source")
    found = discover(inspector, kind, kind_name, options, upstream, {})
    blank = SourceRecord(
        id=snapshot.next_id,
        name=name,
        definition="",
        connector=kind_name,
        options=(),
        is_shared=is_to_be_shared(stored, kind),
        created_at_ms=created_at_ms,
        birth=birth_of(kind_name, options, upstream),
    )
    record = source_record(snapshot, blank, stored)
    fragment = ingest_fragment(record.id)
    changes: list[Change] = [PutObject(record=record)]
    if record.is_shared:
        changes.append(AssignSplits(fragment=fragment, splits=found.assigned))
        changes.append(states_change(fragment, kind_name, dict(found.states), -1))
    if is_paused:
        changes.append(
            PutObject(record=PauseRecord(id=record.id + 1, name=name, source_id=record.id, reason="created paused"))
        )
    detail = f"{len(found.assigned)} split{'s' if len(found.assigned) != 1 else ''}"
    detail += ("" if record.is_shared else ", not shared") + (", paused" if is_paused else "")
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, tuple(changes)),
        operation=Operation(kind="CREATE SOURCE", statement=render(statement), objects=(name,), changes=tuple(changes)),
        changes=(ResultRow(object=name, change="CREATED", detail=detail),),
        affected=(record.id,),
    )


def _with_columns(statement: CreateSource, snapshot: Snapshot, inspector: Inspector) -> CreateSource:
    """Returns ``statement``. If ``statement`` omits the columns, and the connector can list the upstream's columns, the
    result has the upstream's columns."""
    if statement.columns or not lists_columns(statement):
        return statement
    blank = columns_of({"no_column_yet": "INT"}, statement.name.span)
    kind = check_source(snapshot, replace(statement, columns=blank))
    options = plan_options(snapshot, statement)
    upstream = inspector.upstreams.look(kind, options)
    name, span = object_name(statement.name), statement.name.span
    shared = shared_definition(snapshot, statement.options)
    require_upstream(upstream, name, span, options=statement.options, is_new=True, definition=shared)
    return replace(statement, columns=columns_of(inspector.upstreams.columns(kind, options), statement.name.span))


def _require_stream(statement: CreateSource) -> None:
    """Raises SqlError for options and connectors that only a table with ``refresh_mode = 'FULL_RELOAD'`` may use."""
    for option in statement.options:
        if option.key in REFRESH_OPTIONS:
            raise SqlError(
                INVALID_DEFINITION,
                f"`{option.key}` only supported for CREATE TABLE",
                span=option.key_place,
                hint="a source has no rows to reload: omit the property, or use CREATE TABLE",
            )
    name = connector_of(statement)
    if name in connector_names() and connector(name).spec.is_batch:
        named = next((option.value.span for option in statement.options if option.key == "connector"), None)
        raise SqlError(
            NOT_SUPPORTED,
            f'connector "{name}" reads a whole upstream at once: it is only supported for CREATE TABLE',
            span=named or statement.name.span,
            hint="CREATE TABLE t (…, PRIMARY KEY (…)) WITH (connector = …, refresh_mode = 'FULL_RELOAD', …)",
        )


def _paused_at_birth(statement: CreateSource) -> bool:
    for option in statement.options:
        if option.key == PAUSED_AT_BIRTH:
            text = option_text(option.value).lower()
            if text not in ("true", "false"):
                raise SqlError(
                    INVALID_PROPERTY,
                    f"property \"paused\" must be 'true' or 'false', but is {text!r}",
                    span=option.value.span,
                    hint="paused = 'true' creates the source without starting it",
                )
            return text == "true"
    return False


def lower_drop_source(statement: DropSource, snapshot: Snapshot) -> Plan:
    """Lowers DROP SOURCE. The statement fails if other objects read the source. With CASCADE, it drops these objects
    too."""
    name = object_name(statement.name)
    if statement.if_exists and snapshot.find("source", name) is None:
        return nothing(statement, name, f'source "{name}" does not exist')
    source = find_source(snapshot, statement.name)
    table = snapshot.table_of(source.id)
    if table is not None:
        raise SqlError(
            DEPENDENTS_EXIST,
            f'source "{name}" belongs to table "{name}"',
            span=statement.name.span,
            hint=f"use DROP TABLE {sql_name(name)}, or ALTER TABLE {sql_name(name)} DROP CONNECTOR to keep its rows",
        )
    changes = drop_with_dependents(snapshot, source.id, "source", name, statement.name.span, statement.is_cascade)
    changes += forget_fragments(snapshot, [change.id for change in changes if isinstance(change, DropObject)])
    changes += forget_source(snapshot, source)
    return drop_plan(statement, snapshot, "DROP SOURCE", changes)


def forget_source(snapshot: Snapshot, source: SourceRecord) -> list[Change]:
    """The changes that remove the splits, positions, pauses and rewinds of a dropped source."""
    fragment = ingest_fragment(source.id)
    changes: list[Change] = [
        UnassignSplits(fragment=fragment, splits=tuple(snapshot.splits(fragment))),
        ForgetSplitStates(fragment=fragment, splits=tuple(snapshot.states(fragment))),
    ]
    changes += [DropObject(id=record.id) for record in snapshot.all("pause") if record.source_id == source.id]
    changes += [DropObject(id=record.id) for record in snapshot.all("rewind") if record.source_id == source.id]
    return changes


def _pause(statement: PauseSource | PauseAllSources, snapshot: Snapshot, source: SourceRecord | None) -> Plan:
    name = source.name if source else ALL_SOURCES
    source_id = source.id if source else None
    if any(record.source_id == source_id for record in snapshot.all("pause")):
        return nothing(statement, name, "already paused")
    change = PutObject(record=PauseRecord(id=snapshot.next_id, name=name, source_id=source_id, reason=statement.reason))
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, (change,)),
        operation=Operation(
            kind="PAUSE SOURCE" if source else "PAUSE ALL SOURCES",
            statement=render(statement),
            objects=(name,),
            changes=(change,),
            reason=statement.reason,
        ),
        changes=(
            ResultRow(object=name, change="PAUSED", detail=statement.reason or ""),
            *_kept_upstream(snapshot, source),
        ),
        affected=(source_id,) if source_id is not None else (),
    )


def _kept_upstream(snapshot: Snapshot, source: SourceRecord | None) -> tuple[ResultRow, ...]:
    """Returns a notice for each paused source whose upstream must retain its log until the source resumes. If
    ``source`` is None, all sources are paused."""
    sources = snapshot.all("source") if source is None else (source,)
    return tuple(
        ResultRow(
            object=each.name,
            change="NOTICE",
            detail=f"{change_connector(each.connector).kept_text}: "
            f"SHOW SOURCE SPLITS {sql_name(each.name)} shows retained_bytes",
        )
        for each in sources
        if captures_changes(each.connector)
    )


def lower_pause_source(statement: PauseSource, snapshot: Snapshot) -> Plan:
    """Lowers PAUSE SOURCE, which stops the source's readers. They remain stopped even if the owner's process
    restarts."""
    return _pause(statement, snapshot, find_source(snapshot, statement.name))


def lower_pause_all_sources(statement: PauseAllSources, snapshot: Snapshot) -> Plan:
    """Lowers PAUSE ALL SOURCES. The statement stores a single pause, which applies to every source, including sources
    that are created later."""
    return _pause(statement, snapshot, None)


def lower_resume_source(statement: ResumeSource, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers RESUME SOURCE, which removes the source's own pause, but not a pause by PAUSE ALL SOURCES. The statement
    also assigns the splits that the source does not read yet, for example because a user added a topic to the
    properties of the paused source."""
    source = find_source(snapshot, statement.name)
    own = [record for record in snapshot.all("pause") if record.source_id == source.id]
    held = [record for record in snapshot.all("pause") if record.source_id is None]
    if not own:
        detail = "PAUSE ALL SOURCES is still in effect: RESUME ALL SOURCES ends it" if held else "it is not paused"
        return nothing(statement, source.name, detail)
    discovered, notes = take_up_new_topics(snapshot, inspector, source)
    changes: tuple[Change, ...] = (*(DropObject(id=record.id) for record in own), *discovered)
    if held:
        notes = (*notes, "PAUSE ALL SOURCES is still in effect: RESUME ALL SOURCES ends it")
    elif not is_read(snapshot, source):
        notes = (*notes, "no view or sink reads it yet; it starts with the first view")
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, changes),
        operation=Operation(
            kind="RESUME SOURCE",
            statement=render(statement),
            objects=(source.name,),
            changes=changes,
            reason=statement.reason,
        ),
        changes=(ResultRow(object=source.name, change="RESUMED", detail="; ".join(notes)),),
        affected=(source.id,),
    )


def unread_topics(snapshot: Snapshot, source: SourceRecord) -> frozenset[str]:
    """The topics in a source's properties that are not read by all of the source's readers: at least one reader has no
    split of the topic."""
    kind = connector(source.connector)
    named = kind.named_topics(visible(source_options(snapshot, source)))
    read = [
        {kind.split_topic(split) for split in snapshot.splits(reader.fragment)}
        for reader in readers_of(snapshot, source)
    ]
    return frozenset(topic for topics in read for topic in named if topic not in topics)


def lower_resume_all_sources(statement: ResumeAllSources, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers RESUME ALL SOURCES, which removes the pause of PAUSE ALL SOURCES. Sources that were paused individually
    stay paused.

    Like RESUME SOURCE, the statement assigns the splits of topics that were added to a source's properties. Therefore,
    with the startup mode ``latest``, the source begins to read these topics at the ends that their splits have when
    this statement runs.
    """
    held = [record for record in snapshot.all("pause") if record.source_id is None]
    if not held:
        return nothing(statement, ALL_SOURCES, "PAUSE ALL SOURCES is not in effect")
    changes: tuple[Change, ...] = tuple(DropObject(id=record.id) for record in held)
    paused = {record.source_id: record.name for record in snapshot.all("pause") if record.source_id is not None}
    still = sorted(paused.values())
    answers = [
        ResultRow(object=ALL_SOURCES, change="RESUMED", detail=f"still paused: {', '.join(still)}" if still else "")
    ]
    for source in snapshot.all("source"):
        if source.id not in paused and unread_topics(snapshot, source):
            taken, notes = take_up_new_topics(snapshot, inspector, source)
            changes += taken
            answers += [ResultRow(object=source.name, change="NOTICE", detail=note) for note in notes]
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, changes),
        operation=Operation(
            kind="RESUME ALL SOURCES",
            statement=render(statement),
            objects=(ALL_SOURCES,),
            changes=changes,
            reason=statement.reason,
        ),
        changes=tuple(answers),
    )
