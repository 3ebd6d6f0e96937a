"""What a syntax error says: what stood there, what could have stood there, and which of that was probably meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import SYNTAX_ERROR, SqlError, near_names
from rw_sql.syntax.scan import END, WORD
from rw_sql.syntax.table import SIGNS

if TYPE_CHECKING:
    from rw_sql.syntax.parser import Parser
    from rw_sql.syntax.scan import Token

_SIGN_OF = {name: sign for sign, name in SIGNS.items()}
_DESCRIBED = {
    "NAME": "a name",
    "STRING": "a quoted text",
    "NUMBER": "a number",
    "OPTION_KEY": "an option's name",
    "QUERY": "a query",
    "EXPRESSION": "an expression",
    "$END": "the end of the statement",
}
_MOST_LISTED = 8


def describe(terminal: str) -> str:
    """A terminal as a user would write or say it."""
    if terminal in _DESCRIBED:
        return _DESCRIBED[terminal]
    sign = _SIGN_OF.get(terminal)
    return f'"{sign}"' if sign else terminal.replace("_", " ")


def found(token: Token) -> str:
    """What stood there, as an error says it."""
    return "EOF" if token.kind == END else token.text.split("\n")[0][:40]


def syntax_error(parser: Parser, token: Token) -> SqlError:
    """The error for a token that cannot stand where it does."""
    accepted = parser.accepted()
    keywords = sorted(describe(t) for t in accepted if t not in _DESCRIBED and t not in _SIGN_OF)
    values = sorted(describe(t) for t in accepted if t in _DESCRIBED and t != "$END")
    signs = sorted(describe(t) for t in accepted if t in _SIGN_OF)
    met = found(token)
    listed = values + keywords + signs
    if "$END" in accepted:
        listed.append(_DESCRIBED["$END"])
    if len(listed) == 1:
        message, hint = f"expected {listed[0]}, found: {met}", None
    elif len(listed) <= 3:
        message, hint = f"expected {', '.join(listed[:-1])} or {listed[-1]}, found: {met}", None
    else:
        message = f"unexpected {met}" if token.kind == END else f'unexpected "{met}"'
        shown = listed[:_MOST_LISTED] + (["…"] if len(listed) > _MOST_LISTED else [])
        hint = f"expected one of: {', '.join(shown)}"
    if token.kind == WORD:
        near = near_names(token.upper, keywords, most=1)
        if near:
            hint = f"did you mean {near[0]}?"
    return SqlError(SYNTAX_ERROR, message, hint=hint, span=token.span)
