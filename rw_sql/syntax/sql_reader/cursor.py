"""Reads a list of tokens one by one, and raises errors at the current token."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from rw_sql.errors import INVALID_EXPRESSION, TOO_COMPLEX, SqlError
from rw_sql.syntax.lexing.identifiers import RESERVED
from rw_sql.syntax.lexing.tokens import BACKQUOTED, END, PUNCTUATION, QUOTED, STRING, WORD, Token, found
from rw_sql.syntax.sql_reader.flink_windows import table_call
from rw_sql.syntax.sql_reader.words import WITHOUT_COMMA, trailing_comma

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST_NESTED = 100
"""The maximum number of levels to which queries and expressions can be nested.

The nesting is limited because each level uses several frames of Python's stack.
"""

_NAME_KINDS = frozenset({WORD, QUOTED, BACKQUOTED})

_OPERATORS = frozenset(
    [
        "=",
        "==",
        "<>",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "<=>",
        "+",
        "-",
        "*",
        "/",
        "%",
        "||",
        "|",
        "^",
        "&",
        "<<",
        ">>",
        "#",
        "~",
        "~*",
        "!~",
        "!~*",
        "~~",
        "~~*",
        "!~~",
        "!~~*",
        "->",
        "->>",
        "#>",
        "#>>",
        "#-",
        "@>",
        "<@",
        "?",
        "?|",
        "?&",
        "@?",
        "@@",
        "^@",
        "<->",
        "<#>",
        "<+>",
        "::",
        ":",
        "=>",
        ":=",
        "|/",
        "||/",
        "!!",
        "@",
        "!",
        ".",
        ",",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ";",
        "$",
        "\\",
    ]
)
_LONGEST_OPERATOR = 4

_BEHIND_COLUMNS = frozenset(",.:=<>/%|")
"""Characters that may follow a column but cannot begin an expression."""

_BEHIND = {"FROM": "the name of a relation", "JOIN": "the name of a relation", "AS": "a name"}
_SPOKEN = {
    "identifier": "a name",
    "an identifier or a '*'": "a name or *",
    "literal string": "a string in quotes: '…'",
    "literal number": "a number",
    "join constraint": "ON a_condition or USING (a_column)",
    "joined table": "JOIN and a relation",
    "date/time field": "YEAR, MONTH, DAY, HOUR, MINUTE or SECOND",
}
"""Maps the names that error messages use for expected constructs to the descriptions that hints use."""


class Cursor:
    """Reads tokens ``[at, last)`` in order. ``ended`` is the token that represents the end."""

    __slots__ = ("at", "closed", "depth", "ended", "has_lambda", "last", "mentioned", "tokens")

    def __init__(self, tokens: Sequence[Token], at: int, last: int, ended: Token) -> None:
        self.tokens = tokens
        self.at = at
        self.last = last
        self.ended = ended
        self.depth = 0
        self.closed = -1
        """The position after the latest closing parenthesis that no field selection such as ``.a`` may follow."""
        self.mentioned: list[Token] = []
        """The first words of the column names seen so far."""
        self.has_lambda = False
        """True if a lambda such as ``|x| x + 1``, which defines names, was seen."""

    def peek(self, ahead: int = 0) -> Token:
        """The token that is ``ahead`` positions after the current token; the end token if there is no such token."""
        at = self.at + ahead
        return self.tokens[at] if at < self.last else self.ended

    def word(self, ahead: int = 0) -> str:
        """The word that is ``ahead`` positions after the current token, in upper case; empty if that token is not a
        word."""
        token = self.peek(ahead)
        return token.upper if token.kind == WORD else ""

    def operator(self) -> str:
        """The longest operator at this position. An operator consists of characters without spaces between them."""
        token = self.peek()
        if token.kind != PUNCTUATION:
            return ""
        best, text, end = token.text, token.text, token.end
        for ahead in range(1, _LONGEST_OPERATOR):
            following = self.peek(ahead)
            if following.kind != PUNCTUATION or following.start != end:
                break
            text += following.text
            end = following.end
            if text in _OPERATORS:
                best = text
        return best

    def is_sign(self, sign: str) -> bool:
        """True if the next token is this single character."""
        token = self.peek()
        return token.kind == PUNCTUATION and token.text == sign

    def take_sign(self, sign: str) -> bool:
        """If the next token is this character, skips it and returns True."""
        if self.is_sign(sign):
            self.at += 1
            return True
        return False

    def take(self, *words: str) -> bool:
        """If the next tokens are these words, skips all of them and returns True."""
        if all(self.word(ahead) == word for ahead, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def take_one(self, *words: str) -> str:
        """If the next token is one of the words, skips this token and returns the word."""
        met = self.word()
        if met and met in words:
            self.at += 1
            return met
        return ""

    def expect_sign(self, sign: str) -> None:
        """Skips the character. Raises SqlError INVALID_EXPRESSION if the next token is not this character."""
        if not self.take_sign(sign):
            self.fail(sign)

    def expect(self, *words: str) -> None:
        """Skips the words. Raises SqlError INVALID_EXPRESSION if the next tokens are not these words."""
        for word in words:
            if not self.take(word):
                self.fail(word)

    def fail(self, expected: str) -> NoReturn:
        """Raises SqlError INVALID_EXPRESSION. The message names the expected construct and the current token."""
        token = self.peek()
        met = found(token)
        before = found(self.tokens[self.at - 1]) if self.at > 0 else ""
        if before == "," and expected in ("an expression", "identifier") and (token.kind == END or met in (")", "]")):
            self.refuse_comma(self.tokens[self.at - 1], "" if token.kind == END else met)
        what = expected.removesuffix(" in the query body").partition(" after ")[0].removeprefix("one of ")
        hint = f"write {_SPOKEN.get(what, what)}{f' after {before}' if before else ''}"
        raise SqlError(INVALID_EXPRESSION, f"expected {expected}, found: {met}", hint=hint, span=token.span)

    def refuse(self, message: str, token: Token, *, hint: str | None = None) -> NoReturn:
        """Raises SqlError INVALID_EXPRESSION at the given token."""
        if hint is None and message.startswith("syntax error at or near "):
            before = self.tokens[self.at - 1] if self.at > 0 else None
            if token.upper == "TABLE" and before is not None and before.upper in ("FROM", "JOIN", ","):
                at = self.tokens.index(token)
                form = table_call(self.tokens[at + 1 :], self.tokens[:at])
                if form is not None:
                    raise SqlError(INVALID_EXPRESSION, form[0], hint=form[1], span=token.span)
            if before is not None and before.text == "," and before.start < token.start and not self._is_column():
                self.refuse_comma(before, token.text)
            behind = f" after {before.text}" if before is not None else f" before {token.text}"
            what = _BEHIND.get(before.upper if before is not None else "", "an expression")
            name = f"`{token.value}` (\"{token.value}\" if query_dialect is 'risingwave')"
            hint = f"write {what}{behind}; as a name, {token.text} must be quoted: {name}"
        raise SqlError(INVALID_EXPRESSION, message, hint=hint, span=token.span)

    def _is_column(self) -> bool:
        """True if the next token is a reserved word that is probably the name of a column. The word probably names a
        column if the token after it can follow a column."""
        following = self.peek(1)
        if following.kind == END or following.text == ")":
            return self.word() != "FROM"
        return following.upper in ("FROM", "AS") or (
            following.kind == PUNCTUATION and following.text in _BEHIND_COLUMNS
        )

    def refuse_comma(self, comma: Token, following: str) -> NoReturn:
        """Raises SqlError INVALID_EXPRESSION at a comma that is not followed by an item."""
        raise SqlError(INVALID_EXPRESSION, trailing_comma(following), hint=WITHOUT_COMMA, span=comma.span)

    def is_name(self, ahead: int = 0) -> bool:
        """True if the token ``ahead`` positions after the current token is a name: a quoted name, or a word that is not
        reserved."""
        token = self.peek(ahead)
        return token.kind in _NAME_KINDS and (token.kind != WORD or token.upper not in RESERVED)

    def name(self) -> Token:
        """Skips and returns one name. Raises SqlError INVALID_EXPRESSION if no name comes next."""
        token = self.peek()
        if not self.is_name():
            if token.kind == WORD:
                self.refuse(f"syntax error at or near {token.text}", token)
            self.fail("identifier")
        self.at += 1
        return token

    def label(self) -> None:
        """Skips and returns a name after AS or a dot, where reserved words are names too."""
        if self.peek().kind not in _NAME_KINDS:
            self.fail("identifier")
        self.at += 1

    def dotted_name(self) -> None:
        """Skips ``a.b.c``."""
        self.name()
        while self.is_sign(".") and self.peek(1).kind in _NAME_KINDS:
            self.at += 2

    def string(self) -> None:
        """Skips a string in single quotes."""
        if self.peek().kind != STRING:
            self.fail("literal string")
        self.at += 1

    def comma_separated(self, item: Callable[[], object]) -> None:
        """Skips one or more items separated by commas."""
        item()
        while self.take_sign(","):
            item()

    def in_parentheses(self, item: Callable[[], object]) -> None:
        """Skips ``( item, … )``."""
        self.expect_sign("(")
        self.comma_separated(item)
        self.expect_sign(")")

    def deeper(self) -> None:
        """Enters another level of nesting. Raises SqlError TOO_COMPLEX if there are too many levels."""
        self.depth += 1
        if self.depth > MOST_NESTED:
            raise SqlError(
                TOO_COMPLEX,
                f"more than {MOST_NESTED} levels are nested here",
                hint="name inner parts in WITH a_name AS (…), or make them views",
                span=self.peek().span,
            )
