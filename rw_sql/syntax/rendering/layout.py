"""Lays out a statement's text. A short text is on one line, and a longer text has one clause per line."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WIDEST_LINE = 100
"""The maximum number of characters of a statement that is printed on one line."""

_widest = ContextVar("_widest", default=WIDEST_LINE)


@contextmanager
def one_clause_per_line() -> Iterator[None]:
    """A context manager. Inside the ``with`` block, lists and statements with several clauses are always divided into
    lines. Each line then has room for a comment."""
    token = _widest.set(-1)
    try:
        yield
    finally:
        _widest.reset(token)


@dataclass(slots=True)
class _Piece:
    text: str
    items: list[str] | None = None
    comma: bool = False

    def flat(self) -> str:
        if self.items is None:
            return self.text
        return f"{self.text} ({', '.join(self.items)})".lstrip()

    def laid_out(self) -> str:
        flat = self.flat()
        if self.items is None or (len(self.items) < 3 and len(flat) <= _widest.get() and "\n" not in flat):
            return flat
        return f"{self.text} (".lstrip() + "\n  " + ",\n  ".join(self.items) + "\n)"


class Clauses:
    """A statement's text, divided into pieces. A new line may begin before each piece, and a list in a piece may extend
    over several lines."""

    def __init__(self, head: str) -> None:
        self._pieces = [_Piece(head)]

    def add(self, text: str) -> Clauses:
        """Adds a piece unless it is empty."""
        if text:
            self._pieces.append(_Piece(text))
        return self

    def listed(self, before: str, items: Sequence[str], *, comma: bool = False) -> Clauses:
        """Adds ``before (items)`` if there are items. If ``comma`` is true, a comma precedes this piece."""
        if items:
            self._pieces.append(_Piece(before, list(items), comma))
        return self

    def text(self) -> str:
        """The text. A short text is on one line. A longer text has one clause per line, and long lists have one item
        per line."""
        short = self._pieces[0].flat()
        for piece in self._pieces[1:]:
            short += (", " if piece.comma else " ") + piece.flat()
        if len(short) <= _widest.get() and "\n" not in short:
            return short
        long = self._pieces[0].laid_out()
        for piece in self._pieces[1:]:
            long += ("," if piece.comma else "") + ("\n" if piece.text else " ") + piece.laid_out()
        return long
