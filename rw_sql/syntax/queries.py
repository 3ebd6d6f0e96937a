"""What a query reads."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot import exp


@lru_cache(maxsize=256)
def table_names(query: str) -> tuple[str, ...]:
    """The tables a query reads, each once, in the order met: the last part of each name, folded unless quoted.

    Names that the query defines itself (WITH) are left out. The query must have been parsed before.
    """
    from sqlglot import parse_one
    from sqlglot.errors import SqlglotError

    try:
        tree = parse_one(query, read="spark")
    except SqlglotError:
        tree = parse_one(query, read="risingwave")
    return tables_of(tree)


def tables_of(tree: exp.Expr) -> tuple[str, ...]:
    """As :func:`table_names`, for a query's tree."""
    from sqlglot import exp
    from sqlglot.optimizer.scope import traverse_scope

    found: dict[str, None] = {}
    for scope in traverse_scope(tree):
        for _, source in scope.references:
            table = scope.sources.get(source.alias_or_name) if isinstance(source, exp.Expr) else None
            if isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier):
                name = table.this
                found[name.this if name.quoted else name.this.lower()] = None
    return tuple(found)
