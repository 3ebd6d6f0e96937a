"""Computes a canonical text of a query, which is the same for all layouts, comments, letter cases, and aliases of
relations."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from rw_sql.syntax.query.tables_read import parse_plain_spark

if TYPE_CHECKING:
    from sqlglot import exp

_OWN_SCHEMA = "public"


@lru_cache(maxsize=4_096)
def canonical_query(text: str, dialect: str = "spark") -> str:
    """The query in canonical form. Two queries with the same form have the same meaning.

    If an alias only stands for a relation's name, the canonical form has the relation's name instead of the alias,
    because RENAME TO adds an alias to each query that reads the renamed object. If sqlglot cannot parse a query, or if
    the query is nested too deeply for Python's recursion limit, the canonical form is the query's text without
    surrounding white space.
    """
    from sqlglot.errors import SqlglotError

    try:
        return _canonical(text, dialect)
    except (SqlglotError, RecursionError):
        return text.strip()


def _canonical(text: str, dialect: str) -> str:
    from sqlglot import exp, parse_one

    tree = parse_plain_spark(text) if dialect == "spark" else parse_one(text, read=dialect)
    for table in tree.find_all(exp.Table):
        if table.db.lower() == _OWN_SCHEMA and not table.catalog:
            table.set("db", None)
    _drop_aliases(tree)
    _fold_relations(tree)
    for name in tree.find_all(exp.Identifier):
        name.set("quoted", True)
    return tree.sql(dialect=dialect, comments=False, normalize_functions="upper")


def _fold_relations(tree: exp.Expr) -> None:
    """Folds the names of relations to lower case, as the catalog does. Folds the aliases of relations and the
    qualifiers of columns as Spark does.

    The names of columns keep their case, because the view's own columns get these names. In a path such as
    ``column.a.b``, the names between the column and the last name also keep their case. Such a name may be a key of a
    MAP, and keys are values.
    """
    from sqlglot import exp

    for table in tree.find_all(exp.Table):
        for part in table.parts:
            if isinstance(part, exp.Identifier) and not part.quoted:
                part.set("this", part.name.lower())
        alias = table.args.get("alias")
        if alias is not None and not alias.columns and table.alias.lower() == table.name.lower():
            table.set("alias", None)
    for alias in tree.find_all(exp.TableAlias):
        if isinstance(alias.this, exp.Identifier):
            alias.this.set("this", alias.name.lower())
    read: set[tuple[str, ...]] = set()
    for table in tree.find_all(exp.Table):
        names = tuple(part.name.lower() for part in table.parts)
        read |= {names[at:] for at in range(len(names))} | {(_OWN_SCHEMA, *names)}
    for column in tree.find_all(exp.Column):
        names = tuple(part.name.lower() for part in column.parts[:-1])
        count = next((at for at in range(len(names), 0, -1) if names[:at] in read), 1)
        for part in column.parts[:-1][:count]:
            if isinstance(part, exp.Identifier):
                part.set("this", part.name.lower())


def _drop_aliases(tree: exp.Expr) -> None:
    """Replaces the aliases of relations with the relations' names, but only if each relation is read only once, and if
    no other item of FROM has the relation's name or alias."""
    from sqlglot import exp

    tables = [table for table in tree.find_all(exp.Table) if isinstance(table.this, exp.Identifier)]
    taken = [name.lower() for table in tables for name in {table.name, table.alias_or_name}]
    taken += [alias.name.lower() for alias in tree.find_all(exp.TableAlias) if not isinstance(alias.parent, exp.Table)]
    for table in tables:
        alias = table.args.get("alias")
        if alias is None or alias.columns or not table.alias:
            continue
        old, new = table.alias.lower(), table.name
        if taken.count(old) > 1 or taken.count(new.lower()) > 1:
            continue
        for column in tree.find_all(exp.Column):
            if column.table.lower() == old and not column.db:
                column.set("table", table.this.copy())
        table.set("alias", None)
