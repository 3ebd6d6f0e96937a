"""Compares expected with actual rows, and renders missing, unexpected and changed rows in aligned columns."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = tuple[str, ...]
"""A row, as the texts of its values."""

_MOST_ROWS = 40
_WIDEST = 60
_MISSING, _UNEXPECTED, _CHANGED = "-", "+", "~"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The difference between the expected and the found rows. ``changed`` contains pairs: an expected row that was not
    found, and a similar unexpected row. ``equal`` is the number of expected rows that were found."""

    columns: Row
    missing: tuple[Row, ...]
    unexpected: tuple[Row, ...]
    changed: tuple[tuple[Row, Row], ...]
    equal: int

    @property
    def is_empty(self) -> bool:
        """True if the expected and the found rows are the same."""
        return not (self.missing or self.unexpected or self.changed)

    @property
    def summary(self) -> str:
        """Returns one line such as ``1 missing, 2 changed rows; 3 as expected``."""
        counts = (("missing", self.missing), ("unexpected", self.unexpected), ("changed", self.changed))
        told = [f"{len(rows)} {word}" for word, rows in counts if rows]
        total = sum(len(rows) for _, rows in counts)
        return f"{', '.join(told)} row{'' if total == 1 else 's'}; {self.equal} as expected"

    def render(self) -> str:
        """Returns a table in which ``-`` marks missing rows, ``+`` marks unexpected rows, and ``~`` marks changed rows.
        A changed cell is shown as ``expected → found``. If there are more than _MOST_ROWS such rows, the table ends
        with the number of the others."""
        lines = [(_CHANGED, self._merged(wanted, found)) for wanted, found in self.changed]
        lines += [(_MISSING, row) for row in self.missing]
        lines += [(_UNEXPECTED, row) for row in self.unexpected]
        shown = [(mark, tuple(map(_cut, row))) for mark, row in lines[:_MOST_ROWS]]
        widths = [max(map(len, cells)) for cells in zip(self.columns, *(row for _, row in shown), strict=True)]
        text = [_line(" ", self.columns, widths), "  " + "-+-".join("-" * width for width in widths)]
        text += [_line(mark, row, widths) for mark, row in shown]
        if len(lines) > _MOST_ROWS:
            text.append(f"  … and {len(lines) - _MOST_ROWS} more")
        marks = {mark for mark, _ in lines}
        legend = ((_CHANGED, "changed, expected → found"), (_MISSING, "missing"), (_UNEXPECTED, "unexpected"))
        text.append("  (" + "; ".join(f"{mark} {word}" for mark, word in legend if mark in marks) + ")")
        return "\n".join(line.rstrip() for line in text)

    @staticmethod
    def _merged(wanted: Row, found: Row) -> Row:
        return tuple(
            a if a == b else f"{_cut(a, _WIDEST // 2)} → {_cut(b, _WIDEST // 2)}"
            for a, b in zip(wanted, found, strict=True)
        )


def compare_rows(columns: Sequence[str], expected: Sequence[Row], found: Sequence[Row]) -> Difference:
    """Compares rows regardless of their order. A row that occurs several times must be found as many times as
    expected."""
    wanted, had = Counter(expected), Counter(found)
    missing, unexpected = list((wanted - had).elements()), list((had - wanted).elements())
    changed: list[tuple[Row, Row]] = []
    for row in list(missing):
        near = max(unexpected, key=lambda other: _alike(row, other), default=None)
        # Two rows count as similar if more than half of their columns are equal, or if their first columns are equal.
        # The first column is the key of most views.
        if near is not None and (_alike(row, near) * 2 > len(columns) or (row[0] == near[0] and len(columns) > 1)):
            changed.append((row, near))
            missing.remove(row)
            unexpected.remove(near)
    return Difference(
        columns=tuple(columns),
        missing=tuple(missing),
        unexpected=tuple(unexpected),
        changed=tuple(changed),
        equal=(wanted & had).total(),
    )


def compare_lists(columns: Sequence[str], expected: Sequence[Row], found: Sequence[Row]) -> str | None:
    """Compares rows whose order matters. Returns the difference as text; None if the rows are the same."""
    if list(expected) == list(found):
        return None
    if sorted(expected) != sorted(found):
        return compare_rows(columns, expected, found).render()
    at = next(i for i, (wanted, had) in enumerate(zip(expected, found, strict=True)) if wanted != had)
    had, wanted = ", ".join(found[at]), ", ".join(expected[at])
    return f"the rows are as expected, but in another order: row {at + 1} is ({had}), not ({wanted})"


def _alike(row: Row, other: Row) -> int:
    return sum(a == b for a, b in zip(row, other, strict=True)) * 2 + (row[0] == other[0])


def _line(mark: str, cells: Row, widths: Sequence[int]) -> str:
    return f"{mark} " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))


def _cut(cell: str, most: int = _WIDEST + 3) -> str:
    cell = cell.replace("\n", "\\n")
    return cell if len(cell) <= most else cell[: most - 1] + "…"
