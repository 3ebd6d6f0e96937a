"""A column's new name in the expressions that compute others of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import NOT_SUPPORTED, SqlError
from rw_sql.syntax.names import quoted
from rw_sql.syntax.queries import parse_spark

if TYPE_CHECKING:
    from sqlglot import exp

_BEFORE = "SELECT "


def renamed_column(text: str, old: str, new: str, *, relation: str, dialect: str) -> str:
    """The expression with ``new`` in the place of the column ``old``; nothing else of its text changes.

    ``relation`` is what the column may be called with: ``relation.old``. Names are compared in whatever case. Raises
    SqlError NOT_SUPPORTED where a name within could then mean something else.
    """
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    written = f"{_BEFORE}{text} AS x"
    try:
        tree = parse_spark(written) if dialect == "spark" else parse_one(written, read=dialect)
    except SqlglotError as error:
        raise SqlError(
            NOT_SUPPORTED,
            f'whether {text} uses "{old}" cannot be told',
            hint="make another table with the column under its new name, and move views and sinks there",
        ) from error
    bound = {part.name.lower() for function in tree.find_all(exp.Lambda) for part in function.expressions}
    if bound & {old.lower(), new.lower()} or any(node is not tree for node in tree.find_all(exp.Query)):
        raise SqlError(
            NOT_SUPPORTED,
            f'in {text} "{old}" or "{new}" may mean something else than the column',
            hint="give the parameter of its function, or what its query reads, another name",
        )
    name = '"' + new.replace('"', '""') + '"' if dialect != "spark" else "`" + new.replace("`", "``") + "`"
    name = quoted(new) if quoted(new) == new else name
    places = [_place(part) for part in _named(tree, old.lower(), relation.lower())]
    for start, end in sorted(places, reverse=True):
        written = written[:start] + name + written[end + 1 :]
    return written.removeprefix(_BEFORE).removesuffix(" AS x")


def _named(tree: exp.Expr, column: str, relation: str) -> list[exp.Expr]:
    from sqlglot import exp

    found: list[exp.Expr] = []
    for node in tree.find_all(exp.Column):
        parts = node.parts
        if parts[0].name.lower() == column:
            found.append(parts[0])
        elif len(parts) > 1 and (parts[0].name.lower(), parts[1].name.lower()) == (relation, column):
            found.append(parts[1])
    return found


def _place(name: exp.Expr) -> tuple[int, int]:
    return int(name.meta["start"]), int(name.meta["end"])
