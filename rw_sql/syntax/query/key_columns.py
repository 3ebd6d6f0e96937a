"""The keys in a select: its grouping expressions, and the items that are columns of its input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.syntax.query.trees import read_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import exp


def resolve_ordinals(core: exp.Select) -> None:
    """Replaces the ordinals in GROUP BY: ``1`` becomes the expression of the first select item.

    An ordinal without an item stays, so that the analysis of the query reports it.
    """
    from sqlglot import exp

    group = core.args["group"]
    items = core.expressions
    keys = []
    for key in group.expressions:
        is_ordinal = isinstance(key, exp.Literal) and not key.is_string and key.name.isdecimal()
        if is_ordinal and 1 <= int(key.name) <= len(items):
            keys.append(inner(items[int(key.name) - 1]).copy())
        else:
            keys.append(key)
    group.set("expressions", keys)


def group_keys(core: exp.Select) -> list[exp.Expr]:
    """Copies of the expressions by which a select groups. Each expression occurs only once."""
    resolve_ordinals(core)
    return [key.copy() for key in dict.fromkeys(core.args["group"].expressions)]


def unaliased(core: exp.Select, key: exp.Expr, columns: Sequence[str]) -> exp.Expr:
    """A group key in which the expressions of select items replace the items' names. As in Spark, a name that is also a
    column of the input means that column."""
    from sqlglot import exp

    known = {column.lower() for column in columns}
    items = {item.alias.lower(): item.this for item in reversed(core.expressions) if isinstance(item, exp.Alias)}

    def replaced(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or node.table or node.name.lower() in known:
            return node
        item = items.get(node.name.lower())
        return node if item is None else exp.paren(item.copy())

    return key.copy().transform(replaced)


def bare(key: exp.Expr) -> exp.Expr:
    """A key without the parentheses that enclose the whole key."""
    from sqlglot import exp

    while isinstance(key, exp.Paren):
        key = key.this
    return key


def stored(key: exp.Expr) -> exp.Expr:
    """A key as stored in the table.

    For a time window, the start is stored, because all windows have the same length.
    """
    from sqlglot import exp

    is_call = isinstance(key, exp.Anonymous) and key.name.lower() == "window"
    if is_call or (isinstance(key, exp.Column) and key.name.lower() == "window"):
        return exp.Dot(this=key.copy(), expression=exp.to_identifier("start"))
    return key.copy()


def inner(item: exp.Expr) -> exp.Expr:
    """The expression of a select item, without the item's name."""
    from sqlglot import exp

    found: exp.Expr = item.this if isinstance(item, exp.Alias) else item
    return found


def is_column(item: exp.Expr) -> bool:
    """True if a select item is a column of the input or a field of such a column."""
    from sqlglot import exp

    return isinstance(inner(item), exp.Column) and not item.is_star


def output_of(select: exp.Select, column: str) -> str | None:
    """The name that a column of a select's only input has in the result; None if the select does not return it."""
    relation = read_by(select).alias_or_name
    for item in select.expressions:
        read = inner(item)
        if is_column(item) and _is_of(read, relation) and read.name.lower() == column.lower():
            return str(item.alias_or_name)
    return column if any(column.lower() not in _left_out(star) for star in stars_of(select)) else None


def stars_of(select: exp.Select) -> list[exp.Star]:
    """The items of a select that return all columns of its only input, except the columns that the items exclude by
    name. ``s.*`` for a struct ``s`` returns the fields of ``s`` instead."""
    from sqlglot import exp

    relation = read_by(select).alias_or_name
    found = (item for item in select.expressions if item.is_star and _is_of(item, relation))
    return [item if isinstance(item, exp.Star) else item.this for item in found]


def leave_out(star: exp.Star, column: str) -> None:
    """Adds a column to the EXCEPT list of a ``*``."""
    from sqlglot import exp

    star.set("except_", [*(star.args.get("except_") or []), exp.to_identifier(column)])


def _is_of(column: exp.Expr, relation: str) -> bool:
    """True if the qualifier of a column or ``*`` is absent or the name of the select's input. Any other qualifier may
    be a struct column of the input."""
    from sqlglot import exp

    if not isinstance(column, exp.Column):
        return True
    return not column.db and column.table.lower() in ("", relation.lower())


def _left_out(star: exp.Star) -> set[str]:
    """The lower-case names of the columns that a ``*`` does not return, or returns without some fields."""
    from sqlglot import exp

    parts = [part for name in ("except_", "replace", "rename") for part in star.args.get(name) or ()]
    return {name.name.lower() for part in parts for name in part.find_all(exp.Identifier)}
