"""Resolves unqualified names in a statement with the search path of the session.

The names in a statement are resolved only once, before the statement is lowered. Stored definitions do not depend on
the session: an unqualified name in a definition always refers to the schema ``public``.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rw_sql.errors import INVALID_PARAMETER, UNDEFINED_SCHEMA, Span, SqlError
from rw_sql.model.object_lookup import RELATION_KINDS, is_schema, undefined_relation
from rw_sql.syntax import statements as ast
from rw_sql.syntax.lexing.identifiers import PUBLIC, quoted, quoted_for_spark
from rw_sql.syntax.query.qualify import with_schemas

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.metastore import Snapshot

SEARCH_PATH = "search_path"
DEFAULT_PATH = (PUBLIC,)

_RELATIONS = (*RELATION_KINDS, "sink")
_NOT_OBJECTS = ast.CreateSchema | ast.DropSchema | ast.UseSchema | ast.SetParameter | ast.ShowParameter
_MAKES = (
    ast.CreateSource
    | ast.CreateTable
    | ast.CreateSink
    | ast.CreateMaterializedView
    | ast.CreateConnection
    | ast.CreateSecret
)


def path_of(text: str) -> tuple[str, ...]:
    """Parses the stored value of ``search_path``, which contains schema names separated by commas and quoted where
    necessary."""
    return tuple(_parts(text)) or DEFAULT_PATH


def path_text(schemas: Sequence[str]) -> str:
    """The canonical text of a search path."""
    return ", ".join(quoted(schema) for schema in schemas)


def _parts(text: str) -> list[str]:
    """Parses a list of names that are separated by commas. Unquoted names are folded. Raises ValueError if the text is
    not such a list."""
    found: list[str] = []
    rest = text.strip()
    while rest:
        if rest.startswith('"'):
            end = rest.find('"', 1)
            while rest[end + 1 : end + 2] == '"':
                end = rest.find('"', end + 2)
            if end < 0:
                raise ValueError("has a name whose closing quote is missing")
            name, rest = rest[1:end].replace('""', '"'), rest[end + 1 :].strip()
            if rest and not rest.startswith(","):
                raise ValueError("must be a list of schemas separated by commas")
            rest = rest[1:].strip()
        else:
            word, _, rest = rest.partition(",")
            name, rest = word.strip().lower(), rest.strip()
        if not name:
            raise ValueError("must be a list of schemas separated by commas")
        found.append(name)
    return found


def path_set(statement: ast.SetParameter) -> tuple[str, ...] | None:
    """The schemas that a statement ``SET search_path = …`` names; None for DEFAULT. Raises SqlError
    INVALID_PARAMETER."""
    if statement.value is None:
        return None
    found: list[str] = []
    for value in (statement.value, *statement.more_values):
        try:
            # An unquoted word is a single name. A quoted string may be a list of names; some drivers send such a list.
            found += [value.text] if isinstance(value, ast.WordValue) else _parts(value.text)
        except ValueError as error:
            raise SqlError(INVALID_PARAMETER, f'parameter "{SEARCH_PATH}" {error}', span=value.span) from error
    if not found:
        raise SqlError(
            INVALID_PARAMETER,
            f'parameter "{SEARCH_PATH}" needs at least one schema',
            span=statement.value.span,
            hint=f"SET {SEARCH_PATH} = {PUBLIC}",
        )
    return tuple(dict.fromkeys(found))


def resolved(
    statement: ast.Statement, snapshot: Snapshot, path: tuple[str, ...], query_dialect: str = "spark"
) -> ast.Statement:
    """Returns the statement with qualified names. An unqualified name is qualified if it refers to an object outside
    ``public``, or if it is the name of a new object that will be created outside ``public``.

    Raises SqlError if the statement creates an object and no schema of the path exists. Also raises SqlError if a query
    names a relation that exists only in ``public`` and ``public`` is not in the path.
    """
    if path == DEFAULT_PATH or isinstance(statement, _NOT_OBJECTS):
        return statement
    return _Resolver(snapshot, path, query_dialect).statement(statement)


def is_relation(snapshot: Snapshot, name: ast.Name, path: tuple[str, ...]) -> bool:
    """True if a table, source or view with this name exists. An unqualified name is looked up in the search path."""
    if len(name.parts) > 2:
        return False
    keys = [name.key] if len(name.parts) == 2 else [name.last if s == PUBLIC else f"{s}.{name.last}" for s in path]
    return any(snapshot.find(kind, key) is not None for key in keys for kind in RELATION_KINDS)


class _Resolver:
    def __init__(self, snapshot: Snapshot, path: tuple[str, ...], query_dialect: str) -> None:
        self._snapshot = snapshot
        self._path = tuple(schema for schema in path if is_schema(snapshot, schema))
        self._written = path
        self._dialect = query_dialect

    def statement(self, statement: ast.Statement) -> ast.Statement:
        """Returns the statement, in which each name is replaced with the full name of the object that the search path
        finds."""
        made: ast.Statement = self._parts(statement)
        return made

    def _parts(self, statement: Any) -> Any:
        changes: dict[str, Any] = {}
        for slot in fields(statement):
            value = getattr(statement, slot.name)
            if isinstance(statement, _MAKES) and slot.name == "name":
                new: Any = self._made(value)
            elif slot.name in ("new_name", "schema") and isinstance(statement, ast.AlterRename | ast.AlterSetSchema):
                continue
            else:
                new = self._value(value, _kinds(statement, slot.name))
            if new is not value:
                changes[slot.name] = new
        return replace(statement, **changes) if changes else statement

    def _value(self, value: Any, kinds: tuple[str, ...]) -> Any:
        match value:
            case ast.Name():
                return self._named(value, kinds)
            case ast.Query():
                return self._query(value)
            case ast.SecretValue(secret=name):
                new = self._named(name, ("secret",))
                return value if new is name else replace(value, secret=new)
            case ast.ConnectionValue(connection=name):
                new = self._named(name, ("connection",))
                return value if new is name else replace(value, connection=new)
            case tuple():
                parts = tuple(self._value(part, kinds) for part in value)
                return value if all(new is old for new, old in zip(parts, value, strict=True)) else parts
            case Span() | ast.Expression() | ast.DataType():
                return value
            case _ if is_dataclass(value):
                return self._parts(value)
            case _:
                return value

    def _made(self, name: ast.Name) -> ast.Name:
        """The name of a new object, qualified with the first existing schema of the path."""
        if len(name.parts) > 1:
            return name
        if not self._path:
            listed = path_text(self._written)
            raise SqlError(
                UNDEFINED_SCHEMA,
                f"no schema has been selected to create in: no schema of search_path ({listed}) exists",
                span=name.span,
                hint=f"CREATE SCHEMA {quoted(self._written[0])}, or SET search_path = {PUBLIC}",
            )
        return _in(self._path[0], name)

    def _named(self, name: ast.Name, kinds: tuple[str, ...]) -> ast.Name:
        """The name of an existing object, qualified with the first schema of the path that contains the object."""
        if len(name.parts) > 1:
            return name
        schema = self._schema_with(name.last, kinds)
        # Even if no schema of the path contains the name, the name is qualified, so that it does not refer to an object
        # of ``public``.
        return _in(schema or (PUBLIC if PUBLIC in self._path or not self._path else self._path[0]), name)

    def _schema_with(self, last: str, kinds: tuple[str, ...]) -> str | None:
        for schema in self._path:
            key = last if schema == PUBLIC else f"{schema}.{last}"
            if any(self._snapshot.find(kind, key) is not None for kind in kinds):
                return schema
        return None

    def _query(self, query: ast.Query) -> ast.Query:
        text = with_schemas(query.text, self._dialect, partial(self._relation, query))
        return query if text == query.text else replace(query, text=text)

    def _relation(self, query: ast.Query, name: str, start: int, end: int) -> str | None:
        schema = self._schema_with(name, RELATION_KINDS)
        if schema is None:
            if PUBLIC not in self._path and any(self._snapshot.find(kind, name) for kind in RELATION_KINDS):
                written = _in(self._path[0] if self._path else PUBLIC, _at(query, name, start, end))
                raise undefined_relation(
                    self._snapshot, written, "SHOW SOURCES lists the sources that a query can read"
                )
            return None
        if schema == PUBLIC:
            return None
        quote = quoted_for_spark if self._dialect == "spark" else quoted
        return ".".join(part if quoted(part) == part else quote(part) for part in (schema, name))


def _at(query: ast.Query, name: str, start: int, end: int) -> ast.Name:
    whole, before = query.span, query.text[:start]
    column = start - before.rfind("\n") if "\n" in before else whole.column + start
    line = whole.line + before.count("\n")
    return ast.Name(parts=(name,), span=Span(whole.start + start, whole.start + end, line, column))


def _in(schema: str, name: ast.Name) -> ast.Name:
    return name if schema == PUBLIC else replace(name, parts=(schema, name.last))


def _kinds(statement: Any, field: str) -> tuple[str, ...]:
    """The kinds of objects to which a name in a statement may refer."""
    match statement:
        case ast.AlterConnectionOptions() | ast.DropConnection():
            return ("connection",)
        case ast.AlterSecret() | ast.DropSecret():
            return ("secret",)
        case ast.AlterSetConnection() if field == "connection":
            return ("connection",)
        case ast.ShowLineage():
            return (*_RELATIONS, "connection", "secret")
        case _:
            kind = str(getattr(statement, "kind", "") or "").lower()
            return (kind,) if kind in ("connection", "secret") else _RELATIONS


def explicit(statement: ast.Statement, snapshot: Snapshot, query_dialect: str) -> ast.Statement:
    """Returns a stored definition in which unqualified names are qualified with ``public``. The meaning of the result
    does not depend on the search path."""
    return _Explicit(snapshot, DEFAULT_PATH, query_dialect).statement(statement)


class _Explicit(_Resolver):
    def _made(self, name: ast.Name) -> ast.Name:
        return self._named(name, ())

    def _named(self, name: ast.Name, kinds: tuple[str, ...]) -> ast.Name:
        return name if len(name.parts) > 1 else replace(name, parts=(PUBLIC, name.last))

    def _relation(self, query: ast.Query, name: str, start: int, end: int) -> str | None:
        if self._schema_with(name, RELATION_KINDS) is None:
            return None  # the relation is Spark's
        return f"{PUBLIC}.{query.text[start:end]}"
