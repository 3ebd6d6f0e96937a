"""Lowers ALTER … SWAP WITH, which exchanges the names of two objects of the same kind in one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import DUPLICATE_CLAUSE, WRONG_KIND, SqlError
from rw_sql.metastore.records import Operation
from rw_sql.model.object_lookup import find_relation, object_name, spoken
from rw_sql.plan.result.plan import Plan, ResultRow
from rw_sql.plan.result.steps import steps_of
from rw_sql.plan.statements.table.new_names import renamed
from rw_sql.plan.statements.table.rename import find_named
from rw_sql.syntax import render
from rw_sql.syntax.lexing.identifiers import sql_name

if TYPE_CHECKING:
    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.plan.statements.table.new_names import Named
    from rw_sql.syntax.statements import AlterSwap, Name, Statement

SWAP_NAMES = "SWAP {}"
"""The template for the kind of an exchange operation. The placeholder stands for the kind of the two objects, as in
SWAP TABLE."""


def lower_alter_swap(statement: AlterSwap, snapshot: Snapshot) -> Plan:
    """Lowers SWAP WITH. After the commit, each of the two names refers to the other object. Existing readers continue
    to read the objects that they read before, under the new names.

    Both objects keep their rows. The objects and their readers continue at their positions.
    """
    one = _find(statement, statement.name, snapshot)
    other = _find(statement, statement.other, snapshot)
    if one.id == other.id:
        raise SqlError(
            DUPLICATE_CLAUSE,
            f'"{one.name}" cannot swap its name with itself',
            span=statement.other.span,
            hint=f"name two different objects: ALTER {statement.kind} {sql_name(one.name)} SWAP WITH another",
        )
    return swapped(statement, snapshot, one, other, SWAP_NAMES.format(statement.kind), statement.name.span)


def swapped(statement: Statement, snapshot: Snapshot, one: Named, other: Named, kind: str, span: Span) -> Plan:
    """The plan that exchanges the names of two objects."""
    changes, readers = renamed(snapshot, {one.id: other.name, other.id: one.name}, span)
    both = {one.id, other.id}
    return Plan(
        statement=statement,
        steps=steps_of(snapshot, tuple(changes)),
        operation=Operation(
            kind=kind,
            statement=render(statement),
            objects=(one.name, other.name, *(reader.name for reader in readers if reader.id not in both)),
            changes=tuple(changes),
        ),
        changes=(
            ResultRow(object=other.name, change="RENAMED", detail=f"was {one.name}"),
            ResultRow(object=one.name, change="RENAMED", detail=f"was {other.name}"),
            *(_goes_on(snapshot, reader, one, other) for reader in readers if reader.id not in both),
        ),
        affected=(one.id, other.id),
    )


def _goes_on(snapshot: Snapshot, reader: Named, one: Named, other: Named) -> ResultRow:
    """Returns the result row for a reader of at least one of the two objects. The reader continues to read the same
    rows, under the object's new name."""
    new = [now for found, now in ((one, other.name), (other, one.name)) if reader in snapshot.readers_of(found.id)]
    return ResultRow(
        object=reader.name, change="ALTERED", detail=f"reads the same rows, which now belong to {' and '.join(new)}"
    )


def _find(statement: AlterSwap, name: Name, snapshot: Snapshot) -> Named:
    """Does the same as ``find_named``, except that the error for an object of another kind names this other kind."""
    wanted = statement.kind.lower().replace(" ", "_")
    last = object_name(name)
    found = find_relation(snapshot, last) or snapshot.find("sink", last)
    if found is not None and found.kind != wanted:
        raise SqlError(
            WRONG_KIND,
            f'"{last}" is a {spoken(found.kind)}, not a {spoken(wanted)}: only objects of one kind swap their names',
            span=name.span,
            hint=f"ALTER {spoken(found.kind).upper()} {sql_name(found.name)} SWAP WITH another {spoken(found.kind)}",
        )
    return find_named(statement, name, snapshot, "SWAP WITH")
