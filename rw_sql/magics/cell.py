"""``%%rw``: runs statements in a cell, shows results as tables and errors without a traceback."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.display import display

from rw_sql.errors import NO_SESSION, SqlError
from rw_sql.magics.bar import ProgressBars
from rw_sql.magics.table import ResultTable
from rw_sql.magics.variables import CellVariables
from rw_sql.runtime.support.text_files import read_text_file
from rw_sql.session.results import read_rows
from rw_sql.syntax import split_script
from rw_sql.syntax.variables.expand import expand
from rw_sql.syntax.variables.references import NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.session.attach import Question
    from rw_sql.session.scripts import StatementText

_USAGE = "%%rw [--yes] [--confirm TOKEN] [--var NAME=VALUE], then statements; or %rw STATEMENT"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arguments:
    is_confirmed: bool = False
    tokens: frozenset[str] = frozenset()
    variables: Mapping[str, str] = field(default_factory=dict)


def _read_arguments(line: str) -> _Arguments:
    words = shlex.split(line)
    tokens: set[str] = set()
    variables: dict[str, str] = {}
    is_confirmed = False
    while words:
        match words.pop(0):
            case "--yes":
                is_confirmed = True
            case "--confirm" if words:
                tokens.add(words.pop(0))
            case "--var" if words:
                name, equals, value = words.pop(0).partition("=")
                if not equals or not NAME.match(name):
                    raise UsageError(f"--var takes NAME=VALUE; usage: {_USAGE}")
                variables[name] = value
            case other:
                raise UsageError(f"%%rw does not know {other!r}; usage: {_USAGE}")
    return _Arguments(is_confirmed=is_confirmed, tokens=frozenset(tokens), variables=variables)


class StatementMagic:
    """Runs statements in the notebook's attached session: the variable ``spark``, else the active session."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._settings: dict[str, str | None] = {}

    def run(self, line: str, cell: str | None = None) -> None:
        """Runs the statement on the line, or the cell's statements; shows each result as it arrives.

        ``:name`` is a variable: from ``--var``, from ``\\set`` in this or an earlier cell, or of the notebook.
        """
        from rw_sql.runtime.spark.interrupts import StatementInterrupted
        from rw_sql.session.scripts import interrupted_at, run_statements

        arguments = _Arguments() if cell is None else _read_arguments(line)
        done = 0

        def show(_statement: StatementText, result: DataFrame | None) -> None:
            nonlocal done
            rows = read_rows(result) if result is not None and result.columns else None
            done += 1
            if rows is not None:
                show_table: Callable[[object], object] = display  # IPython does not type it.
                show_table(ResultTable(rows))

        own = {**self._settings, **arguments.variables}
        known = CellVariables(own, self._shell.user_ns)
        expanded = expand(line if cell is None else cell, known, read_text_file)
        self._settings.update(expanded.settings)
        parts = split_script(expanded.text)
        try:
            run_statements(
                self._session(),
                expanded.text,
                answer=self._choose_answer(arguments),
                on_result=show,
                on_progress=ProgressBars().tell,
            )
        except SqlError as error:
            raise expanded.locate(error) from error.__cause__
        except KeyboardInterrupt as interrupt:
            span = expanded.source(parts[done].start, parts[done].start + 1)[1] if done < len(parts) else None
            place = "" if span is None else f"line {span.line}"
            raise StatementInterrupted(interrupted_at(done, len(parts), place, str(interrupt))) from None

    def _session(self) -> SparkSession:
        from pyspark.sql import SparkSession

        named = self._shell.user_ns.get("spark")
        spark = named if isinstance(named, SparkSession) else SparkSession.getActiveSession()
        if spark is None:
            raise SqlError(
                NO_SESSION, "this notebook has no Spark session", hint="import rw_sql; spark = rw_sql.connect()"
            )
        return spark

    def _choose_answer(self, arguments: _Arguments) -> Callable[[Question], bool] | None:
        can_ask = self._can_ask()
        if not (arguments.is_confirmed or arguments.tokens or can_ask):
            return None

        def answer(question: Question) -> bool:
            print(question.preview)
            is_yes = arguments.is_confirmed and question.takes_yes_beforehand
            if is_yes or question.token in arguments.tokens:
                return True
            try:
                return can_ask and input("Go ahead? Type yes: ").strip().lower() in {"y", "yes"}
            except KeyboardInterrupt:
                return False

        return answer

    def _can_ask(self) -> bool:
        """True if a person can answer: the front end's request allows input, or IPython runs in a terminal."""
        kernel = getattr(self._shell, "kernel", None)
        if kernel is None:
            return sys.stdin.isatty()
        return bool(kernel.get_parent("shell").get("content", {}).get("allow_stdin", False))
