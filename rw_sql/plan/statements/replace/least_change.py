"""Finds the least change from one definition of an object to another. The result contains the statements that alter the
object in place, or the reason why this is impossible."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rw_sql.connectors.connection_types import connection_spec, connection_types
from rw_sql.model.definitions import GROUP_OPTION, REFRESH_OPTIONS, connector_of, option_text, source_of_table
from rw_sql.model.options import names_in_connection
from rw_sql.model.rates import BARRIER_INTERVAL
from rw_sql.model.rates import RATE_LIMIT as SOURCE_RATE_LIMIT
from rw_sql.plan.checks.columns import lists_columns
from rw_sql.plan.statements.replace.column_changes import column_changes
from rw_sql.plan.statements.replace.normal_form import (
    IN_SPARK,
    as_written_before,
    compared_column,
    differing_clauses,
    is_same_option,
    own_options,
    spec_of,
    with_taken_columns,
)
from rw_sql.plan.statements.view.backfill_plan import RATE_LIMIT
from rw_sql.syntax.statements import (
    AlterConnectionOptions,
    AlterConnector,
    AlterSet,
    AlterSetConnection,
    AlterSourceUnsafeSet,
    AlterTableUnsafeSet,
    ConnectionChange,
    ConnectionValue,
    CreateConnection,
    CreateMaterializedView,
    CreateSecret,
    CreateSink,
    CreateSource,
    CreateTable,
    NumberValue,
    OptionKey,
    SecretValue,
    TextValue,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rw_sql.connectors.spec import ConnectorSpec
    from rw_sql.plan.statements.replace.normal_form import Dialects
    from rw_sql.syntax.statements import Name, Option, Statement

Create = CreateSource | CreateTable | CreateSink | CreateMaterializedView | CreateConnection | CreateSecret

_OF_VIEWS = (RATE_LIMIT, GROUP_OPTION)
"""The options of a view that ALTER … SET changes in place."""

_PARAMETERS = (SOURCE_RATE_LIMIT, RATE_LIMIT, BARRIER_INTERVAL, GROUP_OPTION)
"""The properties that ALTER … SET changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastChange:
    """Statements that alter an object in place, in the order in which they are run; empty if nothing has to change.

    ``refusal`` is the reason why the object cannot be altered in place. ``needs_rebuild`` is True if a rebuild can make
    the change. In this case, the statements run before the rebuild, because they make changes that a rebuild cannot
    make.
    """

    statements: tuple[Statement, ...] = ()
    refusal: str = ""
    needs_rebuild: bool = False

    @property
    def is_empty(self) -> bool:
        """True if nothing has to change."""
        return not self.statements and not self.refusal


@dataclass(slots=True)
class _OptionChanges:
    """The changes to a WITH list: the options to set, the keys to unset, and the new connection, if the wanted
    definition names a different connection.

    ``unlike`` are the options for which the new connection provides different values than the object has. These values
    must be set in the object before the object gets the new connection. ``lacking`` are the options of the connection
    that are in neither definition of the object.
    """

    unlike: list[Option] = field(default_factory=list)
    lacking: list[Option] = field(default_factory=list)
    sets: list[Option] = field(default_factory=list)
    unsets: list[OptionKey] = field(default_factory=list)
    parameters: list[tuple[str, Option | None]] = field(default_factory=list)
    connection: tuple[Name | None] | None = None


def least_change(
    current: Create, wanted: Create, connections: Mapping[str, CreateConnection], dialects: Dialects = IN_SPARK
) -> LeastChange:
    """Returns the statements that convert one definition into another definition of the same kind and name, or the
    reason why there are no such statements.

    ``connections`` maps names to the definitions that the connections will have. ``dialects`` are the dialects of the
    queries and expressions of both definitions, because a text may have different meanings in different dialects. If a
    definition takes its columns from a schema, the function uses the columns that the object got from the schema at its
    creation.
    """
    # The two branches show the type checker that both statements are of the same class.
    if isinstance(current, CreateSource) and isinstance(wanted, CreateSource):  # noqa: SIM114
        wanted = with_taken_columns(current, wanted)
    elif isinstance(current, CreateTable) and isinstance(wanted, CreateTable):
        wanted = with_taken_columns(current, wanted)
    return _least_change(current, wanted, connections, dialects)


def _least_change(
    current: Create, wanted: Create, connections: Mapping[str, CreateConnection], dialects: Dialects
) -> LeastChange:
    """Implements :func:`least_change` for definitions that list their columns."""
    if isinstance(current, CreateSource | CreateTable) and isinstance(wanted, CreateSource | CreateTable):
        wanted = as_written_before(current, wanted)
    match current, wanted:
        case CreateConnection(), CreateConnection():
            return _of_connection(current, wanted)
        case CreateSecret(), CreateSecret():
            return _of_secret(current, wanted)
        case CreateMaterializedView(), CreateMaterializedView():
            return _of_view(current, wanted, dialects)
        case CreateSource(), CreateSource():
            is_as_upstream = not wanted.columns and lists_columns(wanted)
            if not is_as_upstream and [compared_column(c) for c in current.columns] != [
                compared_column(c) for c in wanted.columns
            ]:
                return LeastChange(refusal="the columns of a source cannot change")
            return _of_connected("SOURCE", current, wanted, connections)
        case CreateTable(), CreateTable():
            return _of_table(current, wanted, connections, dialects)
        case CreateSink(), CreateSink():
            return _of_connected("SINK", current, wanted, connections, dialects)
        case _:
            raise TypeError(f"{type(current).__name__} cannot become {type(wanted).__name__}")


def _of_connection(current: CreateConnection, wanted: CreateConnection) -> LeastChange:
    kinds = [next((option_text(o.value).lower() for o in s.options if o.key == "type"), "") for s in (current, wanted)]
    if kinds[0] != kinds[1]:
        return LeastChange(refusal="the type of a connection cannot change")
    spec = connection_spec(kinds[1]) if kinds[1] in connection_types() else None
    old, new = own_options(current, spec), own_options(wanted, spec)
    sets = tuple(o for key, o in new.items() if key != "type" and not _is_kept(old, o, spec))
    written = {option.key for option in wanted.options}
    # Setting an option also removes other options with the same meaning.
    replaced = {key for option in sets if spec is not None and (k := spec.option(option.key)) for key in k.instead}
    gone = [key for key in old if key not in new and key not in replaced and key != "type"]
    reset = [key for key in (o.key for o in current.options) if key in gone and key not in written]
    back = tuple(option for option in wanted.options if option.key in gone)
    changes = []
    if sets or back:
        changes.append(ConnectionChange(verb="SET", options=(*sets, *back)))
    if reset:
        changes.append(ConnectionChange(verb="DROP", keys=tuple(OptionKey(key=key) for key in reset)))
    if not changes:
        return LeastChange()
    return LeastChange(statements=(AlterConnectionOptions(name=wanted.name, changes=tuple(changes)),))


def _is_kept(old: Mapping[str, Option], new: Option, spec: ConnectorSpec | None) -> bool:
    return new.key in old and is_same_option(old[new.key], new, spec)


def _of_secret(current: CreateSecret, wanted: CreateSecret) -> LeastChange:
    old, new = (
        {o.key: option_text(o.value).lower() if o.key == "backend" else option_text(o.value) for o in s.options}
        for s in (current, wanted)
    )
    if old == new:
        return LeastChange()
    return LeastChange(refusal="the backend of a secret and the properties of the backend cannot change")


def _of_view(current: CreateMaterializedView, wanted: CreateMaterializedView, dialects: Dialects) -> LeastChange:
    old, new = own_options(current), own_options(wanted)
    differing = differing_clauses(current, wanted, dialects)
    if {key: option_text(o.value) for key, o in old.items() if key not in _OF_VIEWS} != {
        key: option_text(o.value) for key, o in new.items() if key not in _OF_VIEWS
    }:
        differing.append("startup or parallelism option")
    if differing:
        said = ", ".join("query" if clause == "AS" else clause for clause in differing)
        first = _parameters(wanted.name, old, new, (GROUP_OPTION,))
        return LeastChange(statements=first, refusal=f"its {said} cannot change in place", needs_rebuild=True)
    return LeastChange(statements=_parameters(wanted.name, old, new, _OF_VIEWS))


def _parameters(
    name: Name, old: Mapping[str, Option], new: Mapping[str, Option], parameters: tuple[str, ...]
) -> tuple[AlterSet, ...]:
    """The statements that set the given parameters of a view to their new values."""
    return tuple(
        _set("MATERIALIZED VIEW", name, parameter, option)
        for parameter in parameters
        if not _is_unchanged(old, parameter, option := new.get(parameter))
    )


def _is_unchanged(old: Mapping[str, Option], parameter: str, option: Option | None) -> bool:
    return parameter not in old if option is None else _is_kept(old, option, None)


def _set(kind: str, name: Name, parameter: str, option: Option | None) -> AlterSet:
    if option is None:
        return AlterSet(kind=kind, name=name, parameter=parameter)
    if isinstance(option.value, SecretValue | ConnectionValue):
        raise TypeError(f"the value of {parameter} is a secret or a connection")
    # WITH accepts a number in quotes, because variables in a folder are written in quotes. SET does not accept a number
    # in quotes, so the quotes are removed.
    is_number = isinstance(option.value, TextValue) and parameter != GROUP_OPTION
    value = NumberValue(text=option.value.text.strip()) if is_number else option.value
    return AlterSet(kind=kind, name=name, parameter=parameter, values=(value,), parameter_span=option.span)


def _of_table(
    current: CreateTable, wanted: CreateTable, connections: Mapping[str, CreateConnection], dialects: Dialects
) -> LeastChange:
    columns = column_changes(current, wanted, dialects)
    if columns.refusal:
        return LeastChange(refusal=columns.refusal)
    rest = _of_connected("TABLE", columns.left, wanted, connections, dialects)
    return LeastChange(statements=(*columns.statements, *rest.statements), refusal=rest.refusal)


def _of_connected(
    kind: str,
    current: CreateSource | CreateTable | CreateSink,
    wanted: CreateSource | CreateTable | CreateSink,
    connections: Mapping[str, CreateConnection],
    dialects: Dialects = IN_SPARK,
) -> LeastChange:
    if connector_of(current) != connector_of(wanted):
        return LeastChange(refusal=f"its connector is {connector_of(current)}, not {connector_of(wanted)}")
    differing = differing_clauses(current, wanted, dialects)
    if differing:
        return LeastChange(refusal=f"{', '.join(differing)} cannot change")
    spec = spec_of(wanted)
    changes = _option_changes(current, wanted, spec, connections)
    name = wanted.name
    if changes.unlike and connection_name(own_options(current, spec)) is None:
        # One statement sets all values, because there may be no upstream with only some of the values.
        values = [*changes.unlike, *changes.sets]
        before = _set_options(kind, name, spec, values, changes.unsets)
        if any(isinstance(s, AlterSourceUnsafeSet | AlterTableUnsafeSet) for s in before.statements):
            before = _set_options(kind, name, spec, [*values, *changes.lacking], changes.unsets)
        after = LeastChange()
    else:
        before = _set_options(kind, name, spec, changes.unlike, [])
        after = _set_options(kind, name, spec, changes.sets, changes.unsets)
    for found in (before, after):
        if found.refusal:
            return found
    statements: list[Statement] = [*before.statements]
    if changes.connection is not None:
        statements.append(AlterSetConnection(kind=kind, name=name, connection=changes.connection[0]))
    statements += after.statements
    statements += [_set(kind, name, parameter, option) for parameter, option in changes.parameters]
    return LeastChange(statements=tuple(statements))


def _set_options(
    kind: str, name: Name, spec: ConnectorSpec | None, sets: Sequence[Option], unsets: Sequence[OptionKey]
) -> LeastChange:
    """Returns the statement that sets and unsets options of a connector, or the reason why there is no such
    statement."""
    alterable = [o for o in sets if spec is not None and (k := spec.option(o.key)) and k.is_alterable]
    fixed = [*(o.key for o in sets if o not in alterable), *(key.key for key in unsets)]
    if kind == "SINK" and fixed:
        return LeastChange(refusal=f"{', '.join(fixed)} of a sink cannot change")
    if own := [key for key in fixed if key in REFRESH_OPTIONS]:
        return LeastChange(refusal=f"{', '.join(own)} cannot change")
    if fixed:
        made = AlterTableUnsafeSet if kind == "TABLE" else AlterSourceUnsafeSet
        return LeastChange(statements=(made(name=name, set_options=tuple(sets), unset_options=tuple(unsets)),))
    if sets:
        return LeastChange(statements=(AlterConnector(kind=kind, name=name, options=tuple(sets)),))
    return LeastChange()


def _option_changes(
    current: CreateSource | CreateTable | CreateSink,
    wanted: CreateSource | CreateTable | CreateSink,
    spec: ConnectorSpec | None,
    connections: Mapping[str, CreateConnection],
) -> _OptionChanges:
    old, new = own_options(current, spec), own_options(wanted, spec)
    before, after = connection_name(old), connection_name(new)
    found = _OptionChanges()
    taken: set[str] = set()
    if (before.key if before else None) != (after.key if after else None):
        found.connection = (after,)
        # SET CONNECTION removes the object's options that the new connection provides, and adds the options that the
        # old connection provided.
        old = {**given_by(connections, before, wanted), **old} if after is None else old
        given = given_by(connections, after, wanted)
        taken = set(given)
        found.unlike = [
            given[option.key]
            for option in current.options
            if option.key in given and option_text(option.value) != option_text(given[option.key].value)
        ]
        own = {option.key for option in (*current.options, *wanted.options)}
        found.lacking = [option for key, option in given.items() if key not in own]
    written = {option.key: option for option in wanted.options}
    for key, option in new.items():
        if key in ("connector", "connection") or _is_kept(old, option, spec):
            continue
        if key in _PARAMETERS:
            found.parameters.append((key, option))
        else:
            found.sets.append(option)
    replaced = {key for o in found.sets if spec is not None and (k := spec.option(o.key)) for key in k.instead}
    for key in old:
        if key in new or key in ("connector", "connection") or key in taken:
            continue
        if key in _PARAMETERS:
            found.parameters.append((key, None))
        elif key in written:  # the default, written out
            found.sets.append(written[key])
        elif key not in replaced:
            found.unsets.append(OptionKey(key=key, span=wanted.name.span))
    return found


def connection_name(options: Mapping[str, Option]) -> Name | None:
    """The name of the connection in a WITH list, if the list names a connection."""
    option = options.get("connection")
    return option.value.connection if option is not None and isinstance(option.value, ConnectionValue) else None


def given_by(
    connections: Mapping[str, CreateConnection], name: Name | None, user: CreateSource | CreateTable | CreateSink
) -> dict[str, Option]:
    """The options that a connection provides to an object, under the object's option names; empty if the connection
    is unknown."""
    connection = connections.get(name.key) if name is not None else None
    if connection is None:
        return {}
    names = names_in_connection(source_of_table(user) if isinstance(user, CreateTable) else user)
    given = (replace(option, key=names.get(option.key, option.key)) for option in connection.options)
    return {option.key: option for option in given if option.key != "type"}
