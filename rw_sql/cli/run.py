"""``rw-sql run``: a script's statements, one by one, until the first error."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from rw_sql.cli.output import console_for, print_rows
from rw_sql.cli.question import choose_answer
from rw_sql.cli.spark_start import spark_for
from rw_sql.errors import FILE_UNREADABLE, SqlError
from rw_sql.results import read_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from rw_sql.session import StatementText


def run_file(
    script: str, *, warehouse: str | None, is_confirmed: bool, tokens: frozenset[str], is_quiet: bool = False
) -> None:
    """Runs the statements of a file (``-``: of standard input) and prints each result as it comes.

    Raises SqlError at the first statement that fails, located in the script; those before it stay done.
    """
    text, name = read_script(script)
    console = console_for()
    answer = choose_answer(console, is_confirmed=is_confirmed, tokens=tokens)

    def show(statement: StatementText, result: DataFrame | None) -> None:
        if not is_quiet:
            console.print(Text(statement.text.strip(), style="cyan"))
        if result is not None:
            print_rows(console, read_rows(result))
        console.print()

    with spark_for(warehouse) as spark:
        from rw_sql.scripts import run_statements

        run_statements(spark, text, name, answer=answer, on_result=show)


def read_script(script: str) -> tuple[str, str | None]:
    """A script's text and the name that errors call it by; raises SqlError RW408 where it cannot be read."""
    if script == "-":
        return sys.stdin.read(), None
    try:
        return Path(script).read_text(encoding="utf-8"), script
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SqlError(FILE_UNREADABLE, f'script "{script}" cannot be read: {reason}') from error
