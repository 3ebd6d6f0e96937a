"""Normalizes the text of the queries and expressions that the parser cuts out of statements."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rw_sql.syntax.lexing.tokens import Token


def spaced(token: Token) -> str:
    """Returns a captured token's text without comments, with white space collapsed to single spaces."""
    pieces: list[str] = []
    end = -1
    for part in token.parts:
        if end >= 0 and part.start > end:
            pieces.append(" ")
        pieces.append(part.text)
        end = part.end
    return "".join(pieces)
