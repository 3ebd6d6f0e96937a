"""Renames a relation in the queries that read the relation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import NOT_SUPPORTED, SqlError
from rw_sql.syntax.lexing.identifiers import PUBLIC, key_parts, quoted
from rw_sql.syntax.query.tables_read import catalog_name, parse_spark

if TYPE_CHECKING:
    from sqlglot import exp


def renamed_relation(text: str, old: str, new: str, dialect: str, *, is_stored: bool = False) -> str:
    """Returns the query with the relation ``old`` renamed to ``new`` (both are names in the catalog). The rest of the
    query's text does not change.

    References such as ``old.column`` remain valid, because a relation without an alias gets the old name as its alias.
    ``is_stored`` is True if the text is a job's query, in which a name with its schema is a single identifier. Raises
    SqlError NOT_SUPPORTED if the relation cannot be renamed.
    """
    from sqlglot import exp, parse_one

    tree = parse_spark(text) if dialect == "spark" else parse_one(text, read=dialect)
    edits: list[tuple[int, int, str]] = []
    called = (old,) if is_stored else key_parts(old)
    written = (new,) if is_stored else key_parts(new)
    if len(written) == 1 and any(
        part.alias.lower() == new.lower() for clause in tree.find_all(exp.With) for part in clause.expressions
    ):
        raise SqlError(
            NOT_SUPPORTED,
            f'a query that reads "{old}" already uses the name "{new}" in WITH',
            hint="drop the object with this query, and create it again with another name for WITH "
            f"{quoted(new)} AS (…)",
        )
    is_called_alike = called[-1] == written[-1]
    for table in _readings(tree, old):
        name = table.this
        if isinstance(name, exp.Identifier):
            alias = "" if table.alias or is_called_alike else f" AS {_quoted(called[-1], dialect)}"
            edits.append((*_range(table.args.get("db"), name, written), _text(written, dialect) + alias))
            continue
        if not (table.alias or is_called_alike) and any(
            column.table.lower() == called[-1].lower() for column in tree.find_all(exp.Column)
        ):
            raise SqlError(
                NOT_SUPPORTED,
                f'a query that reads {name.name.upper()} of "{old}" names its columns {old}.…',
                hint="drop the object with this query, and create it again with an alias: "
                f"{name.name.upper()}({old}, …) AS {called[-1][:1]}",
            )
        argument = name.expressions[0]
        column = argument.this if isinstance(argument, exp.Alias) else argument
        edits.append((*_range(column.args.get("table"), column.this, written), _text(written, dialect)))
    if edits and len(called) > 1:
        # Removes the schema from the qualifier of a column, because the relation now has an alias, which has no schema.
        for column in tree.find_all(exp.Column):
            schema, relation = column.args.get("db"), column.args.get("table")
            if schema is not None and relation is not None and f"{schema.name}.{relation.name}".lower() == old.lower():
                edits.append((_place(schema)[0], _place(relation)[0] - 1, ""))
    for start, end, word in sorted(edits, reverse=True):
        text = text[:start] + word + text[end + 1 :]
    return text


def _range(schema: exp.Expr | None, name: exp.Expr, new: tuple[str, ...]) -> tuple[int, int]:
    """Returns the range of a name. If both the old and the new name are in the schema ``public``, the range does not
    include the schema."""
    start, end = _place(name)
    if schema is None or (len(new) == 1 and schema.name.lower() == PUBLIC):
        return start, end
    return _place(schema)[0], end


def _text(parts: tuple[str, ...], dialect: str) -> str:
    return ".".join(_quoted(part, dialect) for part in parts)


def _readings(tree: exp.Expr, name: str) -> list[exp.Table]:
    """The positions at which a query reads a relation: by name, or as the first argument of a window function in
    FROM."""
    from sqlglot import exp

    parts = {part.alias.lower() for clause in tree.find_all(exp.With) for part in clause.expressions}
    found = []
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier):
            if catalog_name(table).lower() == name.lower() and (table.db or table.name.lower() not in parts):
                found.append(table)
        elif isinstance(table.this, exp.Anonymous) and table.this.expressions:
            argument = table.this.expressions[0]
            column = argument.this if isinstance(argument, exp.Alias) else argument
            if not isinstance(column, exp.Column):
                continue
            schema = column.table.lower()
            key = column.name if schema in ("", PUBLIC) else f"{schema}.{column.name}"
            if key.lower() == name.lower():
                found.append(table)
    return found


def _place(name: exp.Expr) -> tuple[int, int]:
    start, end = name.meta["start"], name.meta["end"]
    return int(start), int(end)


def _quoted(name: str, dialect: str) -> str:
    if quoted(name) == name or dialect != "spark":
        return quoted(name)
    return "`" + name.replace("`", "``") + "`"
