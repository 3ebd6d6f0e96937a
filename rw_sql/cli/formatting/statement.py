"""Formats a statement in canonical form. Only comments, queries and types keep their spelling."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from rw_sql.cli.formatting.comments import comments_of, is_any_inside, put_back, without_comments
from rw_sql.cli.formatting.query_layout import lay_out_query
from rw_sql.errors import SqlError
from rw_sql.syntax import canonical_type, parse_statement, render
from rw_sql.syntax.lexing.tokens import WORD, scan
from rw_sql.syntax.rendering.layout import one_clause_per_line
from rw_sql.syntax.sql_reader import QueryReader
from rw_sql.syntax.statements import DataType, Query

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rw_sql.syntax.lexing.tokens import Token
    from rw_sql.syntax.statements import Statement

_TYPE = "rw_sql_type_{}"
"""The name of the placeholder for a type. Rendering a statement with placeholders shows the positions of the
statement's types."""


def format_statement(text: str, *, is_canonical: bool = False) -> str:
    """Formats an rw_sql statement.

    The result has the same meaning as the original. Except for the layout of queries, both texts parse to equal
    statements. If ``is_canonical`` is true, types have their canonical names. If inserting the comments would change
    the statement, returns the text unchanged. Raises SqlError.
    """
    tokens = scan(text)
    comments = comments_of(text, tokens)
    bare = without_comments(text, comments)
    statement = parse_statement(bare)
    types = [] if is_canonical else _written_types(statement, tokens)
    formatted = _rendered(statement, types, is_broken=False)
    if types and not _is_same(formatted, statement):
        types = []
        formatted = _rendered(statement, types, is_broken=False)
    if not comments:
        return formatted
    is_broken = is_any_inside(formatted, comments, tokens)
    result = put_back(_rendered(statement, types, is_broken=is_broken), comments, tokens)
    return result if _is_same(result, statement) else text


def format_query(text: str) -> str:
    """Formats a Spark query. Returns the query unchanged if Spark might parse the query differently from this
    module."""
    try:
        tokens = scan(text)
    except SqlError:
        return text
    if "\\" in text:  # In Spark's strings, escapes determine where a string ends.
        return text
    comments = comments_of(text, tokens)
    bare = without_comments(text, comments)
    formatted = lay_out_query(bare, is_broken=bool(comments))
    if formatted == bare:
        return text
    return put_back(formatted, comments, tokens) if comments else formatted


def _rendered(statement: Statement, types: Sequence[str], *, is_broken: bool) -> str:
    """Renders the statement. ``types`` are the spellings of the statement's types, in the order in which
    :func:`_mapped` visits the types. A type without a spelling gets its canonical name."""
    left = iter(types)

    def replaced(part: object) -> object:
        if isinstance(part, DataType):
            name = next(left, None)
            return part if name is None else DataType(name=name)
        if isinstance(part, Query):
            return Query(text=lay_out_query(part.text, is_broken=is_broken))
        return None

    changed = _mapped(statement, replaced)
    if not is_broken:
        return render(changed)
    with one_clause_per_line():
        return render(changed)


def _mapped(part: Any, replaced: Callable[[object], object]) -> Any:
    """Returns a copy of a part of a statement. ``replaced`` is called with each nested part, and returns the part's
    replacement in the copy; None to keep the part."""
    found = replaced(part)
    if found is not None:
        return found
    if isinstance(part, tuple):
        return tuple(_mapped(each, replaced) for each in part)
    if not dataclasses.is_dataclass(part) or isinstance(part, type):
        return part
    fields = {field.name: getattr(part, field.name) for field in dataclasses.fields(part) if field.compare}
    changed = {name: _mapped(value, replaced) for name, value in fields.items()}
    return dataclasses.replace(part, **{name: value for name, value in changed.items() if value is not fields[name]})


def _written_types(statement: Statement, tokens: Sequence[Token]) -> list[str]:
    """The statement's types as spelled in its text, in the order in which :func:`_mapped` visits them. A type that is
    not found in the text gets its canonical name."""
    types: list[DataType] = []

    def numbered(part: object) -> object:
        if isinstance(part, DataType):
            types.append(part)
            return DataType(name=_TYPE.format(len(types) - 1))
        return None

    changed = _mapped(statement, numbered)
    if not types:
        return []
    numbers = scan(render(changed))
    named = {_TYPE.format(number): number for number in range(len(types))}
    written = [canonical_type(data_type) for data_type in types]
    at = 0
    for before, token in pairwise(numbers):
        number = named.get(token.value)
        if number is None:
            continue
        found = _type_behind(before, tokens, at)
        if found is not None:
            written[number], at = found
    return written


def _type_behind(before: Token, tokens: Sequence[Token], start: int) -> tuple[str, int] | None:
    """Finds the next token that is equal to ``before``. Returns the type that follows this token, as spelled in the
    text, and the index of the token after the type. Returns None if no type follows such a token."""
    for at in range(start, len(tokens) - 1):
        if tokens[at].value != before.value:
            continue
        reader = QueryReader(tokens, at + 1, len(tokens) - 1, tokens[-1])
        try:
            reader.data_type()
        except SqlError:
            continue
        return _type_text(tokens[at + 1 : reader.at]), reader.at
    return None


def _type_text(tokens: Sequence[Token]) -> str:
    """A type with its words in upper case, except for the names of fields."""
    text = ""
    opened: list[str] = []
    before = ""
    for at, token in enumerate(tokens):
        is_field = before in ("<", ",") and bool(opened) and opened[-1] == "STRUCT"
        word = token.text if token.kind != WORD or is_field else token.upper
        if token.text in ("<", "("):
            opened.append(tokens[at - 1].upper if at else "")
        elif token.text in (">", ")") and opened:
            opened.pop()
        is_close = token.text in ("<", "(", ">", ")", ",", "[", "]") or before in ("", "<", "(", "[")
        text += word if is_close else " " + word
        before = token.text
    return text.replace("STRUCT<>", "STRUCT< >")


def _is_same(text: str, statement: Statement) -> bool:
    """True if the text parses to a statement that equals ``statement``."""

    try:
        return parse_statement(text) == statement
    except SqlError:
        return False
