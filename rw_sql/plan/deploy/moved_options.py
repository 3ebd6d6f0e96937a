"""Handles options that move between the definition of an object and the definition of the object's connection."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rw_sql.model.definitions import option_text
from rw_sql.plan.statements.replace.least_change import LeastChange, connection_name, given_by, least_change
from rw_sql.syntax.statements import (
    AlterSetConnection,
    AlterSourceUnsafeSet,
    AlterTableUnsafeSet,
    CreateSink,
    CreateSource,
    CreateTable,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.plan.statements.replace.least_change import Create
    from rw_sql.plan.statements.replace.normal_form import Dialects
    from rw_sql.syntax.statements import CreateConnection, Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Detour:
    """The changes to an object while its connection changes. The statements in ``first`` precede the change of
    ``connection`` and end with SET CONNECTION NONE. The statements in ``rest`` follow the change of ``connection`` and
    begin with SET CONNECTION.
    """

    connection: str
    first: tuple[Statement, ...]
    rest: LeastChange


def detour_of(
    current: Create,
    wanted: Create,
    before: Mapping[str, CreateConnection],
    after: Mapping[str, CreateConnection],
    dialects: Dialects,
) -> Detour | None:
    """Returns the :class:`Detour` of an object if options move between the object and its connection. Returns None if
    no option moves, or if the connection loses or changes an option without moving it to the object.

    An object and its connection must not set the same option, and the object must not lack a required option. Because
    of these two rules, neither the object nor the connection can be altered first. The detour therefore detaches the
    object from the connection, alters the connection, and attaches the object again. ``before`` and ``after`` map the
    names of the connections to their present and their new definitions. ``dialects`` has the same meaning as in
    :func:`least_change`.
    """
    connected = (CreateSource, CreateTable, CreateSink)
    if not isinstance(current, connected) or not isinstance(wanted, connected):
        return None
    own, later = ({option.key: option for option in each.options} for each in (current, wanted))
    name, next_name = connection_name(own), connection_name(later)
    if name is None or next_name is None or name.key != next_name.key:
        return None
    old, new = given_by(before, name, current), given_by(after, name, wanted)
    into = [key for key in own if key in new and key not in old and key not in later]
    out = [key for key in later if key in old and key not in new and key not in own]
    if not into and not out:
        return None
    if any(
        key not in new or option_text(old[key].value) != option_text(new[key].value) for key in old if key not in out
    ):
        return None  # SET CONNECTION NONE would copy the values that the connection is about to change.
    changed = tuple(new[key] for key in into if option_text(own[key].value) != option_text(new[key].value))
    if changed and isinstance(current, CreateSink):
        return None  # The sink must be created again anyway.
    kind = {CreateSource: "SOURCE", CreateTable: "TABLE", CreateSink: "SINK"}[type(current)]
    made = AlterTableUnsafeSet if kind == "TABLE" else AlterSourceUnsafeSet
    first = (made(name=wanted.name, set_options=changed),) if changed else ()
    options = tuple(option for option in current.options if option.key not in into)
    between = replace(current, options=(*options, *(old[key] for key in out)))
    rest = least_change(between, wanted, after, dialects)
    attach = AlterSetConnection(kind=kind, name=wanted.name, connection=next_name)
    return Detour(
        connection=name.key,
        first=(*first, replace(attach, connection=None)),
        rest=replace(rest, statements=(attach, *rest.statements)),
    )
