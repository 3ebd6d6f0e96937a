"""Queries and expressions: cut out by the parser, checked here by sqlglot to be exactly one of them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from rw_sql.errors import INVALID_EXPRESSION, TOO_COMPLEX, SqlError

if TYPE_CHECKING:
    from rw_sql.syntax.scan import Token

_DIALECTS = ("spark", "risingwave")
"""Whose SQL a query may be. Which one it must be is a parameter of the session, known only when it is planned."""


def spaced(token: Token) -> str:
    """The text of a cut-out token with comments gone and every run of blanks as one."""
    pieces: list[str] = []
    end = -1
    for part in token.parts:
        if end >= 0 and part.start > end:
            pieces.append(" ")
        pieces.append(part.text)
        end = part.end
    return "".join(pieces)


def check_expression(token: Token) -> str:
    """The canonical text of a cut-out expression. Raises SqlError INVALID_EXPRESSION, TOO_COMPLEX."""
    text = spaced(token)
    _raise(_fault(text, "expression"), "an expression", token)
    return text


def check_query(token: Token) -> str:
    """The text of a cut-out query, as written. Raises SqlError INVALID_EXPRESSION, TOO_COMPLEX."""
    _raise(_fault(token.text, "query"), "a query", token)
    return token.text


Fault = tuple[str, int | None]


def _raise(fault: Fault | None, what: str, token: Token) -> None:
    if fault is None:
        return
    if fault[0] == "deep":
        raise SqlError(TOO_COMPLEX, f"{what} is nested too deeply", span=token.span)
    span = token.span
    if fault[1] is not None and what == "a query":
        at = token.start + min(fault[1], len(token.text) - 1)
        part = next((p for p in token.parts if p.start <= at < p.end), None)
        span = part.span if part is not None else span
    raise SqlError(INVALID_EXPRESSION, f"this is not {what}: {fault[0]}", span=span)


@lru_cache(maxsize=512)
def _fault(text: str, what: Literal["expression", "query"]) -> Fault | None:
    """What is wrong with it, and where, as far as known; None if nothing is."""
    from sqlglot import exp, parse_one
    from sqlglot.errors import ParseError, SqlglotError

    fault: Fault | None = None
    for dialect in _DIALECTS:
        try:
            if what == "query":
                tree = parse_one(text, read=dialect)
                if isinstance(tree, exp.Query) and not isinstance(tree, exp.Table):
                    return None
                fault = fault or ("it must start with SELECT, WITH or VALUES", 0)
            else:
                parse_one(text, read=dialect, into=exp.Condition)
                return None
        except ParseError as error:
            first = error.errors[0] if error.errors else {}
            if fault is None:
                fault = (_plain(str(first.get("description") or error)), _offset(text, first))
        except SqlglotError as error:
            fault = fault or (_plain(str(error)), None)
        except RecursionError:
            return "deep", None
    return fault


def _plain(message: str) -> str:
    line = message.partition("\n")[0].partition(" but got ")[0].partition("<Token")[0].strip().rstrip(".")
    return line[:1].lower() + line[1:]


def _offset(text: str, error: dict[str, object]) -> int | None:
    line, column = error.get("line"), error.get("col")
    highlight = error.get("highlight")
    if not isinstance(line, int) or not isinstance(column, int):
        return None
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1
    width = len(highlight) if isinstance(highlight, str) else 1
    return max(0, start + column - width)
