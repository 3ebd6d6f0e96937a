"""Messages of syntax errors: the token found, the expected tokens, and the word that was probably meant.

The sentences are RisingWave's where it has one, because its users search for them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rw_sql.errors import SYNTAX_ERROR, SqlError, near_names
from rw_sql.syntax.lexing.identifiers import RESERVED
from rw_sql.syntax.lexing.spark_words import near_clause, words_after
from rw_sql.syntax.lexing.tokens import END, WORD
from rw_sql.syntax.parsing.examples import example_like
from rw_sql.syntax.parsing.lalr_tables import SIGNS
from rw_sql.syntax.statements.common import Option

if TYPE_CHECKING:
    from collections.abc import Sequence

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

NEAR = "did you mean "
"""The beginning of a hint that names the word which was probably meant."""

_MOST_LISTED = 10
_MOST_IN_SENTENCE = 4


def found(token: Token) -> str:
    """The token found, as a message names it."""
    return "EOF" if token.kind == END else token.text.split("\n")[0][:40]


def syntax_error(token: Token, accepted: set[str], last: Any, *, before: Sequence[Token] = ()) -> SqlError:
    """The error for an unexpected token.

    ``accepted`` are the terminals that the grammar accepts at its position, ``last`` is the value before it (or None),
    and ``before`` are the tokens before it.
    """
    keywords = sorted(t.replace("_", " ") for t in accepted if t not in _DESCRIBED and t not in _SIGN_OF)
    if token.kind == END and "NAME" in accepted and (needed := _missing_name(before, token)) is not None:
        return needed
    sparks = words_after([other.upper for other in before])
    if token.kind == WORD and token.upper in sparks and token.upper not in keywords:
        hint: str | None = f"{' '.join([*(other.upper for other in before), token.upper])} is a statement of Spark SQL"
        near = []
    else:
        near = near_names(token.upper, {*keywords, *sparks}, most=1) if token.kind == WORD else []
        hint = f"{NEAR}{near[0]}?" if near else None
    if token.kind == WORD and token.upper in RESERVED and accepted & {"NAME"} and not near:
        return SqlError(
            SYNTAX_ERROR,
            f"syntax error at or near {token.text}",
            hint=f'{token.upper} is reserved; as a name it must be quoted: "{token.value}"',
            span=token.span,
        )
    slip = _clause_slip(token, accepted, before)
    if slip is not None:
        return slip
    expected, listed = _expected(accepted, keywords, last)
    hint = hint or _misplaced(token, accepted, before)
    if hint is None and listed:
        more = ["…"] if len(listed) > _MOST_LISTED else []
        hint = f"expected one of: {', '.join([*listed[:_MOST_LISTED], *more])}"
    if hint is None:
        hint = _what_next(token, expected, before)
    return SqlError(SYNTAX_ERROR, f"expected {expected}, found: {found(token)}", hint=hint, span=token.span)


def _clause_slip(token: Token, accepted: set[str], before: Sequence[Token]) -> SqlError | None:
    """The error for a mistyped clause of a query that was parsed as an alias, so that the query ended after it."""
    if not before or "$END" not in accepted or not any(other.upper == "SELECT" for other in before):
        return None
    word = before[-1]
    near = near_clause(word.text) if word.kind == WORD and token.kind != END else None
    if near is None:
        return None
    return SqlError(SYNTAX_ERROR, f"syntax error at or near {word.text}", hint=f"{NEAR}{near}?", span=word.span)


_SPOKEN = {"number": "a number", "identifier": "a name", "literal string": "a text in quotes: '…'"}


def _misplaced(token: Token, accepted: set[str], before: Sequence[Token]) -> str | None:
    """The error in the words before a token that is itself correct."""
    words = [other.upper for other in before]
    if token.kind == WORD and words[-1:] == ["IF"]:
        near = near_names(token.upper, ["EXISTS", "NOT EXISTS"], most=1)
        return f"{NEAR}IF {near[0]}?" if near else None
    if token.upper == "WITH" and "ENCODE" in words:
        return "WITH (…) stands before FORMAT … ENCODE …"
    if {"RPAR", "COMMA"} <= accepted and (token.kind == END or token.upper in ("WITH", "FORMAT", "INCLUDE")):
        return "a ) is missing" if token.kind == END else f"a ) is missing before {token.upper}"
    return None


def _what_next(token: Token, expected: str, before: Sequence[Token]) -> str | None:
    """A hint for the next token, if the sentence states what is expected and no word is similar."""
    example = example_like(before)
    if example is not None:
        return f"for example: {example}"
    if not before or expected == "end of statement":
        return None
    expected = _SPOKEN.get(expected, expected)
    if token.kind == END:
        return f"write {expected} behind {before[-1].text}"
    return f"write {expected} {'before' if token.kind == WORD else 'in the place of'} {found(token)}"


_NEEDS_NAME = re.compile(
    r"""(?:EXPLAIN[ ])?(?P<statement>
      (?:(?P<creates>CREATE)
        |DROP|ALTER|PAUSE|RESUME|RESET|INJECT|REFRESH|REBUILD|REWIND|VALIDATE|WAIT|SHOW(?:[ ]CREATE)?)
      [ ](?P<kind>SOURCE|SINK|TABLE|CONNECTION|SECRET|MATERIALIZED[ ]VIEW)(?:[ ](?:SPLITS|OFFSETS))?)
    (?:[ ]IF(?:[ ]NOT)?[ ]EXISTS)?""",
    re.VERBOSE,
)


def _missing_name(before: Sequence[Token], token: Token) -> SqlError | None:
    """The error for a statement that ends before its object's name; None if another part is missing."""
    words = " ".join(other.upper if other.kind == WORD else "." for other in before)
    told = _NEEDS_NAME.fullmatch(words)
    if told is None:
        return None
    kind, statement = told["kind"], told["statement"]
    hint = f"{statement} a_name …" if told["creates"] else f"SHOW {kind}S lists them"
    return SqlError(SYNTAX_ERROR, f"{statement} needs a {kind.lower()} name", hint=hint, span=token.span)


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
