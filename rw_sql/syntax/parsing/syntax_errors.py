"""Messages of syntax errors: the token found, what was expected, and the word that was probably meant.

The sentences are RisingWave's where it has one, because its users search for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.errors import SYNTAX_ERROR, SqlError, near_names
from rw_sql.syntax.lexing.identifiers import RESERVED
from rw_sql.syntax.lexing.tokens import END, WORD
from rw_sql.syntax.parsing.lalr_tables import SIGNS
from rw_sql.syntax.statements.common import Option

if TYPE_CHECKING:
    from rw_sql.syntax.lexing.tokens import Token

_SIGN_OF = {name: sign for sign, name in SIGNS.items()}
_DESCRIBED = {
    "NAME": "identifier",
    "WORD": "identifier",
    "STRING": "literal string",
    "NUMBER": "number",
    "OPTION_KEY": "identifier",
    "QUERY": "a query",
    "EXPRESSION": "an expression",
    "$END": "end of statement",
}
_PLACES: tuple[tuple[frozenset[str], str], ...] = tuple(
    (frozenset(terminals.split()), sentence)
    for terminals, sentence in (
        ("CREATE DROP ALTER", "statement"),
        ("SOURCE SINK SECRET TEMPORARY", "an object type after CREATE"),
        ("SOURCE SINK SECRET MATERIALIZED SYSTEM", "an object type after ALTER"),
        ("SOURCE TABLE SECRET MATERIALIZED VIEW", "an object type after SHOW CREATE"),
        ("SOURCE TABLE SECRET MATERIALIZED", "an object type after DROP"),
        ("FORMAT ROW INCLUDE", "description of the format"),
        ("FROM AS INTO", "FROM or AS after CREATE SINK sink_name"),
        ("STRUCT TIMESTAMP DOUBLE_PRECISION", "a type"),
        ("STRING NUMBER SECRET FIXED", "a value"),
        ("STRING NUMBER SECRET", "a value"),
        ("COMMA RPAR NOT_NULL", "',' or ')' after column definition"),
        ("NAME CHECK PRIMARY WATERMARK_FOR", "column name or constraint definition"),
        ("UNSAFE RENAME ADD DROP", "what to change after ALTER TABLE"),
        ("UNSAFE RENAME ADD", "what to change after ALTER SOURCE"),
    )
)
"""The expected construct where all of these terminals are accepted; the first match is used."""

_MOST_LISTED = 10
_MOST_IN_SENTENCE = 4


def found(token: Token) -> str:
    """The token found, as a message names it."""
    return "EOF" if token.kind == END else token.text.split("\n")[0][:40]


def syntax_error(token: Token, accepted: set[str], last: Any) -> SqlError:
    """The error for an unexpected token.

    ``accepted`` are the terminals accepted at its position, ``last`` is the value before it, or None.
    """
    keywords = sorted(t.replace("_", " ") for t in accepted if t not in _DESCRIBED and t not in _SIGN_OF)
    near = near_names(token.upper, keywords, most=1) if token.kind == WORD else []
    hint = f"did you mean {near[0]}?" if near else None
    if token.kind == WORD and token.upper in RESERVED and accepted & {"NAME"} and not near:
        return SqlError(
            SYNTAX_ERROR,
            f"syntax error at or near {token.text}",
            hint=f'{token.upper} is reserved; as a name it must be quoted: "{token.value}"',
            span=token.span,
        )
    expected, listed = _expected(accepted, keywords, last)
    if hint is None and listed:
        more = ["…"] if len(listed) > _MOST_LISTED else []
        hint = f"expected one of: {', '.join([*listed[:_MOST_LISTED], *more])}"
    return SqlError(SYNTAX_ERROR, f"expected {expected}, found: {found(token)}", hint=hint, span=token.span)


def _expected(accepted: set[str], keywords: list[str], last: Any) -> tuple[str, list[str]]:
    """The expectation for the sentence, and the list for the hint."""
    signs = sorted(f'"{_SIGN_OF[t]}"' for t in accepted if t in _SIGN_OF)
    values = sorted({_DESCRIBED[t] for t in accepted if t in _DESCRIBED and t != "$END"})
    listed = [*values, *keywords, *signs]
    for terminals, sentence in _PLACES:
        if terminals <= accepted:
            return sentence, listed
    if {"COMMA", "RPAR"} <= accepted and isinstance(last, Option | list):
        return "',' or ')' after option definition", []
    if "$END" in accepted:
        return "end of statement", listed
    if len(listed) == 1:
        return listed[0], []
    if len(listed) <= _MOST_IN_SENTENCE:
        return f"{', '.join(listed[:-1])} or {listed[-1]}", []
    return f"one of {', '.join(keywords[:3])} …" if keywords else listed[0], listed
