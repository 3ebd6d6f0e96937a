"""Shows a result in a cell: as an HTML table, or as text without HTML."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rw_sql.session.results import Rows

_STYLE = "white-space: pre-wrap; text-align: left; vertical-align: top"


class ResultTable:
    """A result that IPython displays; all values are escaped."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def _repr_html_(self) -> str:
        head = "".join(f'<th style="{_STYLE}">{escape(column)}</th>' for column in self._rows.columns)
        body = "".join("<tr>" + "".join(_html_cell(cell) for cell in row) + "</tr>" for row in self._rows.rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><small>{self._rows.count}</small>"

    def __repr__(self) -> str:
        """The same as aligned text."""
        table = [
            self._rows.columns,
            *([cell if cell is not None else "NULL" for cell in row] for row in self._rows.rows),
        ]
        lines = [[cell.replace("\n", " ") for cell in row] for row in table]
        widths = [max(len(row[index]) for row in lines) for index in range(len(self._rows.columns))]
        text = [
            " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in lines
        ]
        text.insert(1, "-+-".join("-" * width for width in widths))
        return "\n".join([*text, f"({self._rows.count})"])


def _html_cell(cell: str | None) -> str:
    return f'<td style="{_STYLE}">{"<i>NULL</i>" if cell is None else escape(cell)}</td>'
