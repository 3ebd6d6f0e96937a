"""Sorts a folder's objects in an order in which they can be created: each object comes after the objects to which it
refers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import INVALID_DEFINITION, SqlError
from rw_sql.plan.deploy.folder import KINDS, RELATIONS
from rw_sql.syntax.query.tables_read import table_names
from rw_sql.syntax.statements import (
    ConnectionValue,
    CreateMaterializedView,
    CreateSink,
    CreateSource,
    CreateTable,
    SecretValue,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.plan.deploy.folder import FolderObject
    from rw_sql.syntax.statements import Name, Option, Statement

_PLACES = {kind: at for at, kind in enumerate(KINDS.values())}


class CircleError(SqlError):
    """Raised for a circular dependency between objects of a folder. Each of ``members`` refers to the next member, and
    the last member refers to the first."""

    def __init__(self, members: Sequence[FolderObject]) -> None:
        circle = " → ".join(found.name for found in (*members, members[0]))
        super().__init__(
            INVALID_DEFINITION,
            f"the dependencies between objects of the folder form a cycle: {circle}",
            span=members[0].statement.name.span,
        )
        self.members = tuple(members)


def named_by(wanted: FolderObject) -> tuple[tuple[str, str], ...]:
    """The names to which a definition refers, as pairs (kind, name). The kind is ``secret``, ``connection`` or
    ``relation``.

    A name with the kind ``relation`` may also refer to a Spark table.
    """
    statement = wanted.statement
    found: list[tuple[str, str]] = []
    if statement.name.schema is not None and wanted.kind != "schema":
        found.append(("schema", statement.name.schema))
    found += [("secret", name.key) for name in secrets_of(statement)]
    for option in _options_of(statement):
        if isinstance(option.value, ConnectionValue):
            found.append(("connection", option.value.connection.key))
    if isinstance(statement, CreateMaterializedView | CreateSink | CreateTable) and statement.query is not None:
        found += [("relation", name) for name in table_names(statement.query.text)]
    if isinstance(statement, CreateSink):
        found += [("relation", name.key) for name in (statement.relation, statement.into) if name is not None]
    if isinstance(statement, CreateSource | CreateTable) and statement.cdc_table is not None:
        found.append(("relation", statement.cdc_table.source.key))
    return tuple(dict.fromkeys(found))


def secrets_of(statement: Statement) -> tuple[Name, ...]:
    """The names of the secrets in the options of a statement."""
    return tuple(option.value.secret for option in _options_of(statement) if isinstance(option.value, SecretValue))


def _options_of(statement: Statement) -> tuple[Option, ...]:
    """The options in the WITH list and in the FORMAT clause of a statement."""
    clause = getattr(statement, "format", None)
    return (*getattr(statement, "options", ()), *(clause.options if clause is not None else ()))


def in_order(folder: Sequence[FolderObject]) -> tuple[FolderObject, ...]:
    """Sorts the objects: each object comes after the objects to which it refers. If this rule allows several orders,
    kind, file and line decide.

    Raises CircleError.
    """
    by_name = {key_of(wanted.kind, wanted.name): wanted for wanted in folder}
    done: dict[tuple[str, str], FolderObject] = {}
    under_way: list[FolderObject] = []

    def place(wanted: FolderObject) -> None:
        if key_of(wanted.kind, wanted.name) in done:
            return
        if wanted in under_way:
            raise CircleError(under_way[under_way.index(wanted) :])
        under_way.append(wanted)
        for key in named_by(wanted):
            other = by_name.get(key)
            if other is not None:
                place(other)
        under_way.pop()
        done[key_of(wanted.kind, wanted.name)] = wanted

    for wanted in sorted(folder, key=lambda found: (_PLACES[found.kind], found.file, found.line)):
        place(wanted)
    return tuple(done.values())


def key_of(kind: str, name: str) -> tuple[str, str]:
    """Returns the object as a pair (kind, name), as :func:`named_by` does. All relations have the kind ``relation``,
    because they share one namespace."""
    return ("relation" if kind in RELATIONS else kind, name)
