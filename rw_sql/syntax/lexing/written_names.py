"""Finds names exactly as a statement writes them, for hints that repeat these names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.syntax.lexing.identifiers import quoted
from rw_sql.syntax.lexing.tokens import BACKQUOTED, QUOTED, WORD, Token

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAMES = (WORD, QUOTED, BACKQUOTED)


def whole_names(tokens: Sequence[Token]) -> list[Token]:
    """Returns the tokens, with each dotted name combined into one token of kind WORD. For example, ``public.orders`` is
    one token instead of three."""
    found: list[Token] = []
    at = 0
    while at < len(tokens):
        end = at + 1
        while end + 1 < len(tokens) and _continues(tokens, end):
            end += 2
        found.append(tokens[at] if end == at + 1 else _one(tokens[at:end]))
        at = end
    return found


def _continues(tokens: Sequence[Token], dot: int) -> bool:
    return tokens[dot].text == "." and tokens[dot - 1].kind in _NAMES and tokens[dot + 1].kind in _NAMES


def _one(parts: Sequence[Token]) -> Token:
    first, text = parts[0], "".join(_shown(part) for part in parts)
    return Token(WORD, text, text, first.start, parts[-1].end, first.line, first.column)


def name_at(tokens: Sequence[Token], at: int, default: str) -> str:
    """The name at a position, quoted as in rw_sql; ``default`` if there is no name."""
    return _shown(tokens[at]) if 0 <= at < len(tokens) and tokens[at].kind in _NAMES else default


def _shown(token: Token) -> str:
    return quoted(token.value) if token.kind == BACKQUOTED else token.text


def spelled(tokens: Sequence[Token]) -> str:
    """The tokens as text, with one space where the statement has whitespace, but with no space before ``(``, ``)``,
    ``:`` or ``,``, and none after ``(`` or ``:``."""
    text = ""
    for at, token in enumerate(tokens):
        is_apart = at > 0 and tokens[at - 1].end < token.start
        text += (
            f"{' ' if is_apart and tokens[at - 1].text not in '(:' and token.text not in '(:,)' else ''}{token.text}"
        )
    return text
