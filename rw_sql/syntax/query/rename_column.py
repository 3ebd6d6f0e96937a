"""Renames a column in the expressions of computed columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import NOT_SUPPORTED, SqlError
from rw_sql.syntax.lexing.identifiers import quoted, quoted_for_spark
from rw_sql.syntax.query.tables_read import parse_spark

if TYPE_CHECKING:
    from sqlglot import exp

_BEFORE, _AFTER = "SELECT ", " AS _rw_"
"""The texts before and after an expression that turn it into a query that sqlglot can parse. No column has the name of
the alias ``_rw_``."""


def renamed_column(text: str, old: str, new: str, *, relation: str, dialect: str) -> str:
    """Returns the expression with the column ``old`` renamed to ``new``. The rest of the expression's text is
    unchanged.

    ``relation`` is the optional qualifier of the column: ``relation.old``. Names are not case-sensitive. Raises
    SqlError NOT_SUPPORTED if the renaming could change the meaning of another name in the expression.
    """
    from sqlglot import exp, parse_one, tokenize
    from sqlglot.errors import SqlglotError

    written = f"{_BEFORE}{text}{_AFTER}"
    try:
        tree = parse_spark(written) if dialect == "spark" else parse_one(written, read=dialect)
    except (SqlglotError, RecursionError) as error:
        raise SqlError(
            NOT_SUPPORTED,
            f'it is not known whether {text} uses "{old}"',
            hint="create another table with the column under its new name, and let views and sinks read that table",
        ) from error
    places = _named(tree, old.lower(), relation.lower())
    bound = {part.name.lower() for function in tree.find_all(exp.Lambda) for part in function.expressions}
    words = [token for token in tokenize(written, read=dialect) if token.token_type.name != "STRING"]
    is_other = sum(token.text.lower() == old.lower() for token in words) != len(places)
    is_nested = any(node is not tree for node in tree.find_all(exp.Query))
    if is_other or is_nested or bound & {old.lower(), new.lower()}:
        raise SqlError(
            NOT_SUPPORTED,
            f'in {text} "{old}" or "{new}" may refer to something other than the column',
            hint="create another table with the column under its new name, and let views and sinks read that table",
        )
    word = _written(new, dialect)
    for start, end, is_named in sorted(places, reverse=True):
        # In ``struct(a)``, the name of the column becomes the name of a field, so an alias keeps the old name.
        name = f"{word} AS {_written(old, dialect)}" if is_named else word
        written = written[:start] + name + written[end + 1 :]
    return written.removeprefix(_BEFORE).removesuffix(_AFTER)


def _written(name: str, dialect: str) -> str:
    """A column name for use in an expression: quoted, unless the plain word is a valid column name."""
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    quotes = quoted_for_spark(name) if dialect == "spark" else '"' + name.replace('"', '""') + '"'
    if quoted(name) != name:
        return quotes
    try:
        tree = parse_one(f"{_BEFORE}{name}{_AFTER}", read=dialect)
    except SqlglotError:
        return quotes
    column = tree.expressions[0].this if tree.expressions else None
    return name if isinstance(column, exp.Column) and column.name == name else quotes


def _named(tree: exp.Expr, column: str, relation: str) -> list[tuple[int, int, bool]]:
    """Returns the ranges at which the column occurs, each with a flag. The flag is true if the column's name becomes
    part of a value, as in ``struct(a)``, which has a field ``a``."""
    from sqlglot import exp

    found = []
    for node in tree.find_all(exp.Column):
        parts = node.parts
        names = [part.name.lower() for part in parts[:2]]
        at = 0 if names[0] == column else 1 if names == [relation, column] else None
        if at is not None:
            place = parts[at].meta
            is_named = isinstance(node.parent, exp.Struct | exp.PropertyEQ) and at == len(parts) - 1
            found.append((int(place["start"]), int(place["end"]), is_named))
    return found
