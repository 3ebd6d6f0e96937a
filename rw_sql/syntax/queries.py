"""What a query reads."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=256)
def table_names(query: str) -> tuple[str, ...]:
    """The tables a query reads, each once, in the order met: the last part of each name, folded unless quoted.

    Names that the query defines itself (WITH) are left out. The query must have been parsed before.
    """
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError
    from sqlglot.optimizer.scope import traverse_scope

    try:
        tree = parse_one(query, read="spark")
    except SqlglotError:
        tree = parse_one(query, read="risingwave")
    found: dict[str, None] = {}
    for scope in traverse_scope(tree):
        for _, source in scope.references:
            table = scope.sources.get(source.alias_or_name) if isinstance(source, exp.Expression) else None
            if isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier):
                name = table.this
                found[name.this if name.quoted else name.this.lower()] = None
    return tuple(found)
