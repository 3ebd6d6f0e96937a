"""Maps each character of an expanded script to its origin. With this map, errors refer to positions in the original
files."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rw_sql.errors import Span, SqlError
from rw_sql.syntax.lexing.invisible import BYTE_ORDER_MARK

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Origin:
    """The text from which characters of the expanded script come, and its file. ``file`` is None for text that is not
    from a file."""

    file: str | None
    text: str

    def span(self, start: int, end: int) -> Span:
        """The span of ``[start, end)`` in the file."""
        line_start = self.text.rfind("\n", 0, start) + 1
        line = self.text.count("\n", 0, start) + 1
        if self.text[line_start : line_start + 1] == BYTE_ORDER_MARK and start > line_start:
            line_start += 1  # editors do not count a byte-order mark as a column
        return Span(start, end, line, start - line_start + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A section of the expanded text. The section begins at ``at`` and ends at the next section.

    A copied section consists of the characters of its file from ``start`` on. Any other section is the replacement for
    the range ``[start, end)`` of the file.
    """

    at: int
    origin: Origin
    start: int
    end: int
    is_copied: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo:
    """The text that ``\\echo`` prints, and its position in the expanded text."""

    at: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An error of the expansion, located in its file, and the position of the faulty text in the expanded text."""

    at: int
    error: SqlError


@dataclass(frozen=True, slots=True, kw_only=True)
class Expanded:
    """A script without variables and backslash commands.

    ``settings`` are the variables that the script has set. The value None means that the script has unset the variable.
    ``faults`` are the errors of the expansion, if the caller collects these errors.
    """

    text: str
    pieces: tuple[Piece, ...]
    echoes: tuple[Echo, ...] = ()
    settings: Mapping[str, str | None] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()

    def variables_after(self, before: Mapping[str, str]) -> dict[str, str]:
        """Returns the variables that are set after the script, given the variables that were set before it.

        The next file begins with these variables.
        """
        merged = {**before, **self.settings}
        return {name: value for name, value in merged.items() if value is not None}

    def source(self, start: int, end: int) -> tuple[Origin, Span]:
        """Returns the origin of the range ``[start, end)`` of the expanded text. The origin is the file from which the
        start of the range comes, and the position in this file."""
        first = self._piece(start)
        begin = min(first.start + start - first.at, len(first.origin.text)) if first.is_copied else first.start
        last = self._piece(max(start, end - 1))
        if last.origin is not first.origin:
            stop = first.end
        elif last.is_copied:
            stop = last.start + max(start, end - 1) - last.at + 1
        else:
            stop = last.end
        return first.origin, first.origin.span(begin, max(begin + 1, min(stop, len(first.origin.text))))

    def locate(self, error: SqlError) -> SqlError:
        """Relocates an error from the expanded text to the original file. Modifies and returns ``error``."""
        if error.span is not None and error.text in (None, self.text):
            origin, error.span = self.source(error.span.start, error.span.end)
            if error.statement_range is not None:
                begun, statement = self.source(*error.statement_range)
                error.statement_range = (statement.start, statement.end) if begun is origin else None
            error.text, error.file = origin.text, origin.file
        return error

    def _piece(self, at: int) -> Piece:
        found = bisect_right(self.pieces, at, key=lambda piece: piece.at) - 1
        return self.pieces[max(found, 0)]
