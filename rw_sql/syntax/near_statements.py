"""Suggests a statement if an input's first words contain a typing error: ``SHOW SOURCS``, ``SELEC 1``, ``DROP SUORCE
s``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import SYNTAX_ERROR, SqlError, near_names
from rw_sql.syntax import statements as ast
from rw_sql.syntax.lexing.spark_words import SECOND_WORDS
from rw_sql.syntax.lexing.tokens import WORD, scan
from rw_sql.syntax.parsing.other_dialects import NEAR
from rw_sql.syntax.parsing.parser import Parser
from rw_sql.syntax.parsing.script import parse_statement

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_WORDS = 3
"""The maximum number of words before a mistyped word: ``CREATE OR REPLACE SUORCE``."""

_OF_RISINGWAVE = frozenset({"TIMEZONE"})
"""RisingWave's parameters whose SHOW statement also works in rw_sql."""

_OPENING = frozenset({
    "ALTER", "BEGIN", "CREATE", "DESC", "DESCRIBE", "DROP", "EXPLAIN", "MATERIALIZED", "OR", "REPLACE", "RESET",
    "SHOW",
})  # fmt: skip

_DESCRIBED = frozenset({"CONNECTION", "SECRET", "SINK", "SOURCE"})
"""Object kinds that users write by mistake between DESCRIBE and the object's name."""


def near_statement(text: str, parameters: Iterable[str] = ()) -> SqlError | None:
    """Returns the error for a statement that neither rw_sql nor Spark accepts. The hint of the error is the statement
    that was probably meant. Returns None if no statement is similar.

    Only the first words are compared. The parser checks the remaining words when the user has corrected the statement.
    ``parameters`` are the names of the session parameters, which can follow SHOW, like the object kinds.
    """
    try:
        statement = parse_statement(text)
    except SqlError as error:
        return error if _is_slip(error, text) else None
    found = not_shown(text, statement, parameters)
    return found if found is not None and (found.hint or "").startswith(NEAR) else None


def not_shown(text: str, statement: ast.Statement, parameters: Iterable[str] = ()) -> SqlError | None:
    """The error for a SHOW of an object kind that neither Spark nor rw_sql lists; None for any other statement."""
    shown = statement.statement if isinstance(statement, ast.Explain) else statement
    if not isinstance(shown, ast.ShowParameter):
        return None
    tokens = [token for token in scan(text) if token.upper not in ("EXPLAIN", "SHOW")]
    word = next((token for token in tokens if token.value.lower() == shown.parameter), None)
    if word is None:
        return None
    known = _listed() | SECOND_WORDS["SHOW"]
    if word.upper in known or word.upper in _OF_RISINGWAVE or word.value.lower() in parameters:
        return None
    near = near_names(word.upper, {*known, *(name.upper() for name in parameters)}, most=1)
    meant = near[0].lower() if near and near[0].lower() in parameters else "".join(near)
    return SqlError(
        SYNTAX_ERROR,
        f"expected an object type or a parameter after SHOW, found: {word.text}",
        hint=f"{NEAR}SHOW {meant}?" if near else "for example SHOW SOURCES or SHOW JOBS; SHOW ALL lists the parameters",
        span=word.span,
    ).located(text)


def _listed() -> frozenset[str]:
    """The words that the grammar accepts after SHOW."""
    text = "SHOW"
    parser = Parser(text, scan(text), 0, 1)
    try:
        parser.parse()
    except SqlError:
        return frozenset(terminal.replace("_", " ") for terminal in parser.accepted()) - {"NAME"}
    raise AssertionError("SHOW alone is no statement")


def _is_slip(error: SqlError, text: str) -> bool:
    """True if an error's hint suggests a word, and only keywords precede the error's position."""
    if error.span is None or not (error.hint or "").startswith(NEAR):
        return False
    before = [token for token in scan(text[: error.span.start]) if token.text]
    opening = _OPENING | _DESCRIBED if before and before[0].upper in ("DESC", "DESCRIBE") else _OPENING
    return len(before) <= _MOST_WORDS and all(token.kind == WORD and token.upper in opening for token in before)
