"""Converts positions within a query to positions within the statement that contains the query."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rw_sql.errors import Span
from rw_sql.syntax.parsing.script import without_strings

if TYPE_CHECKING:
    from rw_sql.syntax.statements import Query


def place_in_query(query: Query, start: int, end: int) -> Span:
    """Converts the range ``[start, end)`` of the query's text to a position in the statement."""
    whole, before = query.span, query.text[:start]
    column = start - before.rfind("\n") if "\n" in before else whole.column + start
    return Span(whole.start + start, whole.start + end, whole.line + before.count("\n"), column)


def place_of(query: Query, word: str) -> Span:
    """Returns the position of a word in the query. Strings and comments are ignored. If the word does not occur exactly
    once, returns the position of the entire query."""
    pattern = re.compile(rf"(?<![\w$]){re.escape(word)}(?![\w$])", re.IGNORECASE)
    shown = without_strings(query.text)
    found = [match for match in pattern.finditer(query.text) if word and not shown[match.start()].isspace()]
    return place_in_query(query, *found[0].span()) if len(found) == 1 else query.span
