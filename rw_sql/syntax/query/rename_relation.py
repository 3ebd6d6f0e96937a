"""Renames a relation in the queries that read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import NOT_SUPPORTED, SqlError
from rw_sql.syntax.lexing.identifiers import quoted
from rw_sql.syntax.query.tables_read import parse_spark

if TYPE_CHECKING:
    from sqlglot import exp


def renamed_relation(text: str, old: str, new: str, dialect: str) -> str:
    """The query with the relation ``old`` renamed to ``new``; the rest of its text is unchanged.

    References such as ``old.column`` remain valid: a relation without an alias gets the old name as its alias. Raises
    SqlError NOT_SUPPORTED if that is not possible.
    """
    from sqlglot import exp, parse_one

    tree = parse_spark(text) if dialect == "spark" else parse_one(text, read=dialect)
    edits: list[tuple[int, int, str]] = []
    if any(part.alias.lower() == new.lower() for clause in tree.find_all(exp.With) for part in clause.expressions):
        raise SqlError(
            NOT_SUPPORTED,
            f'a query that reads "{old}" calls a part of its own "{new}"',
            hint=f"drop it, and create it again with another word for WITH {quoted(new)} AS (…)",
        )
    for table in _readings(tree, old):
        name = table.this
        if isinstance(name, exp.Identifier):
            edits.append(
                (*_place(name), _quoted(new, dialect) + ("" if table.alias else f" AS {_quoted(old, dialect)}"))
            )
            continue
        if not table.alias and any(column.table.lower() == old.lower() for column in tree.find_all(exp.Column)):
            raise SqlError(
                NOT_SUPPORTED,
                f'a query that reads {name.name.upper()} of "{old}" names its columns {old}.…',
                hint=f"drop it and create it again with an alias: {name.name.upper()}({old}, …) AS {old[:1]}",
            )
        argument = name.expressions[0]
        column = argument.this if isinstance(argument, exp.Alias) else argument
        edits.append((*_place(column.this), _quoted(new, dialect)))
    for start, end, word in sorted(edits, reverse=True):
        text = text[:start] + word + text[end + 1 :]
    return text


def _readings(tree: exp.Expr, name: str) -> list[exp.Table]:
    """The places where a query reads a relation: by name, or as the first argument of a window function in FROM."""
    from sqlglot import exp

    parts = {part.alias.lower() for clause in tree.find_all(exp.With) for part in clause.expressions}
    found = []
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier):
            if table.name.lower() == name.lower() and (table.db or table.name.lower() not in parts):
                found.append(table)
        elif isinstance(table.this, exp.Anonymous) and table.this.expressions:
            argument = table.this.expressions[0]
            column = argument.this if isinstance(argument, exp.Alias) else argument
            if isinstance(column, exp.Column) and column.name.lower() == name.lower():
                found.append(table)
    return found


def _place(name: exp.Expr) -> tuple[int, int]:
    start, end = name.meta["start"], name.meta["end"]
    return int(start), int(end)


def _quoted(name: str, dialect: str) -> str:
    if quoted(name) == name or dialect != "spark":
        return quoted(name)
    return "`" + name.replace("`", "``") + "`"
