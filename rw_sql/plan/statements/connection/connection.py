"""Lowers CREATE, ALTER, DROP and VALIDATE CONNECTION.

A change to a connection applies to all objects that use the connection. If one of these objects cannot be changed, the
change to the connection is refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.connectors.connection_types import (
    REGISTRY,
    check_connection_options,
    connection_sink,
    connection_source,
    connection_spec,
    connection_types,
    is_of_sources,
    place_of,
)
from rw_sql.connectors.registry import captures_changes
from rw_sql.connectors.schemas.client import ADDRESSES
from rw_sql.connectors.spec import OptionError, plain_keys
from rw_sql.errors import (
    DUPLICATE_CLAUSE,
    INVALID_DEFINITION,
    MISSING_PROPERTY,
    NOT_SUPPORTED,
    UNKNOWN_PROPERTY,
    SqlError,
    near_names,
)
from rw_sql.metastore.records import ConnectionRecord, Operation, PutObject, SinkRecord, SourceRecord
from rw_sql.model.definitions import connection_definition, definition_of, option_text, sink_definition
from rw_sql.model.object_lookup import (
    find_connection,
    find_sink,
    find_source,
    object_name,
    require_free_of_kind,
    spoken,
)
from rw_sql.model.options import (
    SecretReference,
    connection_options,
    own_options,
    place_of_error,
    source_options,
    visible,
)
from rw_sql.plan.checks.columns import is_validated, require_columns, without_switch
from rw_sql.plan.checks.sinks import check_sink_options
from rw_sql.plan.checks.sources import check_source, require_secret
from rw_sql.plan.checks.upstreams import (
    STORED,
    STORED_IN_LIST,
    no_answer,
    require_target_of,
    require_upstream,
    require_upstream_of,
    require_usable,
)
from rw_sql.plan.effects.connection_impact import another_target, differences, effect_on, may_move, spell
from rw_sql.plan.effects.later_changes import NO_LATER_CHANGES, LaterChanges
from rw_sql.plan.result.plan import Plan, Preview, ResultRow
from rw_sql.plan.result.preview_text import render_preview
from rw_sql.plan.result.steps import after, steps_of
from rw_sql.plan.statements.common import (
    drop_plan,
    drop_with_dependents,
    look_at_sink,
    nothing,
    sink_record,
    source_record,
)
from rw_sql.syntax import render
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.statements import CreateConnection

if TYPE_CHECKING:
    from rw_sql.connectors.spec import ConnectorSpec
    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change
    from rw_sql.model.options import PlannedOptions
    from rw_sql.plan.effects.connection_impact import Effect
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import AlterConnectionOptions, DropConnection, Option, Validate

_REFUSED = (("ssh", "SSH tunnels are not supported"), ("privatelink", "PrivateLink is not supported"))


def _refuse_detours(word: str, span: Span) -> None:
    """Raises SqlError for an option for access through a tunnel or PrivateLink. The error names the option."""
    for part, message in _REFUSED:
        if part in word.lower():
            hint = "give an address that Spark and this process can reach directly"
            raise SqlError(NOT_SUPPORTED, message, span=span, hint=hint)


def _type_of(statement: CreateConnection) -> str:
    for option in statement.options:
        if option.key == "type":
            kind = option_text(option.value).lower()
            _refuse_detours(kind, option.value.span)
            if kind not in connection_types():
                raise SqlError(
                    NOT_SUPPORTED,
                    f'Connection type "{kind}" is not supported',
                    span=option.value.span,
                    hint="use type = 'postgres' for sources, type = 'jdbc' for refreshable tables and for sinks"
                    if kind.startswith("postgres")
                    else "supported types are: " + ", ".join(connection_types()),
                )
            return kind
    raise SqlError(
        MISSING_PROPERTY,
        'Required property "type" is not provided',
        span=statement.name.span,
        hint="add WITH (type = 'kafka', …)",
    )


def check_connection(snapshot: Snapshot, statement: CreateConnection, span: Span) -> tuple[str, PlannedOptions]:
    """Checks a connection. Returns the connector's name and the planned options. Raises SqlError at the first error."""
    name = _type_of(statement)
    spec = connection_spec(name)
    for option in statement.options:
        _refuse_detours(option.key, option.key_place)
        known = spec.option(option.key)
        if option.key != "type" and (known is None or not known.is_of_connection):
            names = [key for key, value in spec.options.items() if value.is_of_connection]
            near = [key for key in spec.near(option.key) if key in names] or near_names(option.key, names)
            listed = ", ".join([*names[:12], *(["…"] if len(names) > 12 else [])])
            rest = f"omit {option.key}; the properties are {listed}"
            otherwise = f'did you mean "{near[0]}"?' if near else rest
            raise SqlError(
                UNKNOWN_PROPERTY,
                f'connections of type "{name}" have no property "{option.key}"',
                span=option.key_place,
                plain_keys=plain_keys(spec, [each.key for each in statement.options]),
                hint=place_of(name, option.key) or otherwise,
            )
    require_secret(statement.options, spec)
    planned = own_options(snapshot, statement)
    try:
        check_connection_options(name, visible(planned))
    except OptionError as error:
        error.span = next(
            (place_of_error(error, option) for option in statement.options if option.key == error.key), span
        )
        raise
    return name, planned


def _record(snapshot: Snapshot, id_: int, statement: CreateConnection, name: str, kind: str) -> ConnectionRecord:
    blank = ConnectionRecord(
        id=id_, name=name, definition=render(replace(statement, if_not_exists=False)), connector=kind
    )
    planned = connection_options(snapshot, blank)
    secrets = tuple(dict.fromkeys(value.id for _, value in planned if isinstance(value, SecretReference)))
    return replace(blank, uses=secrets)


def lower_create_connection(statement: CreateConnection, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers CREATE CONNECTION. Contacts the external system and logs in, unless the statement has WITH (…, VALIDATE =
    false)."""
    name = object_name(statement.name)
    if statement.if_not_exists and snapshot.find("connection", name):
        return nothing(statement, name, f'connection "{name}" already exists')
    require_free_of_kind(snapshot, "connection", statement.name)
    must_answer = is_validated(statement.options)
    stored = replace(statement, if_not_exists=False, options=without_switch(statement.options))
    kind, planned = check_connection(snapshot, stored, statement.name.span)
    if must_answer:
        span, options = statement.name.span, statement.options
        _require_answer(inspector, kind, planned, name, span, options, STORED_IN_LIST, is_new=True)
    record = _record(snapshot, snapshot.next_id, stored, name, kind)
    change = PutObject(record=record)
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, (change,)),
        operation=Operation(kind="CREATE CONNECTION", statement=record.definition, objects=(name,), changes=(change,)),
        changes=(ResultRow(object=name, change="CREATED", detail=f"type {kind}"),),
        affected=(record.id,),
    )


def _require_answer(
    inspector: Inspector,
    kind: str,
    planned: PlannedOptions,
    name: str,
    span: Span,
    options: tuple[Option, ...] = (),
    stored: str = "",
    *,
    is_new: bool = False,
) -> None:
    """Raises SqlError if the server does not respond or refuses the login. ``options`` are the options in the
    statement. ``stored`` is the last part of the hint, for statements that accept VALIDATE. ``is_new`` is True if the
    statement creates the connection."""
    otherwise = "" if is_new else f"SHOW CREATE CONNECTION {sql_name(name)}"
    if kind == REGISTRY:
        if (error := inspector.upstreams.registry_error(planned)) is not None:
            raise no_answer(
                f'the schema registry of connection "{name}"', error, span, options=options,
                stored=stored, otherwise=otherwise,
            )  # fmt: skip
        return
    if is_of_sources(kind):
        if captures_changes(connection_source(kind)) and "database.name" not in dict(planned):
            # A connection without a database cannot be tested yet, because a login needs a database. The sources that
            # use the connection name the database.
            return
        upstream = inspector.upstreams.look(connection_source(kind), planned)
        if not upstream.is_reachable:
            require_upstream(upstream, name, span, kind="connection", options=options, stored=stored, is_new=is_new)
        return
    target = inspector.upstreams.look_at_target(connection_sink(kind), planned, None)
    require_usable(target, f'the target of connection "{name}"', span, options)
    if target.error is not None:
        raise no_answer(
            f'the target of connection "{name}"', target.error, span, options=options, stored=stored,
            otherwise=otherwise,
        )  # fmt: skip


def lower_validate(statement: Validate, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers VALIDATE {CONNECTION | SOURCE | SINK} n. Raises SqlError if the server does not respond, or if an object
    that the definition names does not exist on the server."""
    if statement.kind == "SOURCE":
        source = find_source(snapshot, statement.name)
        upstream = inspector.upstreams.look(source.connector, source_options(snapshot, source))
        require_upstream_of(source, upstream, statement.name.span)
        require_columns(
            inspector,
            source.connector,
            source_options(snapshot, source),
            tuple(replace(column, span=statement.name.span) for column in definition_of(source).columns),
            source.name,
            statement.name.span,
        )
        name = source.name
    elif statement.kind == "CONNECTION":
        record = find_connection(snapshot, statement.name)
        planned = connection_options(snapshot, record)
        _require_answer(inspector, record.connector, planned, record.name, statement.name.span)
        name = record.name
    elif statement.kind == "SINK":
        sink = find_sink(snapshot, statement.name)
        require_target_of(sink, look_at_sink(snapshot, inspector, sink), statement.name.span, is_stored=False)
        return Plan(
            statement=statement,
            changes=(ResultRow(object=sink.name, change="VALID", detail="the target accepts its rows"),),
        )
    else:
        raise SqlError(
            NOT_SUPPORTED,
            f"VALIDATE {statement.kind} is not supported yet",
            span=statement.span,
            hint="VALIDATE CONNECTION, VALIDATE SOURCE and VALIDATE SINK are supported",
        )
    return Plan(statement=statement, changes=(ResultRow(object=name, change="VALID", detail="the upstream answers"),))


def lower_drop_connection(statement: DropConnection, snapshot: Snapshot) -> Plan:
    """Lowers DROP CONNECTION. The statement is refused while objects use the connection. With CASCADE, these objects
    are dropped too."""
    name = object_name(statement.name)
    if statement.if_exists and snapshot.find("connection", name) is None:
        return nothing(statement, name, f'connection "{name}" does not exist')
    record = find_connection(snapshot, statement.name)
    changes = drop_with_dependents(snapshot, record.id, "connection", name, statement.name.span, statement.is_cascade)
    return drop_plan(statement, snapshot, "DROP CONNECTION", changes)


def altered(statement: AlterConnectionOptions, current: CreateConnection, spec: ConnectorSpec) -> CreateConnection:
    """The connection's definition after the changes. DROP and RESET both restore an option's default.

    If the statement sets an option, the alternatives to this option are removed. The parser ensures that a statement
    changes each option only once. Raises SqlError if the statement sets an option and drops an alternative to the
    option, or if it changes the type.
    """
    sets = {option.key: option for change in statement.changes for option in change.options}
    drops = {dropped.key: dropped.span for change in statement.changes for dropped in change.keys}
    replaced = {other: key for key in sets if (known := spec.options.get(key)) for other in known.instead}
    for key in replaced.keys() & drops.keys():
        both = ", ".join(sorted((key, replaced[key])))
        message = f"cannot both SET and DROP/RESET mutually exclusive {spec.name.upper()} options {both}"
        raise SqlError(
            DUPLICATE_CLAUSE,
            message,
            span=drops[key],
            hint=f"remove {key} from DROP or RESET, because SET {replaced[key]} already replaces it",
        )
    if "type" in sets or "type" in drops:
        span = sets["type"].key_place if "type" in sets else drops["type"]
        raise SqlError(
            INVALID_DEFINITION,
            "the type of a connection cannot change",
            span=span,
            hint=f"CREATE CONNECTION {sql_name(statement.name.key + '_2')} WITH (type = …, …)",
        )
    present = {option.key for option in current.options}
    for key, span in drops.items():
        if key not in present:
            raise SqlError(
                UNKNOWN_PROPERTY,
                f'connection "{statement.name.key}" has no property "{key}" to drop',
                span=span,
                hint=f"the properties of {statement.name.key} are " + ", ".join(sorted(present - {"type"})),
            )
    gone = drops.keys() | replaced.keys() - sets.keys()
    kept = [sets.get(option.key, option) for option in current.options if option.key not in gone]
    return replace(current, options=(*kept, *(option for key, option in sets.items() if key not in present)))


def _check_altered(
    statement: AlterConnectionOptions, snapshot: Snapshot, merged: CreateConnection
) -> tuple[str, PlannedOptions]:
    """Calls :func:`check_connection` for the changed connection. An error in a part that the statement does not change
    points at the entire statement."""
    options = [option for change in statement.changes for option in change.options]
    written = [span for option in options for span in option.places]
    try:
        return check_connection(snapshot, merged, statement.name.span)
    except SqlError as error:
        if error.span not in written:
            keys = {dropped.key: dropped.span for change in statement.changes for dropped in change.keys}
            if isinstance(error, OptionError) and error.kind is MISSING_PROPERTY and error.key in keys:
                raise SqlError(
                    MISSING_PROPERTY,
                    f'property "{error.key}" is required and cannot be reset',
                    span=keys[error.key],
                    hint=f"set another value: SET ({error.key} = '…')",
                ) from error
            error.span = keys.get(error.key) if isinstance(error, OptionError) else None
            error.span = error.span or next(iter(keys.values()), statement.name.span)
        raise


def _check_user(statement: AlterConnectionOptions, moved: Snapshot, user: SourceRecord) -> None:
    """Calls ``check_source`` for a source that uses the connection. Raises SqlError if the source cannot use the
    changed connection.

    The error points at the statement that changes the connection, and names the source.
    """
    try:
        check_source(moved, definition_of(user))
    except SqlError as error:
        message = f'source "{user.name}" does not accept the change: {error.message}'
        raise SqlError(
            error.kind,
            message,
            span=statement.name.span,
            hint=f"SHOW CREATE SOURCE {sql_name(user.name)} shows its properties",
        ) from error


def _check_sink_user(statement: AlterConnectionOptions, moved: Snapshot, sink: SinkRecord) -> None:
    """Checks a sink that uses the connection, as :func:`_check_user` checks a source."""
    try:
        check_sink_options(moved, sink_definition(sink.definition))
    except SqlError as error:
        message = f'sink "{sink.name}" does not accept the change: {error.message}'
        raise SqlError(
            error.kind,
            message,
            span=statement.name.span,
            hint=f"SHOW CREATE SINK {sql_name(sink.name)} shows its properties",
        ) from error


def lower_alter_connection_options(
    statement: AlterConnectionOptions, snapshot: Snapshot, inspector: Inspector, later: LaterChanges = NO_LATER_CHANGES
) -> Plan:
    """Lowers ALTER CONNECTION, which changes options of a connection. Before the commit, the changed connection is
    validated, and every object that uses the connection is validated with the changed options.

    If the change may lead to another cluster, the statement is an unsafe operation: it shows a preview and needs a
    confirmation.
    """
    name = object_name(statement.name)
    if statement.if_exists and snapshot.find("connection", name) is None:
        return nothing(statement, name, f'connection "{name}" does not exist')
    current = find_connection(snapshot, statement.name)
    spec = connection_spec(current.connector)
    merged = altered(statement, connection_definition(current.definition), spec)
    kind, planned = _check_altered(statement, snapshot, merged)
    record = _record(snapshot, current.id, merged, current.name, kind)
    differs = differences(connection_options(snapshot, current), planned)
    if not differs:
        return nothing(statement, name, "the properties already have these values")
    moved = after(snapshot, (PutObject(record=record),))
    using = snapshot.users_of(current.id)
    users = [user for user in using if isinstance(user, SourceRecord)]
    sinks = [user for user in using if isinstance(user, SinkRecord)]
    followers: tuple[SourceRecord | SinkRecord, ...] = (*users, *sinks)
    if statement.is_validated and current.id not in later.changed:
        written = tuple(option for change in statement.changes for option in change.options)
        _require_answer(inspector, kind, planned, name, statement.name.span, written, STORED)
    effects: list[tuple[str, Effect]] = []
    changes: list[Change] = [PutObject(record=record)]
    for user in users:
        _check_user(statement, moved, user)
        effect = effect_on(
            snapshot,
            moved,
            inspector,
            user,
            statement.name.span,
            is_validated=statement.is_validated and user.id not in later.changed,
            may_move=kind != REGISTRY and may_move(spec, differs),
        )
        effects.append((user.name, effect))
        changed = source_record(moved, user, definition_of(user))
        if changed != user:
            changes.append(PutObject(record=changed))
    doubts = [f"source {source}: {effect.doubt}" for source, effect in effects if effect.doubt]
    for sink in sinks:
        _check_sink_user(statement, moved, sink)
        followed = sink_record(moved, sink, sink_definition(sink.definition))
        if followed != sink:
            changes.append(PutObject(record=followed))
        if statement.is_validated and sink.id not in later.changed:
            require_target_of(sink, look_at_sink(moved, inspector, sink), statement.name.span)
    if sinks and may_move(spec, differs):
        other = another_target(inspector, kind, connection_options(snapshot, current), planned)
        doubts += [f"sink {sink.name}: {other}" for sink in sinks if other]
    if kind == REGISTRY and users and any(key == ADDRESSES for key, _, _ in differs):
        doubts.append("another registry may have different schemas under the ids in the records")
    preview = Preview(
        title=f"ALTER CONNECTION {sql_name(name)}",
        dependents=tuple(f"{spoken(d.kind)} {d.name}" for d in snapshot.dependents_of(current.id)),
        properties=differs,
        splits=tuple(split for _, effect in effects for split in effect.splits),
        notices=(*doubts, *dict.fromkeys(notice for _, effect in effects for notice in effect.notices)),
    )
    answers = [ResultRow(object=name, change="ALTERED", detail=spell(*change)) for change in differs]
    answers += [ResultRow(object=user.name, change="FOLLOWS", detail=f"connection {name}") for user in followers]
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, tuple(changes)),
        operation=Operation(
            kind="ALTER CONNECTION",
            statement=render(statement),
            objects=(name, *(d.name for d in snapshot.dependents_of(current.id))),
            changes=tuple(changes),
            is_unsafe=bool(doubts),
            reason=statement.reason,
            plan=render_preview(preview),
        ),
        changes=tuple(answers),
        preview=preview,
        is_unsafe=bool(doubts),
        affected=(current.id, *(user.id for user in followers)),
    )
