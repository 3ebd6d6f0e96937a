"""Prints results and errors. Tables are readable in a terminal, in a pipe and in a log."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TextIO

from rich.box import MARKDOWN, ROUNDED, SIMPLE_HEAD
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.table import Table
from rich.text import Text

from rw_sql.session.visible_text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rw_sql.session.results import Rows

# In a pipe, a table is as wide as its content. The program that reads the pipe can scroll or cut the table.
_NO_WIDTH = 100_000

_MOST_LINES = 6
"""The maximum number of lines of a cell in a table with several columns.

A result with a taller cell is printed row by row, with one line per column, as with psql's ``\\x``. In a table, most of
the space beside the tall cell would be blank.
"""


_WIDEST_WORD = 24
"""A word in a cell with at most this many characters is never broken to make a table fit.

Longer words in cells may be broken. Headers are never broken.
"""

_PLACE, _CARET = re.compile(r"LINE \d+: "), re.compile(r"( *)(\^+)")
_CUT = "…"

Layout = Literal["auto", "table", "records"]
"""The form in which a result is printed. With ``records``, a result is printed row by row, with one line per column.
With ``table``, a result is always printed as a table. With ``auto``, a result is printed as a table unless the table
would be too wide or a cell would be too tall. In these cases, the result is printed row by row."""


class _VisibleConsole(Console):
    """A console that prints control characters as escapes. The caller of ``print`` must replace the control characters
    in the cells of a table, because the widths of the columns depend on the replaced text."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*map(_visible, objects), **options)


def _visible(part: object) -> object:
    if isinstance(part, str):
        return visible(part)
    if isinstance(part, Text) and (shown := visible(part.plain)) != part.plain:
        return Text(shown, style=part.style)
    return part


def console_for(stream: TextIO | None = None) -> Console:
    """A console on ``stream`` (default: standard output).

    The console is as wide as the terminal. If there is no terminal, the console's width is unlimited.
    """
    stream = stream or sys.stdout
    if stream.isatty():
        console = _VisibleConsole(file=stream, highlight=False)
        if console.is_dumb_terminal:  # rich assumes a terminal of 80 columns unless both sizes are set
            console.size = shutil.get_terminal_size()
        return console
    # Without ``force_terminal=False``, rich would treat any stream as a terminal if FORCE_COLOR or TTY_COMPATIBLE is
    # set.
    return _VisibleConsole(file=stream, force_terminal=False, highlight=False, width=_NO_WIDTH, color_system=None)


def print_rows(console: Console, rows: Rows, *, layout: Layout = "auto", is_plan: bool = False) -> None:
    """Prints a result, followed by the number of rows. Prints nothing if the result has no columns.

    ``is_plan`` is True if the rows are the result of EXPLAIN. A terminal shows such rows as text without a frame,
    unless ``layout`` is ``records``.

    With the layout ``auto``, a table that is too wide is printed without lines between its columns. If this narrower
    table is still too wide, or if a cell is too tall, a result with several columns is printed row by row.
    """
    if not rows.columns:
        return
    is_plan = is_plan and len(rows.columns) == 1
    if is_plan and len(rows.rows) == 1 and "\n" in (rows.rows[0][0] or ""):
        # The result of EXPLAIN as JSON, Mermaid or SVG is meant to be copied or written to a file.
        console.print(Text(rows.rows[0][0] or ""), soft_wrap=True)
        return
    if is_plan and console.is_terminal and layout != "records":
        _print_plan(console, rows)
        return
    rows = _with_visible_cells(rows)
    widths = _column_widths(rows, console.width)
    is_compact = widths is None and layout == "auto"
    if is_compact:
        widths = _column_widths(rows, console.width, is_compact=True)
    if layout == "records" or (layout == "auto" and len(rows.columns) > 1 and (widths is None or _is_tall(rows))):
        for number, row in enumerate(rows.rows, start=1):
            console.print(Text(f"-[ {number} ]-", style="dim"))
            console.print(_record(rows.columns, row, console.width))
    else:
        console.print(_table(rows, widths, is_terminal=console.is_terminal, is_compact=is_compact))
    console.print(Text(f"({rows.count})", style="dim"))


def _with_visible_cells(rows: Rows) -> Rows:
    cells = tuple(tuple(None if cell is None else visible(cell) for cell in row) for row in rows.rows)
    return replace(rows, columns=tuple(map(visible, rows.columns)), rows=cells)


def fits(rows: Rows, width: int) -> bool:
    """True if a table without lines between its columns fits into this width with unbroken headers and readable
    cells."""
    return _column_widths(rows, width, is_compact=True) is not None


def _print_plan(console: Console, rows: Rows) -> None:
    """Prints the lines of EXPLAIN without a frame. Long lines are wrapped, and their continuations are indented."""
    for (line,) in rows.rows:
        indent = len(line or "") - len((line or "").lstrip())
        parts = textwrap.wrap(
            line or "",
            max(console.width, 2 * indent + _WIDEST_WORD),
            subsequent_indent=" " * (indent + 4),
            break_long_words=False,
            break_on_hyphens=False,
        )
        console.print(Text("\n".join(parts)), soft_wrap=True)
    if rows.has_more:
        console.print(Text(f"({rows.count})", style="dim"))


def _is_tall(rows: Rows) -> bool:
    return any((cell or "").count("\n") >= _MOST_LINES for row in rows.rows for cell in row)


def _column_widths(rows: Rows, width: int, *, is_compact: bool = False) -> list[int] | None:
    """The widths of the columns in a table of at most ``width`` characters. Returns None if the headers do not fit, or
    if cells would be too narrow to read.

    A compact table has two spaces between its columns in place of lines.
    """
    least, wanted = [], []
    for index, column in enumerate(rows.columns):
        cells = ["NULL" if row[index] is None else str(row[index]) for row in rows.rows]
        header = cell_len(column)
        words = max((cell_len(word) for cell in cells for word in cell.split()), default=0)
        lines = max((cell_len(line) for cell in cells for line in cell.splitlines()), default=0)
        least.append(max(header, min(words, _WIDEST_WORD)))
        wanted.append(max(header, lines))
    between = 2 * len(rows.columns) - 2 if is_compact else 3 * len(rows.columns) + 1
    left = width - between - sum(least)
    if left < 0:
        return None
    # The narrowest columns get their full width, and the others share the rest.
    order = sorted(range(len(least)), key=lambda index: wanted[index] - least[index])
    for position, index in enumerate(order):
        more = min(wanted[index] - least[index], left // (len(order) - position))
        least[index] += more
        left -= more
    return least


def _table(rows: Rows, widths: Sequence[int] | None, *, is_terminal: bool, is_compact: bool) -> Table:
    table = Table(
        box=SIMPLE_HEAD if is_compact else ROUNDED if is_terminal else MARKDOWN,
        show_edge=is_terminal and not is_compact,
        pad_edge=not is_compact,
        padding=(0, 1, 0, 0) if is_compact else (0, 1),
        header_style="bold" if is_terminal else "",
        show_lines=is_terminal and any("\n" in (cell or "") for row in rows.rows for cell in row),
    )
    for index, column in enumerate(rows.columns):
        is_numeric = _is_numeric(row[index] for row in rows.rows)
        width = None if widths is None else widths[index]
        table.add_column(Text(column), justify="right" if is_numeric else "left", overflow="fold", width=width)
    for row in rows.rows:
        table.add_row(*(Text("NULL", style="dim") if cell is None else Text(cell) for cell in row))
    return table


def _record(columns: Sequence[str], row: Sequence[str | None], width: int) -> Table:
    table = Table(box=MARKDOWN, show_edge=False, show_header=False)
    is_whole = max(map(cell_len, columns)) <= width - _WIDEST_WORD
    table.add_column(style="bold", no_wrap=is_whole, overflow="fold")
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
    """Prints an error's full text to standard error. In a terminal, the first line is red, and a quoted line that is
    wider than the terminal is shortened to the part around the caret."""
    console, message = console_for(sys.stderr), visible(message)
    if console.is_terminal:
        message = _with_fitting_place(message, console.width)
    first, _, rest = message.partition("\n")
    console.print(Text(first, style="bold red"), soft_wrap=True)
    if rest:
        console.print(Text(rest), soft_wrap=True)


def print_cancelled(message: str) -> None:
    """Prints the message after Ctrl-C. In a terminal, the message replaces the ``^C`` that the terminal has written."""
    console = console_for(sys.stderr)
    if console.is_terminal and not console.is_dumb_terminal:
        console.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))
    print_error(message)


def _with_fitting_place(message: str, width: int) -> str:
    """The text of an error, shortened so that the quoted line and the caret below it fit into a terminal.

    If the terminal wrapped the quoted line, the caret would no longer be below the word that it marks.
    """
    lines = message.split("\n")
    for at in range(len(lines) - 1):
        place, caret = _PLACE.match(lines[at]), _CARET.fullmatch(lines[at + 1])
        if place is None or caret is None or cell_len(lines[at]) <= width:
            continue
        label, quoted = place[0], lines[at][place.end() :]
        start, room = len(caret[1]) - len(label), width - len(label) - len(_CUT)
        marked = min(len(caret[2]), max(1, room - len(_CUT)))
        left = max(0, min(start + marked - room + len(_CUT), start))
        shown = (_CUT if left else "") + quoted[left + (len(_CUT) if left else 0) :]
        shown = set_cell_size(shown, room) + _CUT if cell_len(shown) > room + len(_CUT) else shown
        lines[at : at + 2] = [label + shown, " " * (len(label) + start - left) + "^" * marked]
    return "\n".join(lines)
