"""Finds the tables and columns that a query uses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from rw_sql.syntax.lexing.identifiers import PUBLIC, quoted_for_spark
from rw_sql.syntax.query.spark_tokens import dialect_of, spark_tokens
from rw_sql.syntax.query.trees import counts_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlglot import exp


@lru_cache(maxsize=256)
def table_names(query: str) -> tuple[str, ...]:
    """The tables that a query reads, without duplicates, in the order of the text.

    Names are in the catalog's form, folded to lower case unless quoted.

    The catalog's form is ``name`` for tables in ``public``, and ``schema.name`` for tables in other schemas. Names that
    the query itself defines in WITH are left out. The query must be valid.
    """
    return tuple(dict.fromkeys(map(catalog_name, _shared_tables(query))))


def _tree(query: str) -> exp.Expr:
    from sqlglot import parse_one
    from sqlglot.errors import SqlglotError

    try:
        return shared_tree(query)
    except SqlglotError:
        return parse_one(query, read="risingwave")


@lru_cache(maxsize=64)
def shared_tree(query: str) -> exp.Expr:
    """The tree of a query, which the caller must not modify.

    The tree is cached, because several functions analyze each query one after another.
    """
    return parse_spark(query)


_STAND_IN = "windo_"


_PARSER_FAULTS = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""The errors of Python that sqlglot raises for some calls with too few arguments, such as ``map(a)``, in place of its
own errors."""


@lru_cache(maxsize=64)
def plain_tree(query: str) -> exp.Expr:
    """Returns a query's tree like :func:`shared_tree`, except that calls keep their names and arguments (see
    :mod:`plain_calls`)."""
    return parse_plain_spark(query)


def parse_plain_spark(query: str) -> exp.Expr:
    """Parses a query like :func:`parse_spark`, except that calls keep their names and arguments (see
    :mod:`plain_calls`).

    If a call in the query can be parsed only by sqlglot's special rules, the result is that of :func:`parse_spark`.
    Raises SqlglotError.
    """
    from sqlglot.errors import ParseError, SqlglotError

    from rw_sql.syntax.query.plain_calls import parse_plain, without_window_clause

    tokens = spark_tokens(query)
    without_window_clause(tokens)
    try:
        trees = parse_plain(tokens, query, "spark")
    except (SqlglotError, *_PARSER_FAULTS):
        return parse_spark(query)
    if len(trees) != 1 or trees[0] is None:
        raise ParseError(f"not one expression in '{query}'")
    return trees[0]


def parse_spark(query: str) -> exp.Expr:
    """The tree of a query in Spark's SQL. Raises SqlglotError.

    sqlglot mistakes ``window(…)`` right after GROUP BY for the clause WINDOW. During parsing, another word of equal
    length therefore stands for ``window``.
    """
    from sqlglot import exp
    from sqlglot.errors import ParseError

    text, tokens = query, spark_tokens(query)
    if "window" in query.lower():
        for word, bracket in pairwise(tokens):
            if query[word.start : word.end + 1].lower() == "window" and bracket.text == "(":
                text = text[: word.start] + _STAND_IN + text[word.end + 1 :]
        tokens = spark_tokens(text)
    try:
        trees = dialect_of("spark").parser().parse(tokens, text)
    except _PARSER_FAULTS as error:
        raise ParseError(f"sqlglot cannot parse '{text}'") from error
    first = trees[0] if trees else None
    if first is None:
        raise ParseError(f"No expression was parsed from '{text}'")
    tree: exp.Expr = first if len(trees) == 1 else exp.Block(expressions=trees)
    if text is not query:
        for call in tree.find_all(exp.Anonymous):
            if call.name == _STAND_IN:
                call.set("this", "window")
    return tree


def tables_of(tree: exp.Expr) -> tuple[str, ...]:
    """Returns the same names as :func:`table_names`, from a query's tree."""
    return tuple(dict.fromkeys(map(catalog_name, _tables(tree))))


@lru_cache(maxsize=256)
def output_names(query: str) -> tuple[str, ...]:
    """The names of a query's output columns. ``*`` counts as one column, and the name of an unnamed expression is
    empty. The query must be valid."""
    from sqlglot import exp

    tree = _tree(query)
    if not isinstance(tree, exp.Query):
        return ()
    return tuple(name for item in tree.selects for name in aliases_of(item) or (item.output_name,))


def aliases_of(item: exp.Expr) -> tuple[str, ...]:
    """The column names in a select item such as ``explode(…) AS (a, b)``; empty for items without a list of names."""
    from sqlglot import exp

    return tuple(name.name for name in item.expressions) if isinstance(item, exp.Aliases) else ()


@lru_cache(maxsize=256)
def repeated_tables(query: str) -> frozenset[str]:
    """The tables that a query names more than once. The query must be valid."""
    names = [catalog_name(table) for table in _shared_tables(query)]
    return frozenset(name for name in names if names.count(name) > 1)


def may_use_column(query: str, column: str) -> bool:
    """True if a query may use a certain column of its input: the query contains the column's name (ignoring case), a
    ``*`` or a NATURAL join.

    The ``*`` of ``count(*)`` is ignored. The query must be valid.
    """
    from sqlglot import exp

    tree = _tree(query)
    if any(join.method.upper() == "NATURAL" for join in tree.find_all(exp.Join)):
        return True
    if any(not counts_rows(star.parent) for star in tree.find_all(exp.Star)):
        return True
    return column.lower() in (name.name.lower() for name in tree.find_all(exp.Identifier))


def _tables(tree: exp.Expr) -> list[exp.Table]:
    """The tables that a query reads by name, without names that the query itself defines in WITH."""
    from sqlglot import exp
    from sqlglot.optimizer.scope import traverse_scope

    found: list[exp.Table] = []
    for scope in traverse_scope(tree):
        for _, source in scope.references:
            table = scope.sources.get(source.alias_or_name) if isinstance(source, exp.Expr) else None
            if isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier):
                found.append(table)
    return found


@lru_cache(maxsize=64)
def _shared_tables(query: str) -> tuple[exp.Table, ...]:
    from sqlglot import parse_one
    from sqlglot.errors import SqlglotError

    try:
        tree = plain_tree(query)
    except SqlglotError:
        tree = parse_one(query, read="risingwave")
    return tuple(_tables(tree))


def catalog_name(table: exp.Table) -> str:
    """The catalog's name for a table of a query. This is ``schema.name`` or, in the schema ``public``, ``name``. Parts
    without quotes are in lower case."""
    from sqlglot import exp

    schema = table.args.get("db")
    name = _folded(table.this)
    if not isinstance(schema, exp.Identifier) or table.args.get("catalog") or schema.this.lower() == PUBLIC:
        return name
    return f"{_folded(schema)}.{name}"


def _folded(name: exp.Expr) -> str:
    return str(name.this) if name.args.get("quoted") else str(name.this).lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlace:
    """A position at which a query reads a table. The fields are the range of the full name as written, and the range of
    the name's last part."""

    written: str
    name: str
    key: str
    start: int
    end: int
    has_alias: bool


@lru_cache(maxsize=256)
def table_places(query: str) -> tuple[TablePlace, ...]:
    """The positions at which a query in Spark's SQL reads tables by name.

    Names defined by the query itself (WITH) are left out.
    """
    from sqlglot import exp

    plain_tree(query)  # Only trees of Spark's SQL contain positions; raises SqlglotError for other trees.
    places: dict[int, TablePlace] = {}
    for table in _shared_tables(query):
        parts = [part for part in table.parts if isinstance(part, exp.Identifier)]
        start, end = int(parts[0].meta["start"]), int(parts[-1].meta["end"])
        places[start] = TablePlace(
            written=query[start : end + 1],
            name=table.name,
            key=catalog_name(table),
            start=start,
            end=end,
            has_alias=bool(table.alias),
        )
    return tuple(places[start] for start in sorted(places))


def replaced_tables(query: str, names: Mapping[str, str]) -> str:
    """Returns the query with some tables replaced by others. ``names`` maps the tables' names in the query to the new
    names. Columns qualified with an old name remain valid."""
    for place in reversed(table_places(query)):
        name = names.get(place.written)
        if name is not None and (name != place.written or "." in name):
            alias = "" if place.has_alias or name == place.name else f" AS {quoted_for_spark(place.name)}"
            query = f"{query[: place.start]}{quoted_for_spark(name)}{alias}{query[place.end + 1 :]}"
    return query
