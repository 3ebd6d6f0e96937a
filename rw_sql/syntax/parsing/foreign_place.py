"""Defines the place in a statement at which a form of another SQL dialect occurs, and the content of the error for the
form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.errors import SYNTAX_ERROR, SqlError
from rw_sql.syntax.lexing.written_names import name_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.errors import ErrorCode, Span
    from rw_sql.syntax.lexing.tokens import Token


@dataclass(frozen=True, slots=True)
class Place:
    """An unexpected token, the terminals that the grammar accepts in its place, and the other tokens of the
    statement, without EXPLAIN. A dotted name is one token."""

    token: Token
    accepted: set[str]
    before: Sequence[Token]
    after: Sequence[Token]

    @property
    def words(self) -> list[str]:
        """The statement's words before the token, in upper case."""
        return [other.upper for other in self.before]

    def follows(self, most: int) -> list[str]:
        """The next words after the token, in upper case."""
        return [other.upper for other in self.after[:most]]

    def name(self, at: int, default: str = "a_name") -> str:
        """The name at index ``at`` among the tokens after the unexpected token, as written; ``default`` if that token
        is no name."""
        return name_at(self.after, at, default)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignForm:
    """The content of the error for a form of another SQL dialect.

    ``hint`` shows the equivalent syntax of rw_sql. ``message`` states the rule that the form breaks. ``expected`` is
    the construct that the grammar requires at this position. If ``message`` and ``expected`` are None, the parser's own
    message is used. ``span`` is the form's position; None means the position of the unexpected token.
    """

    hint: str
    message: str | None = None
    expected: str | None = None
    span: Span | None = None
    code: ErrorCode = SYNTAX_ERROR

    def error(self, token: Token, met: str) -> SqlError | None:
        """The error for the form; None if the form has no message of its own. ``met`` is the unexpected token as
        messages show it."""
        message = self.message if self.expected is None else f"expected {self.expected}, found: {met}"
        return None if message is None else SqlError(self.code, message, hint=self.hint, span=self.span or token.span)
