"""Replaces the secrets in the text of a statement that may be invalid."""

from __future__ import annotations

import re

from rw_sql.cli.empty_catalog import EmptyCatalog
from rw_sql.errors import SqlError
from rw_sql.masking import SECRET_WORDS, masked
from rw_sql.plan.offline.pieces import parse_piece
from rw_sql.syntax.lexing.first_words import BLANK

_DOUBTFUL = re.compile(
    rf"{BLANK}*+(?:CREATE|ALTER)\b(?:{BLANK}*+(?:[^a-z_\s]|\Z)|.*(?:\bconnector\b|{SECRET_WORDS}))",
    re.IGNORECASE | re.DOTALL,
)
"""Matches a CREATE or ALTER statement that may be an invalid statement of rw_sql, although its first words are not
those of an rw_sql statement. Either no word follows CREATE or ALTER, or a later word suggests a secret or a
connector."""


def masked_statement(text: str) -> str:
    """The text of a statement, in which asterisks replace the secrets.

    If rw_sql refuses the statement as invalid, asterisks also replace every other text in quotes that may be secret. An
    error that shows a line of the statement masks this line in the same way. In a Spark statement, such texts stay,
    unless the statement may be an invalid CREATE or ALTER of rw_sql.
    """
    try:
        is_of_spark = parse_piece(text, EmptyCatalog()) is None
    except SqlError:
        return masked(text, plain=())
    return masked(text, plain=() if is_of_spark and _DOUBTFUL.match(text) else None)
