"""Replaces the names of relations in a query, and leaves the rest of the query's text unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.syntax.query.tables_read import parse_spark

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlglot import exp


def with_schemas(text: str, dialect: str, name_of: Callable[[str, int, int], str | None]) -> str:
    """Returns the query with replacements for unqualified names of relations.

    ``name_of`` is a function that receives an unqualified name (folded unless quoted) and the name's range in the text.
    ``name_of`` returns the replacement, or None to keep the name. A query that sqlglot cannot parse is returned
    unchanged, and a later check reports the error.
    """
    from sqlglot.errors import SqlglotError

    try:
        places = bare_relations(text, dialect)
    except (SqlglotError, RecursionError):
        return text
    for name, start, end in sorted(places, key=lambda place: place[1], reverse=True):
        new = name_of(name, start, end)
        if new is not None:
            text = text[:start] + new + text[end:]
    return text


def written_relations(text: str) -> list[tuple[tuple[str, ...], int, int, bool]]:
    """Returns the relations in a Spark statement, in the order of the text. Each element has the parts of the
    relation's name (folded unless quoted), the name's range, and whether the relation has an alias. The result is empty
    if sqlglot cannot parse the statement."""
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        tree = parse_spark(text)
    except (SqlglotError, RecursionError):
        return []
    own = {part.alias.lower() for clause in tree.find_all(exp.With) for part in clause.expressions}
    found: dict[int, tuple[tuple[str, ...], int, int, bool]] = {}
    for table in tree.find_all(exp.Table):
        parts = [part for part in table.parts if isinstance(part, exp.Identifier) and "start" in part.meta]
        if not parts or len(parts) != len(table.parts) or (len(parts) == 1 and parts[0].this.lower() in own):
            continue
        names = tuple(str(part.this) if part.args.get("quoted") else str(part.this).lower() for part in parts)
        start, end = int(parts[0].meta["start"]), int(parts[-1].meta["end"]) + 1
        found[start] = (names, start, end, bool(table.alias))
    return [found[start] for start in sorted(found)]


def bare_relations(text: str, dialect: str) -> list[tuple[str, int, int]]:
    """Returns the relations that a query names without a schema. Each element has the name (folded unless quoted) and
    the name's range in the text.

    Raises SqlglotError.
    """
    from sqlglot import exp, parse_one

    tree = parse_spark(text) if dialect == "spark" else parse_one(text, read=dialect)
    own = {part.alias.lower() for clause in tree.find_all(exp.With) for part in clause.expressions}
    found = []
    for table in tree.find_all(exp.Table):
        name: exp.Expr = table.this
        if isinstance(name, exp.Anonymous) and name.expressions:  # TUMBLE(relation, …)
            argument = name.expressions[0]
            column = argument.this if isinstance(argument, exp.Alias) else argument
            if not isinstance(column, exp.Column) or column.table or name.name.lower() not in ("tumble", "hop"):
                continue
            name = column.this
        if isinstance(name, exp.Identifier) and not table.args.get("db") and name.this.lower() not in own:
            word = str(name.this) if name.args.get("quoted") else str(name.this).lower()
            found.append((word, int(name.meta["start"]), int(name.meta["end"]) + 1))
    return found
