"""Shows a result in a cell's output as an HTML table. Front ends without HTML show the table as text."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from rw_sql.session.visible_text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.session.results import Rows

ROWS_SEEN = 20
"""The number of rows that are visible at once. In HTML, the user can scroll to the other rows; text output omits
them."""

# Every style is inline, because a front end may remove <style> elements, and a notebook has many tables. No colour is
# set, so that the front end's light or dark theme applies.
_BELOW = "caption-side: bottom; text-align: left"
_BOX = "max-height: 36em; overflow: auto"
_HEAD = "position: sticky; top: 0; white-space: nowrap; text-align: {}; vertical-align: bottom"
_TEXT = "white-space: pre-wrap; text-align: left; vertical-align: top"
_LONG, _LONG_WIDTH = 40, "; min-width: 18em"
"""``_LONG_WIDTH`` is the CSS for a column that contains a string of at least ``_LONG`` characters. Without this
minimum width, other wide columns could squeeze the string to one word per line."""

_NUMBER = "white-space: nowrap; text-align: right; vertical-align: top; font-variant-numeric: tabular-nums"
_LINES = "white-space: pre; text-align: left; vertical-align: top; font-family: monospace"


class ResultTable:
    """A result that IPython displays. All values are escaped.

    ``numbers`` contains, for each column, True if the column is numeric and therefore right-aligned. A value with
    several lines, such as a preview, is shown in a fixed-width font. If ``is_plan`` is True, the rows are the result of
    EXPLAIN, and are shown as one text or picture.
    """

    def __init__(self, rows: Rows, numbers: Sequence[bool] = (), *, is_plan: bool = False) -> None:
        self._rows = rows
        self._is_plan = is_plan and len(rows.columns) == 1
        self._numbers = tuple(numbers) or (False,) * len(rows.columns)

    def picture(self) -> dict[str, str] | None:
        """The picture by MIME type, if the result is a picture from EXPLAIN (FORMAT SVG) or EXPLAIN (FORMAT MERMAID);
        otherwise None."""
        cell = self._rows.rows[0][0] if self._is_plan and len(self._rows.rows) == 1 else None
        if cell is None:
            return None
        if cell.startswith("<svg "):
            return {"image/svg+xml": cell, "text/plain": cell}
        return {"text/vnd.mermaid": cell, "text/plain": cell} if cell.startswith("flowchart ") else None

    def _repr_html_(self) -> str:
        head = "".join(
            f'<th style="{_HEAD.format("right" if is_number else "left")}">{escape(column)}</th>'
            for column, is_number in zip(self._rows.columns, self._numbers, strict=True)
        )
        if self._is_plan:
            # The lines of EXPLAIN become one cell, whose columns are aligned only in a fixed-width font.
            text = "\n".join(line or "" for (line,) in self._rows.rows)
            plan = f'<tr><td style="{_LINES}">{escape(text)}</td></tr>'
            count = f"<small>{self._count}</small>" if self._rows.has_more else ""
            return f"<table><thead><tr>{head}</tr></thead><tbody>{plan}</tbody></table>{count}"
        body = "".join(
            "<tr>" + "".join(map(_html_cell, row, self._numbers)) + "</tr>"  # Every row has all columns.
            for row in self._rows.rows
        )
        rows = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
        count = f"<small>{self._count}</small>"
        if len(self._rows.rows) > ROWS_SEEN:
            return f'<div style="{_BOX}"><table>{rows}</table></div>{count}'
        # The row count is inside the table: front ends add space below a table, so a count below it would be closer to
        # the next result.
        return f'<table><caption style="{_BELOW}">{count}</caption>{rows}</table>'

    def __repr__(self) -> str:
        """The table as aligned text."""
        shown = self._rows.rows[:ROWS_SEEN]
        left_out = len(self._rows.rows) - len(shown)
        table = [self._rows.columns, *([cell if cell is not None else "NULL" for cell in row] for row in shown)]
        lines = [[visible(cell).replace("\n", " ") for cell in row] for row in table]
        widths = [max(len(row[index]) for row in lines) for index in range(len(self._rows.columns))]
        text = [
            " | ".join(
                cell.rjust(width) if is_number else cell.ljust(width)
                for cell, width, is_number in zip(row, widths, self._numbers, strict=True)
            ).rstrip()
            for row in lines
        ]
        text.insert(1, "-+-".join("-" * width for width in widths))
        if left_out:
            text.append(f"… {left_out} more")
        return "\n".join([*text, f"({self._count})"])

    @property
    def _count(self) -> str:
        return f"{self._rows.count}; .df has all rows" if self._rows.has_more else self._rows.count


def _html_cell(cell: str | None, is_number: bool) -> str:
    if cell is None:
        return f'<td style="{_NUMBER if is_number else _TEXT}"><i>NULL</i></td>'
    style = _NUMBER if is_number else _LINES if "\n" in cell else _TEXT
    if style is _TEXT and len(cell) > _LONG:
        style += _LONG_WIDTH
    return f'<td style="{style}">{escape(cell)}</td>'
