"""Makes the messages of syntax errors. A message contains the unexpected token, the tokens expected in its place, and
the word that was probably meant.

If RisingWave reports the same error, the message has RisingWave's wording, because users may search the web for it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rw_sql.errors import SYNTAX_ERROR, SqlError, either, near_names
from rw_sql.syntax.lexing.first_words import could_be_ours
from rw_sql.syntax.lexing.identifiers import RESERVED
from rw_sql.syntax.lexing.spark_words import clause_expected, near_clause, words_after
from rw_sql.syntax.lexing.tokens import END, NUMBER, WORD, found
from rw_sql.syntax.lexing.written_names import whole_names
from rw_sql.syntax.parsing.examples import completed, example_like
from rw_sql.syntax.parsing.lalr_tables import SIGNS
from rw_sql.syntax.parsing.other_dialects import NEAR, OF_OTHERS, foreign_form
from rw_sql.syntax.sql_reader.words import missing_by
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
        ("CONNECTION SINK SOURCE MATERIALIZED", "an object type after CREATE OR REPLACE"),
        ("FORMAT ROW INCLUDE", "description of the format"),
        ("FROM AS INTO", "FROM or AS after CREATE SINK sink_name"),
        ("STRUCT TIMESTAMP DOUBLE_PRECISION", "a type"),
        ("STRING NUMBER SECRET FIXED", "a value"),
        ("STRING NUMBER SECRET", "a value"),
        ("COMMA RPAR NOT_NULL", "',' or ')' after column definition"),
        ("NAME CHECK PRIMARY WATERMARK_FOR", "column name or constraint definition"),
        ("UNSAFE RENAME ADD DROP", "a change after ALTER TABLE"),
        ("UNSAFE RENAME ADD", "a change after ALTER SOURCE"),
    )
)
"""Descriptions of expected constructs, each with a set of terminals. The error uses the first description whose
terminals are all accepted at the error's place."""

_MOST_LISTED = 10
_MOST_IN_SENTENCE = 4
_FIRST_TOKENS = 4
"""The number of tokens after the first token that are needed to recognize the beginning of an rw_sql statement. The
longest beginning is CREATE OR REPLACE TEMP TABLE."""

END_WITH_SEMICOLON = "end the statement before it with ;"
"""The hint for a missing ``;`` between two statements."""


def syntax_error(
    token: Token, accepted: set[str], last: Any, *, before: Sequence[Token] = (), after: Sequence[Token] = ()
) -> SqlError:
    """The error for an unexpected token.

    ``accepted`` are the terminals that the grammar accepts at the token's position. ``last`` is the value before the
    token; None if there is no value. ``before`` and ``after`` are the other tokens of the statement.
    """
    keywords = sorted(t.replace("_", " ") for t in accepted if t not in _DESCRIBED and t not in _SIGN_OF)
    if token.kind == END and "NAME" in accepted and (needed := _missing_name(before, token)) is not None:
        return needed
    form = foreign_form(token, accepted, before, after)
    following = _next_statement(token, accepted, before, after)
    if form is not None and following is None and (foreign := form.error(token, found(token))) is not None:
        return foreign
    other_form = form.hint if form is not None else None
    sparks = words_after([other.upper for other in before])
    if token.kind == WORD and token.upper in sparks and token.upper not in keywords:
        hint: str | None = f"{' '.join([*(other.upper for other in before), token.upper])} is a statement of Spark SQL"
        near = []
    else:
        near = near_names(token.upper, {*keywords, *sparks}, most=1) if token.kind == WORD else []
        hint = _twice(token, accepted, before) or (f"{NEAR}{near[0]}?" if near else None)
    if token.kind == WORD and token.upper in RESERVED and accepted & {"NAME"} and not near:
        return SqlError(
            SYNTAX_ERROR,
            f"syntax error at or near {token.text}",
            hint=other_form or f'{token.upper} is reserved; as a name it must be quoted: "{token.value}"',
            span=token.span,
        )
    slip = _clause_slip(token, accepted, before) or _wrong_order(token, before)
    if slip is not None:
        return slip
    expected, listed = _expected(accepted, keywords, last)
    hint = (
        following
        or _of_others(token, expected, before)
        or other_form
        or hint
        or _misplaced(token, accepted, expected, before, after)
        or _what_next(token, expected, listed, before, after)
    )
    return SqlError(SYNTAX_ERROR, f"expected {expected}, found: {found(token)}", hint=hint, span=token.span)


def _clause_slip(token: Token, accepted: set[str], before: Sequence[Token]) -> SqlError | None:
    """The error for a mistyped clause of a query. The parser interprets the mistyped word as an alias that ends the
    query. The syntax error therefore occurs after this word."""
    if not before or "$END" not in accepted or not any(other.upper == "SELECT" for other in before):
        return None
    word = before[-1]
    if token.upper in ("GROUP", "ORDER", "PARTITION"):
        message, hint = missing_by(token.upper)
        return SqlError(SYNTAX_ERROR, message, hint=hint, span=token.span)
    near = near_clause(word.text) if word.kind == WORD and token.kind != END else None
    if near is None:
        return None
    return SqlError(SYNTAX_ERROR, clause_expected(near, word.text), hint=f"{NEAR}{near}?", span=word.span)


def _wrong_order(token: Token, before: Sequence[Token]) -> SqlError | None:
    """The error for a correct token that follows words in the wrong order."""
    words = [other.upper for other in before]
    if token.kind == WORD and words[-1:] == ["IF"]:
        wanted = "NOT EXISTS" if "CREATE" in words else "EXISTS"
        if near_names(token.upper, ["EXISTS", "NOT"], most=1):
            message = f"expected {wanted} after IF, found: {found(token)}"
            return SqlError(SYNTAX_ERROR, message, hint=f"{NEAR}IF {wanted}?", span=token.span)
    if token.upper == "WITH" and "ENCODE" in words and "FORMAT" in words and "WITH" not in words:
        clause = " ".join(other.text for other in before[words.index("FORMAT") :])
        hint = f"write WITH (…) {clause}"
        return SqlError(SYNTAX_ERROR, "WITH must come before FORMAT", hint=hint, span=token.span)
    late = next((word for word in ("WITH", "FORMAT") if word in words), None)
    if token.upper == "INCLUDE" and late is not None and words[:1] in (["CREATE"], ["EXPLAIN"]):
        hint = f"write INCLUDE … before {late}: (…) INCLUDE timestamp WITH (…) FORMAT …"
        return SqlError(SYNTAX_ERROR, f"INCLUDE must come before {late}", hint=hint, span=token.span)
    if words[:2] == ["ALTER", "SOURCE"] and words[3:] == ["RESET", "SOURCE"] and token.upper == "SPLITS":
        message = "RESET SOURCE SPLITS is a statement of its own, not a change of ALTER SOURCE"
        return SqlError(SYNTAX_ERROR, message, hint=f"RESET SOURCE SPLITS {before[2].text}", span=token.span)
    return None


def _next_statement(token: Token, accepted: set[str], before: Sequence[Token], after: Sequence[Token]) -> str | None:
    """The hint for the case that the statement is complete, and the token begins another statement on a new line."""
    if "$END" not in accepted or token.kind != WORD or not before or before[-1].span.line >= token.span.line:
        return None
    words = " ".join(other.text for other in (token, *after[:_FIRST_TOKENS]))
    return END_WITH_SEMICOLON if could_be_ours(words) else None


def _of_others(token: Token, expected: str, before: Sequence[Token]) -> str | None:
    """The hint for a statement that exists in another system but not in rw_sql."""
    if token.kind != WORD:
        return None
    if token.upper in ("SOURCES", "SINKS") and before and before[-1].upper in ("PAUSE", "RESUME"):
        many = f"{before[-1].upper} ALL SOURCES" if token.upper == "SOURCES" else f"{before[-1].upper} SINK a_sink"
        return f"write {many}"
    is_statement = expected == "statement" or expected.startswith("an object type after")
    return OF_OTHERS.get(token.upper) if is_statement else None


_UNSAID = ('"."', "ALLOW", "CASCADE", "EMIT", "REASON")
"""The keywords that hints do not suggest. Consent, and the reason for the consent, must come from the user. EMIT is
rarely the intended word."""

_SPOKEN = (("number", "a number"), ("identifier", "a name"), ("literal string", "a string in quotes: '…'"))
_CLAUSES = ("FORMAT", "WITH", "INCLUDE")
_COLUMN_LIST = "',' or ')' after column definition"
_COLUMN = "column name or constraint definition"


def _twice(token: Token, accepted: set[str], before: Sequence[Token]) -> str | None:
    """The hint for a clause that the statement already has."""
    is_again = "$END" in accepted and token.upper in ("FORMAT", "WITH")
    if not is_again or not any(other.upper == token.upper for other in before):
        return None
    return f"omit the second {token.upper}"


def _misplaced(
    token: Token, accepted: set[str], expected: str, before: Sequence[Token], after: Sequence[Token]
) -> str | None:
    """Returns the hint for a correct token that is unexpected because the text before it is wrong: for example, a
    bracket is missing."""
    words = [other.upper for other in before]
    if {"RPAR", "COMMA"} <= accepted and (token.kind == END or token.upper in _CLAUSES):
        return "write ) at the end" if token.kind == END else f"write ) before {token.upper}"
    if expected == _COLUMN_LIST:
        return f"write , or ) before {found(token)}"
    if expected == _COLUMN:
        return f"write a column, such as a_column INT, {_where(token, before)}"
    if expected == "description of the format" and token.kind == WORD and "LPAR" in accepted and "IF" not in words:
        return f"write ( before {found(token)}: columns are written in parentheses"
    if token.text == "-" and "RATE_LIMIT" in (words[-2] if words[-1:] in (["TO"], ["="]) else ""):
        return "write a whole number such as 1000, or DEFAULT"
    if token.text == "-" and "STRING" in accepted:
        number = after[0].text if after and after[0].kind == NUMBER else "…"
        return f"write the number in quotes: '-{number}'"
    if words[:1] == ["CANCEL"] and "NUMBER" in accepted:
        return f"write a job's id {_where(token, before)}: SHOW JOBS lists the ids"
    return None


def _what_next(
    token: Token, expected: str, listed: Sequence[str], before: Sequence[Token], after: Sequence[Token]
) -> str | None:
    """The hint that shows a possible continuation of the statement. This hint is used if no similar word is known."""
    if expected == "end of statement":
        more = [_said(other) for other in listed if other not in _UNSAID][:_MOST_LISTED]
        return f"omit {_legible(token)}{f', or write {either(more)} before it' if more else ''}"
    example = example_like(before)
    shown = f"; for example: {example}" if example is not None else ""
    if listed:
        more = ["…"] if len(listed) > _MOST_LISTED else []
        return f"write one of {', '.join([*map(_said, listed[:_MOST_LISTED]), *more])}{shown}"
    if not before:
        return None
    if expected == '"("' and token.kind == WORD:
        begun = 2 if [other.upper for other in before[-2:-1]] == ["UNSAFE"] else 1
        key, *behind = whole_names([token, *after])
        shown = ""
        if [other.text for other in behind[:1]] == ["="]:
            shown = f": {' '.join(other.text for other in before[-begun:])} ({found(key)} = …)"
        return f"write ( {_where(token, before)} and ) after the list{shown}"
    if (whole := completed(before, expected, token)) is not None:
        return f"write {expected} {_where(token, before, expected)}: {whole}{' …' if after else ''}"
    return f"write {_said(expected)} {_where(token, before, expected)}{shown}"


def _where(token: Token, before: Sequence[Token], expected: str = "") -> str:
    """Describes the place at which a part of the statement is missing."""
    if token.kind == END:
        return f"after {found(before[-1])}" if before else "there"
    is_before = token.kind == WORD or (token.kind == NUMBER and expected.isupper())
    return f"{'before' if is_before else 'instead of'} {_legible(token)}"


def _legible(token: Token) -> str:
    """Returns a token as the sentences of hints show it: punctuation is in quotes."""
    text = found(token)
    return text if any(character.isalnum() for character in text) else f'"{text}"'


def _said(expected: str) -> str:
    """Returns the expected words as a hint lists them."""
    if expected == 'TO or "="':
        return "= and a value"
    for term, spoken in _SPOKEN:
        expected = re.sub(rf"\b{term}\b(?! in quotes)", spoken, expected)
    return expected


_NEEDS_NAME = re.compile(
    r"""(?:EXPLAIN[ ])?(?P<statement>
      (?:(?P<creates>CREATE)
        |DROP|ALTER|PAUSE|RESUME|RESET|INJECT|REFRESH|REBUILD|REWIND|VALIDATE|WAIT|SHOW(?:[ ]CREATE)?)
      [ ](?P<kind>SOURCE|SINK|TABLE|CONNECTION|SECRET|MATERIALIZED[ ]VIEW)(?:[ ](?:SPLITS|OFFSETS))?)
    (?:[ ]IF(?:[ ]NOT)?[ ]EXISTS)?""",
    re.VERBOSE,
)


_REST = {
    "SOURCE": "(id INT, …) WITH (connector = '…', …) …",
    "TABLE": "(id INT PRIMARY KEY, …) WITH (connector = '…', …) …",
    "SINK": "FROM a_relation WITH (connector = '…', …) …",
    "CONNECTION": "WITH (type = 'kafka', …)",
    "SECRET": "WITH (backend = 'meta') AS '…'",
    "MATERIALIZED VIEW": "AS SELECT …",
}
"""The text that follows the name in CREATE statements, by object kind."""


def _missing_name(before: Sequence[Token], token: Token) -> SqlError | None:
    """Returns the error for a statement that ends before the name of its object; None if another part is missing."""
    words = " ".join(other.upper if other.kind == WORD else "." for other in before)
    told = _NEEDS_NAME.fullmatch(words)
    if told is None:
        return None
    kind, statement = told["kind"], told["statement"]
    if told["creates"]:
        hint = f"{statement} a_name {_REST[kind]}"
    else:
        hint = f"write a name after {before[-1].text}: SHOW {kind}S lists the {kind.lower()}s"
    return SqlError(SYNTAX_ERROR, f"{statement} needs a {kind.lower()} name", hint=hint, span=token.span)


def _expected(accepted: set[str], keywords: list[str], last: Any) -> tuple[str, list[str]]:
    """Returns the description of the expected construct for the message, and the list of alternatives for the hint."""
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
        return either(listed), []
    return f"one of {', '.join(keywords[:3])} …" if keywords else listed[0], listed
