"""Implements ``%%rw``, which runs the statements in a cell. Results are shown as tables, and errors without a
traceback."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import no_var_expand
from IPython.display import display

from rw_sql.errors import NO_SESSION, SqlError
from rw_sql.magics.arguments import USAGE, Arguments, read_arguments, read_assignment
from rw_sql.magics.result import CellResult
from rw_sql.magics.variables import CellVariables, explain_type
from rw_sql.runtime.support.text_files import read_text_file
from rw_sql.syntax import split_script
from rw_sql.syntax.lexing.first_words import is_explain
from rw_sql.syntax.variables.expand import expand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.session.attach import Question
    from rw_sql.session.scripts import StatementText

_WATCH_SECONDS, _MOST_WATCH_SECONDS = 2.0, 86_400.0


class StatementMagic:
    """Runs statements in the notebook's session: the session in the variable ``spark``, or else Spark's active
    session. If necessary, attaches rw_sql to this session."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._settings: dict[str, str | None] = {}

    # Without this decorator, IPython would replace $errors and {…} in a statement with values of Python variables.
    @no_var_expand  # type: ignore[untyped-decorator, unused-ignore]
    def run(self, line: str, cell: str | None = None) -> CellResult | None:
        """Runs the statement on a ``%rw`` line, or the statements in a ``%%rw`` cell. Shows each result when it
        arrives.

        Returns the last result, and IPython then shows it. ``NAME <<`` assigns the last result to a variable instead.
        ``-o NAME`` assigns the DataFrame of the last result to a variable, and the result is still shown. ``:name``
        refers to a variable from ``--var``, to a variable from ``\\set`` in this or an earlier cell, or to a variable
        of the notebook. ``%rw watch [SECONDS]`` shows the jobs until the user interrupts the cell.
        """
        if cell is None:
            words = line.split()
            if words[:1] == ["watch"] and len(words) <= 2:
                self._watch(words[1:])
                return None
            result_name, text = read_assignment(line)
            arguments = Arguments(result_name=result_name)
        else:
            with self._aborting_block():
                arguments = read_arguments(line)
            text = cell
        last, is_shown = self._run_statements(text, arguments)
        self._assign(last, arguments)
        return None if is_shown or arguments.result_name is not None else last

    def _run_statements(self, text: str, arguments: Arguments) -> tuple[CellResult | None, bool]:
        """Runs statements. Shows each result, unless the last statement returns it.

        Returns the last result (None if there is none), and True if this result has already been shown.
        """
        from rw_sql.runtime.spark.interrupts import StatementInterrupted
        from rw_sql.session.attach import attach, attached_to
        from rw_sql.session.scripts import interrupted_at, run_statements

        done = 0
        last: CellResult | None = None
        is_shown = False

        def show(statement: StatementText, result: DataFrame | None) -> None:
            nonlocal done, last, is_shown
            found = None
            if result is not None and result.columns:
                found = CellResult(result, is_plan=is_explain(statement.text))
            done += 1
            if found is not None:
                last, is_shown = found, done < len(parts)
                if is_shown:
                    show_result: Callable[[object], object] = display  # IPython has no type annotation for display.
                    show_result(found)

        own = {**self._settings, **arguments.variables}
        known = CellVariables(own, self._shell.user_ns)
        with self._aborting_block():
            try:
                expanded = expand(text, known, read_text_file)
            except SqlError as error:
                explain_type(error, known)
                raise
            parts = split_script(expanded.text)
        self._settings.update(expanded.settings)
        spark = self._session()
        if attached_to(spark) is None:
            attach(spark)
        try:
            run_statements(
                spark,
                expanded.text,
                answer=choose_answer(arguments, can_ask=self._can_ask()),
                on_result=show,
            )
        except SqlError as error:
            raise expanded.locate(error) from error.__cause__
        except KeyboardInterrupt as interrupt:
            span = expanded.source(parts[done].start, parts[done].start + 1)[1] if done < len(parts) else None
            place = "" if span is None else f"line {span.line}"
            raise StatementInterrupted(interrupted_at(done, len(parts), place, str(interrupt))) from None
        return last, is_shown

    def _assign(self, last: CellResult | None, arguments: Arguments) -> None:
        """Assigns the last result and its DataFrame to the variables that the options name for them."""
        named = arguments.result_name or arguments.frame_name
        if last is None:
            if named:
                raise UsageError(f"no statement of the cell returns rows, so {named} is not assigned")
            return
        if arguments.result_name is not None:
            self._shell.user_ns[arguments.result_name] = last
        if arguments.frame_name is not None:
            self._shell.user_ns[arguments.frame_name] = last.df

    def _watch(self, words: list[str]) -> None:
        from rw_sql.magics.watch import watch
        from rw_sql.session.attach import attach, attached_to

        try:
            seconds = min(max(0.5, float(words[0])), _MOST_WATCH_SECONDS) if words else _WATCH_SECONDS
        except ValueError:
            raise UsageError(f"%rw watch takes a number of seconds, not {words[0]!r}; usage: {USAGE}") from None
        spark = self._session()
        attached = attached_to(spark) or attach(spark)
        watch(attached.served().status, seconds)

    @contextmanager
    def _aborting_block(self) -> Iterator[None]:
        """A context manager that aborts an open BEGIN UNSAFE block after an error. Otherwise, a later COMMIT would
        run the block without the failed statement."""
        try:
            yield
        except BaseException:
            from rw_sql.session.attach import attached_to

            spark = self._find_session()
            attached = None if spark is None else attached_to(spark)
            if attached is not None:
                attached.abort_block()
            raise

    def _find_session(self) -> SparkSession | None:
        from pyspark.sql import SparkSession

        named = self._shell.user_ns.get("spark")
        is_session = isinstance(named, SparkSession) or type(named).__module__.startswith("pyspark.sql.connect")
        return named if is_session else SparkSession.getActiveSession()

    def _session(self) -> SparkSession:
        spark = self._find_session()
        if spark is None:
            raise SqlError(
                NO_SESSION, "this notebook has no Spark session", hint="import rw_sql; spark = rw_sql.connect()"
            )
        return spark

    def _can_ask(self) -> bool:
        """True if a user can answer a question: the notebook's front end allows input, or IPython runs in a
        terminal."""
        kernel = getattr(self._shell, "kernel", None)
        if kernel is None:
            return sys.stdin.isatty()
        return bool(kernel.get_parent("shell").get("content", {}).get("allow_stdin", False))


def choose_answer(arguments: Arguments, *, can_ask: bool) -> Callable[[Question], bool] | None:
    """Returns the function that confirms or rejects a cell's unsafe statements. The cell's options can confirm a
    statement. If they do not and ``can_ask`` is True, the function asks the user. Returns None if the options
    confirm nothing and ``can_ask`` is False."""
    if not (arguments.is_confirmed or arguments.tokens or can_ask):
        return None

    def answer(question: Question) -> bool:
        print(question.preview)
        is_yes = arguments.is_confirmed and question.takes_yes_beforehand
        if is_yes or not question.tokens.isdisjoint(arguments.tokens):
            return True
        try:
            return can_ask and input("Go ahead? Type yes: ").strip().lower() in {"y", "yes"}
        except (KeyboardInterrupt, EOFError):
            return False

    return answer
