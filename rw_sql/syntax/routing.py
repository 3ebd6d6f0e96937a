"""Decides from the first words of a statement whether it is a statement of rw_sql or of Spark.

If statements of both rw_sql and Spark can begin with the same words, the statement's clauses and object names decide.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from rw_sql.errors import SqlError
from rw_sql.syntax import statements as ast
from rw_sql.syntax.lexing.first_words import BLANK, CREATE, KINDS
from rw_sql.syntax.lexing.statement_ends import starts_in_block

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.syntax.lexing.tokens import Token
    from rw_sql.syntax.statements import Name, Statement


class CatalogView(Protocol):
    """The catalog lookups that routing needs. The methods must be fast and must not raise exceptions."""

    def has_object(self, name: Name) -> bool:
        """True if an rw_sql source, table, materialized view, sink, connection or secret with this name exists."""
        ...

    def has_parameter(self, name: str) -> bool:
        """True if an rw_sql session parameter with this name (lower case) exists."""
        ...


@runtime_checkable
class SchemaView(Protocol):
    """The catalog lookups that are needed to route statements about schemas.

    If routing does not get these lookups, statements about schemas go to Spark if Spark supports them too.
    """

    def has_schema(self, name: str | None = None) -> bool:
        """True if an rw_sql schema with this name exists. If no name is given, True if any schema other than ``public``
        exists."""
        ...

    def has_database(self, name: str) -> bool:
        """True if Spark has a database with this name, and the database is not an rw_sql schema."""
        ...


_OURS_ALONE = re.compile(
    rf"""{BLANK}*+(?:EXPLAIN{BLANK}++)?+(?:
      {CREATE}(?:{KINDS})\b
    | (?:DROP|ALTER){BLANK}++(?:{KINDS}|SYSTEM|FRAGMENT)\b
    | REPLACE{BLANK}++SINK\b
    | (?:PAUSE|RESUME|INJECT|CONFIRM|FLUSH|UNDO|REWIND|REBUILD|VALIDATE|WAIT|RECOVER|SKIP|COMMIT|ROLLBACK|CANCEL)\b
    | RE(?:SET{BLANK}++SOURCE|FRESH{BLANK}++MATERIALIZED)\b
    | BEGIN{BLANK}++UNSAFE\b
    | SHOW{BLANK}++(?:SOURCES?|SINKS|CONNECTIONS|SECRETS|JOBS|UNSAFE|MATERIALIZED|INTERNAL|METRICS|LINEAGE|CHECKPOINT)\b
    | SHOW{BLANK}++CREATE{BLANK}++(?:{KINDS})\b
    )""",
    re.VERBOSE | re.IGNORECASE,
)


def route(text: str, catalog: CatalogView) -> Statement | None:
    """The parsed statement if the text is an rw_sql statement; None if the text must be sent to Spark unchanged.

    Raises SqlError for an invalid text if only rw_sql statements begin with the text's first words, or if an rw_sql
    clause or object precedes the error.
    """
    from rw_sql.syntax.parsing.script import parse_statement

    try:
        statement = parse_statement(text)
    except SqlError as error:
        if _OURS_ALONE.match(text) or _was_ours(text, error, catalog):
            raise
        return None
    return statement if is_ours(statement, catalog) else None


def ours_in_block(text: str) -> Iterator[tuple[int, int]]:
    """Finds rw_sql's statements in a block ``BEGIN … END`` of Spark, which cannot contain such statements. For each
    statement found, yields the start and the end of the statement's first words. Only statements whose first words
    cannot begin a Spark statement are found."""
    return (found.span() for start in starts_in_block(text) if (found := _OURS_ALONE.match(text, start)))


_SPARKS_LISTS = frozenset({"TABLES", "VIEWS", "FUNCTIONS", "DATABASES"})
_NAMED_ALIKE = (
    ast.DropTable
    | ast.RefreshTable
    | ast.Describe
    | ast.DescribeFragments
    | ast.AlterRename
    | ast.AlterOwner
    | ast.AlterSetSchema
    | ast.AlterAddColumn
    | ast.AlterTableAddConstraint
    | ast.AlterTableColumn
    | ast.AlterTableDropColumn
    | ast.AlterTableRenameColumn
    | ast.AlterTableRenameConstraint
)
"""Statements that Spark supports too. Such a statement is rw_sql's only if it refers to rw_sql objects."""


def is_ours(statement: Statement, catalog: CatalogView) -> bool:
    """True if a parsed statement belongs to rw_sql. For a statement that Spark supports too, this depends on its
    clauses and on the objects that it names."""
    match statement:
        case ast.Explain():
            return is_ours(statement.statement, catalog)
        case ast.SetParameter() | ast.ShowParameter():
            return catalog.has_parameter(statement.parameter)
        case ast.SetTimeZone():
            return False
        case ast.ShowObjects(kind="SCHEMAS") if statement.like is not None:
            return isinstance(catalog, SchemaView) and catalog.has_schema()  # Spark's SHOW SCHEMAS lists databases.
        case ast.ShowObjects():
            return statement.kind not in _SPARKS_LISTS
        case ast.ShowColumns():
            return statement.kind != "COLUMNS"
        case ast.ShowCreate():
            return statement.kind not in ("TABLE", "VIEW", "FUNCTION") or catalog.has_object(statement.name)
        case ast.UseSchema() | ast.DropSchema():
            return isinstance(catalog, SchemaView) and _is_schema(statement, catalog)
        case ast.CreateTable():
            return _uses_our_clauses(statement)
        case (
            ast.AlterRename(kind=kind)
            | ast.AlterOwner(kind=kind)
            | ast.AlterSetSchema(kind=kind)
            | ast.AlterAddColumn(kind=kind)
        ) if kind != "TABLE":
            return True
        case _:
            return not isinstance(statement, _NAMED_ALIKE) or catalog.has_object(statement.name)


def _is_schema(statement: ast.UseSchema | ast.DropSchema, catalog: SchemaView) -> bool:
    name = statement.name
    if len(name.parts) > 1:
        return False
    if isinstance(statement, ast.DropSchema) and not catalog.has_database(name.last):
        return True
    return catalog.has_schema(name.last)


def _uses_our_clauses(table: ast.CreateTable) -> bool:
    return bool(
        table.options
        or table.format
        or table.include
        or table.watermarks
        or table.on_conflict
        or table.version_columns
        or table.is_append_only
        or table.cdc_table
        or table.webhook
        or table.engine
        or table.wildcard is not None
        or any(column.generated or column.field is not None for column in table.columns)
    )


_TABLE_CLAUSES = (
    ("INCLUDE",),
    ("WITH", "("),
    ("WITH", "VERSION"),
    ("APPEND", "ONLY"),
    ("ON", "CONFLICT"),
    ("FORMAT", "*", "ENCODE"),
    ("ENGINE", "="),
)
_COLUMN_CLAUSES = (("WATERMARK", "FOR"),)
_WITH_LIST = re.compile(r"\bWITH\s*+\(([^()]*+)", re.IGNORECASE)
_CONNECTOR = re.compile(r"""\bconnector['"]?\s*+=""", re.IGNORECASE)
_BEGIN_QUERIES = frozenset({"SELECT", "WITH", "VALUES", "FROM", "TABLE", "("})
_ALTER_CLAUSES = (("UNSAFE",), ("CONNECTOR",), ("DROP", "CONNECTOR"), ("SWAP",), ("ALTER", "WATERMARK", "FOR"))
_DESCRIBED = frozenset({
    "CATALOG", "DATABASE", "DETAIL", "EXTENDED", "FORMATTED", "FUNCTION", "HISTORY", "NAMESPACE", "QUERY", "SCHEMA",
})  # fmt: skip
"""The words that may stand between DESCRIBE and a name in statements of Spark and Delta Lake. Each of these words can
also be the name of an rw_sql object."""


def _was_ours(text: str, error: SqlError, catalog: CatalogView) -> bool:
    """True if an rw_sql clause or name precedes the error in a statement whose first words could also begin a Spark
    statement."""
    from rw_sql.syntax.lexing.tokens import WORD, scan

    if error.span is None:
        return False
    try:
        tokens = [token for token in scan(text[: error.span.start]) if token.text]
    except SqlError:
        return False
    words = [token.upper if token.kind == WORD else token.text for token in tokens]
    if words[:1] == ["EXPLAIN"]:
        tokens, words = tokens[1:], words[1:]
    if words[:1] == ["CREATE"]:
        return _has_table_clause(text, tokens, error.span.start)
    if words[:2] == ["ALTER", "TABLE"] and _starts_with_any(words[_after_name(words) :], _ALTER_CLAUSES):
        return True
    if len(words) == 2 and words[0] in ("DESCRIBE", "DESC") and words[1] in _DESCRIBED:
        return False
    if words[:1] == ["SET"]:
        is_dotted = text[error.span.start : error.span.end] == "."
        return len(words) > 1 and not is_dotted and catalog.has_parameter(tokens[1].value)
    return _names_ours(tokens, words, catalog)


def _has_table_clause(text: str, tokens: list[Token], end: int) -> bool:
    """True if the text has a clause of rw_sql before the position ``end``, or a WITH list with a connector after this
    position.

    Only statements of rw_sql have a WITH list with a connector. ``tokens`` are the tokens before ``end``. Text that is
    a string or a comment in Spark's SQL is ignored.
    """
    from rw_sql.syntax.parsing.script import without_strings

    shown = without_strings(text)
    words = [token.upper for token in tokens if shown[token.start] == text[token.start]]
    return (
        _has_any(_outside_lists(words[_after_name(words) :]), _TABLE_CLAUSES)
        or _has_any(words, _COLUMN_CLAUSES)
        or any(
            shown[option.end() - 1] == "="
            for listed in _WITH_LIST.finditer(shown, end)
            for option in _CONNECTOR.finditer(text, *listed.span(1))
        )
    )


def _after_name(words: list[str]) -> int:
    """The index of the first word after the name in CREATE TABLE or ALTER TABLE."""
    at = words.index("TABLE") + 1 if "TABLE" in words else len(words)
    if words[at : at + 3] == ["IF", "NOT", "EXISTS"]:
        at += 3
    elif words[at : at + 1] == ["ONLY"]:
        at += 1
    while words[at + 1 : at + 2] == ["."]:
        at += 2
    return at + 1


def _outside_lists(words: list[str]) -> list[str]:
    """The words of CREATE TABLE that are outside parentheses, up to the query."""
    found: list[str] = []
    depth = 0
    for at, word in enumerate(words):
        if not depth and word == "AS" and words[at + 1 : at + 2] and words[at + 1] in _BEGIN_QUERIES:
            break
        depth -= word == ")" and depth > 0
        if not depth:
            found.append(word)
        depth += word == "("
    return found


def _has_any(words: list[str], clauses: tuple[tuple[str, ...], ...]) -> bool:
    for clause in clauses:
        for at in range(len(words) - len(clause) + 1):
            if all(wanted in ("*", word) for wanted, word in zip(clause, words[at:], strict=False)):
                return True
    return False


def _starts_with_any(words: list[str], clauses: tuple[tuple[str, ...], ...]) -> bool:
    return any(words[: len(clause)] == list(clause) for clause in clauses)


def _names_ours(tokens: list[Token], words: list[str], catalog: CatalogView) -> bool:
    """True if the name after TABLE or DESCRIBE is an rw_sql object."""
    at = next((i for i, word in enumerate(words) if word in ("TABLE", "DESCRIBE", "DESC")), None)
    if at is None:
        return False
    at += 1
    if words[at : at + 2] == ["IF", "EXISTS"]:
        at += 2
    parts = []
    while at < len(tokens):
        parts.append(tokens[at].value)
        if words[at + 1 : at + 2] != ["."]:
            break
        at += 2
    return bool(parts) and catalog.has_object(ast.Name(parts=tuple(parts)))
