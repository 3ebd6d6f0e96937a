"""What running a script looks like: each statement, the question it raised, and its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from rw_sql.cli.output import print_rows
from rw_sql.session.results import read_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from rich.console import Console

    from rw_sql.cli.question import Answer
    from rw_sql.session.attach import Question, StatementText


class Transcript:
    """Prints a script as it runs. ``answer`` and ``show`` are what ``run_statements`` calls."""

    def __init__(self, console: Console, answer: Answer | None, *, is_quiet: bool = False) -> None:
        self._console = console
        self._answer = answer
        self._is_quiet = is_quiet
        self._is_told = False
        self.done = 0
        """How many statements have run, whose rows are being shown at least."""

    @property
    def answer(self) -> Answer | None:
        """Who answers before an unsafe statement; the statement is printed before its preview."""
        return None if self._answer is None else self._ask

    def show(self, statement: StatementText, result: DataFrame | None) -> None:
        """Prints a statement, unless its question did, and its rows."""
        if not self._is_told:
            self._tell(statement.text)
        self._is_told = False
        rows = None if result is None else read_rows(result)
        self.done += 1
        if rows is not None:
            print_rows(self._console, rows)
        self._console.print()

    def _ask(self, question: Question) -> bool:
        assert self._answer is not None
        if not self._is_told:
            self._tell(question.statement)
        self._is_told = True
        return self._answer(question)

    def _tell(self, statement: str) -> None:
        if not self._is_quiet:
            self._console.print(Text(statement.strip(), style="cyan"))
