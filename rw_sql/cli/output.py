"""Prints results and errors: tables that stay readable in a terminal, in a pipe and in a log."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from rich.box import MARKDOWN, ROUNDED
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rw_sql.session.results import Rows

# A pipe has no width: a table gets its full width, and the reading program scrolls or cuts.
_NO_WIDTH = 100_000

_MOST_LINES = 6
"""A result of several columns with a taller cell is printed row by row, one line per column, as psql's ``\\x`` does:
beside such a cell the other cells of its row would be mostly blank."""


def console_for(stream: TextIO | None = None) -> Console:
    """A console on ``stream`` (default: standard output), as wide as its terminal; without a terminal its width is
    unlimited."""
    stream = stream or sys.stdout
    if stream.isatty():
        return Console(file=stream, highlight=False)
    return Console(file=stream, highlight=False, width=_NO_WIDTH, color_system=None)


def print_rows(console: Console, rows: Rows) -> None:
    """Prints a result as a table with its number of rows; a result without columns prints nothing.

    Rows with tall cells are printed one below the other, with one line per column.
    """
    if not rows.columns:
        return
    if len(rows.columns) > 1 and any((cell or "").count("\n") >= _MOST_LINES for row in rows.rows for cell in row):
        for number, row in enumerate(rows.rows, start=1):
            console.print(Text(f"-[ {number} ]-", style="dim"))
            console.print(_record(rows.columns, row))
    else:
        console.print(_table(rows, is_terminal=console.is_terminal))
    console.print(Text(f"({rows.count})", style="dim"))


def _table(rows: Rows, *, is_terminal: bool) -> Table:
    table = Table(
        box=ROUNDED if is_terminal else MARKDOWN,
        show_edge=is_terminal,
        header_style="bold" if is_terminal else "",
        show_lines=is_terminal and any("\n" in (cell or "") for row in rows.rows for cell in row),
    )
    for index, column in enumerate(rows.columns):
        is_numeric = _is_numeric(row[index] for row in rows.rows)
        table.add_column(Text(column), justify="right" if is_numeric else "left", overflow="fold")
    for row in rows.rows:
        table.add_row(*(Text("NULL", style="dim") if cell is None else Text(cell) for cell in row))
    return table


def _record(columns: Sequence[str], row: Sequence[str | None]) -> Table:
    table = Table(box=MARKDOWN, show_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for column, cell in zip(columns, row, strict=True):
        table.add_row(Text(column), Text("NULL", style="dim") if cell is None else Text(cell))
    return table


def _is_numeric(cells: Iterable[str | None]) -> bool:
    known = [cell for cell in cells if cell is not None]
    return bool(known) and all(_reads_as_number(cell) for cell in known)


def _reads_as_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def print_error(message: str) -> None:
    """Prints an error's whole text to standard error; its first line is red in a terminal."""
    console = console_for(sys.stderr)
    first, _, rest = message.partition("\n")
    console.print(Text(first, style="bold red"), soft_wrap=True)
    if rest:
        console.print(Text(rest), soft_wrap=True)
