"""Splits a script into its statements, even if some of the statements do not parse."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.errors import SqlError
from rw_sql.model.parameters import SESSION_PARAMETERS
from rw_sql.syntax import could_be_ours, parse_statement, route, split_script
from rw_sql.syntax.lexing.spark_words import could_be_sparks
from rw_sql.syntax.near_statements import not_shown
from rw_sql.syntax.parsing.script import refuse_invisible, refuse_unclosed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.syntax import CatalogView, ScriptStatement
    from rw_sql.syntax.statements import Statement

_KINDS = r"(?:SOURCE|TABLE|MATERIALIZED\s+VIEW|SINK|CONNECTION|SECRET)"
_BEGINS = rf"""(?:CREATE\s+(?:OR\s+REPLACE\s+)?{_KINDS}|(?:ALTER|DROP)\s+(?:{_KINDS}|SYSTEM)
    |(?:PAUSE|RESUME)\s+(?:SOURCE|SINK|ALL)
    |INJECT\s+(?:SOURCE|CHECKPOINT)|RESET\s+SOURCE|REFRESH\s+TABLE|REBUILD\s+MATERIALIZED|BEGIN\s+UNSAFE|INSERT\s+INTO
    |UNDO\s+OPERATION|REWIND\s+SOURCE|SKIP\s+RECORD|VALIDATE\s+{_KINDS}|EXPLAIN\s+\w+|FLUSH|COMMIT|ROLLBACK|WAIT)\b"""
_AFTER_SEMICOLON = re.compile(rf";[^\S\n]*(?:--[^\n]*)?\n\s*(?={_BEGINS})", re.IGNORECASE | re.VERBOSE)
_BEGINNING = re.compile(_BEGINS, re.IGNORECASE | re.VERBOSE)
_END_OF_COMMENT = re.compile(rf"\*/|\n(?=\s*{_BEGINS})", re.IGNORECASE | re.VERBOSE)


def pieces_of(text: str) -> Iterator[ScriptStatement]:
    """The statements of a script.

    A piece is the text of one statement. If a statement has an unclosed quote, its piece extends to the end of the
    script. :func:`rest_of` splits such a piece.
    """
    yield from split_script(text)


def rest_of(piece: ScriptStatement, error: SqlError) -> tuple[ScriptStatement, tuple[ScriptStatement, ...]]:
    """Splits a piece that does not parse, because it may contain several statements. Returns the first part, and the
    statements that follow it in the piece.

    If a quote is unclosed, the first part ends at a ``;`` at the end of a line inside the quote. If a ``;`` seems to be
    missing, the first part ends before a line that begins like a statement. If a comment before a statement is
    unclosed, the first part ends at the first ``*/`` in this comment, or before a line that begins like a statement. If
    no such place exists, the piece is returned unchanged.
    """
    text = piece.text
    if text.startswith("/*"):
        ended = _END_OF_COMMENT.search(text)
        return (piece, ()) if ended is None else _cut(piece, ended.end(), ended.end())
    taken_in = _AFTER_SEMICOLON.search(text)
    if taken_in is not None:
        return _cut(piece, taken_in.start(), taken_in.end())
    at = error.span.start if error.span is not None else 0
    line_start = text.rfind("\n", 0, at) + 1
    if line_start > 0 and not text[line_start:at].strip() and _BEGINNING.match(text, at):
        return _cut(piece, at, at)
    return piece, ()


def _cut(piece: ScriptStatement, end: int, start: int) -> tuple[ScriptStatement, tuple[ScriptStatement, ...]]:
    text = piece.text
    lines = text.count("\n", 0, start)
    line_start = text.rfind("\n", 0, start) + 1
    shift = start - line_start if lines else piece.column - 1 + start
    rest = tuple(
        replace(
            found,
            start=piece.start + start + found.start,
            line=piece.line + lines + found.line - 1,
            column=found.column + shift if found.line == 1 else found.column,
        )
        for found in split_script(text[start:])
    )
    return replace(piece, text=text[:end].rstrip()), rest


def parse_piece(text: str, catalog: CatalogView) -> Statement | None:
    """Parses a statement of a script. Returns None for a Spark statement.

    Raises SqlError if the text is a statement of neither rw_sql nor Spark, or if the statement contains an unclosed
    quote or bracket.
    """
    statement = route(text, catalog) if could_be_ours(text) else None
    if statement is None:
        if not could_be_sparks(text):
            return _without_an_owner(text)
        refuse_invisible(text)
        refuse_unclosed(text)
    return statement


def _without_an_owner(text: str) -> Statement:
    """Parses ``text``, whose first words are not the beginning of any known statement of rw_sql or Spark.

    The text may still be an rw_sql statement, such as SHOW with the name of a parameter. Raises SqlError for any other
    text.
    """
    statement = parse_statement(text)
    error = not_shown(text, statement, SESSION_PARAMETERS)
    if error is not None:
        raise error
    return statement
