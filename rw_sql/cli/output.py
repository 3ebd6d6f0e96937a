"""How results and errors look: tables that stay readable in a terminal, in a pipe and in a log."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from rich.box import MARKDOWN, ROUNDED
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

MOST_ROWS = 1000
"""How many rows of a result are shown; a script that wants more writes them to a table."""

# A pipe has no width: a table is laid out as wide as it is, and whoever reads it scrolls or cuts.
_NO_WIDTH = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A result as it is shown: every cell is text, None where the value is NULL. ``has_more``: the result goes on."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]
    has_more: bool = False

    @property
    def count(self) -> str:
        """How many rows there are, in words: ``3 rows``, ``the first 1000 rows``."""
        count = f"{len(self.rows)} row{'' if len(self.rows) == 1 else 's'}"
        return f"the first {count}" if self.has_more else count


def read_rows(result: DataFrame, *, most: int = MOST_ROWS) -> Rows:
    """Runs a query's DataFrame and takes at most ``most`` rows of it."""
    taken = result.take(most + 1)
    return Rows(
        columns=tuple(result.columns),
        rows=tuple(tuple(cell_text(value) for value in row) for row in taken[:most]),
        has_more=len(taken) > most,
    )


def cell_text(value: Any) -> str | None:
    """A value as a table shows it: booleans and NULL as SQL writes them, bytes in hexadecimal, arrays in brackets."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes | bytearray):
        return "\\x" + value.hex()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{cell_text(key)}: {_inner(item)}" for key, item in value.items()) + "}"
    if isinstance(value, tuple) and hasattr(value, "asDict"):
        return cell_text(value.asDict())
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_inner(item) for item in value) + "]"
    return str(value)


def _inner(value: Any) -> str:
    text = cell_text(value)
    return "NULL" if text is None else text


def console_for(stream: TextIO | None = None) -> Console:
    """A console on ``stream`` (else standard output): as wide as its terminal, without limit where there is none."""
    stream = stream or sys.stdout
    if stream.isatty():
        return Console(file=stream, highlight=False)
    return Console(file=stream, highlight=False, width=_NO_WIDTH, color_system=None)


def print_rows(console: Console, rows: Rows) -> None:
    """Prints a result as a table and how many rows it has; a result without columns prints nothing."""
    if not rows.columns:
        return
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
