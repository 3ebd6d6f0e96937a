"""Determines the names of the objects that a source's reader creates upstream, such as a slot, a subscription or a
session.

If the user gives no name, CREATE generates one and stores it in the source's definition. The reader finds the upstream
object by this name. Therefore, every later definition of the source must contain the same name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from rw_sql.connectors.registry import names_upstream
from rw_sql.model.definitions import connector_of
from rw_sql.model.options import plan_options, visible
from rw_sql.syntax.statements import CreateSource, CreateTable, Option, TextValue

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot

_ReadT = TypeVar("_ReadT", bound=CreateSource | CreateTable)


def with_generated_names(
    statement: CreateSource, snapshot: Snapshot, source_id: int, created_at_ms: int
) -> CreateSource:
    """Returns ``statement`` with a generated name for each upstream object that it does not name. A generated name
    contains the source's id and time of creation, because no two sources have both in common."""
    kind = names_upstream(connector_of(statement) or "")
    if kind is None:
        return statement
    given = visible(plan_options(snapshot, statement))
    made = kind.filled_in(given, f"{source_id:x}{created_at_ms:x}")
    more = tuple(Option(key=key, value=TextValue(text=value)) for key, value in made.items() if key not in given)
    return replace(statement, options=(*statement.options, *more))


def with_kept_names(current: CreateSource | CreateTable, wanted: _ReadT) -> _ReadT:
    """Returns ``wanted``, the new definition of a source. If ``wanted`` has the same connector as the definition
    ``current``, the result takes the names that ``wanted`` lacks from ``current``."""
    kind = names_upstream(connector_of(wanted) or "")
    if kind is None or connector_of(current) != connector_of(wanted):
        return wanted
    written = {option.key for option in wanted.options}
    made = kind.filled_in({}, "x")
    more = tuple(option for option in current.options if option.key in made and option.key not in written)
    return replace(wanted, options=(*wanted.options, *more))
