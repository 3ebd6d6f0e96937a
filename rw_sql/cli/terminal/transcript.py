"""Prints the transcript of a running script. The transcript contains each statement, the question for its confirmation,
and its rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rich.text import Text

from rw_sql.cli.terminal.output import print_rows
from rw_sql.masking import masked
from rw_sql.session.results import read_values
from rw_sql.syntax.lexing.first_words import is_explain

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from rich.console import Console

    from rw_sql.cli.terminal.question import Answer
    from rw_sql.session.attach import Question
    from rw_sql.session.results import Rows, Values
    from rw_sql.session.scripts import StatementText


class Transcript:
    """Prints the transcript of a running script. The caller calls ``begin`` before each statement. The function
    ``run_statements`` calls ``answer`` and ``show``."""

    def __init__(
        self,
        console: Console,
        answer: Answer | None,
        *,
        is_quiet: bool = False,
        hide: Callable[[str], str] = masked,
        hide_values: Callable[[str], str] = str,
    ) -> None:
        """``hide`` replaces the secrets in a text with asterisks. ``hide_values`` replaces only the values of secret
        variables, in texts that quote a statement but are not statements, such as a preview. If ``answer`` is None, no
        question can be answered. If ``is_quiet`` is true, the texts of statements are not printed."""
        self._console = console
        self._answer = answer
        self._is_quiet = is_quiet
        self._hide = hide
        self._hide_values = hide_values
        self._is_told = False

    def begin(self) -> None:
        """Begins the next statement, whose text has not been printed yet. The call is necessary because an error may
        end a statement after its text was printed with its question. Without the call, the text of the next statement
        would then be omitted."""
        self._is_told = False

    @property
    def answer(self) -> Answer | None:
        """The function that answers the question before an unsafe statement; None if no question can be answered. The
        function prints the statement before the preview."""
        return None if self._answer is None else self._ask

    def show(self, statement: StatementText, result: DataFrame | None) -> None:
        """Prints a statement and its rows. If the statement was already printed with its question, prints only the
        rows."""
        self.show_outcome(statement.text, None if result is None else read_values(result))

    def show_outcome(self, text: str, result: Values | None, plan: tuple[str, ...] | None = None) -> None:
        """Prints a statement's text, its rows (``result``) and its predicted effect (``plan``), if they are given.
        Omits the text if it was already printed with the statement's question."""
        if not self._is_told:
            self._tell(text)
        self._is_told = False
        if result is not None:
            rows, is_plan = result.as_text(), is_explain(text)
            print_rows(self._console, self._without_secrets(rows) if is_plan else rows, is_plan=is_plan)
        for line in plan or ():
            self.say(line)
        self._console.print()

    def _without_secrets(self, rows: Rows) -> Rows:
        """Returns the rows of an EXPLAIN, which may quote the statement. Asterisks replace the values of secret
        variables."""
        hidden = (tuple(None if cell is None else self._hide_values(cell) for cell in row) for row in rows.rows)
        return replace(rows, rows=tuple(hidden))

    def say(self, text: str) -> None:
        """Prints ``text`` with asterisks in place of its secrets."""
        self._console.print(Text(self._hide(text)))

    def _ask(self, question: Question) -> bool:
        assert self._answer is not None
        if not self._is_told:
            self._tell(question.statement)
        self._is_told = True
        return self._answer(replace(question, preview=self._hide_values(question.preview)))

    def _tell(self, statement: str) -> None:
        if not self._is_quiet:
            self._console.print(Text(self._hide(statement.strip()), style="cyan"))
