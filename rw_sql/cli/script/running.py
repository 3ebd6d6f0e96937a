"""Runs or explains the statements of scripts one by one, and records their results."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.text import Text

from rw_sql.cli.empty_catalog import EmptyCatalog
from rw_sql.cli.open_block import open_block
from rw_sql.cli.script.report import RunReport, StatementRun, status_of
from rw_sql.cli.spark_start import STARTING, spark_for
from rw_sql.cli.terminal.output import console_for, print_cancelled, print_error
from rw_sql.cli.terminal.question import choose_answer
from rw_sql.cli.terminal.status_line import Doing, StatusLine, own_stderr
from rw_sql.cli.terminal.transcript import Transcript
from rw_sql.errors import SqlError
from rw_sql.session.results import read_values
from rw_sql.syntax import could_be_ours, route

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from rw_sql.cli.script.loading import Script, SecretHider
    from rw_sql.cli.terminal.status_line import Progress
    from rw_sql.session.attach import Attached, Question
    from rw_sql.session.results import Values
    from rw_sql.syntax import ScriptStatement

OUTPUTS = ("text", "json", "junit")

_NOT_RUN = "a dry run does not run Spark's statements"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of a run. If ``output`` is not ``text``, only the report is written to standard output."""

    warehouse: str | None = None
    is_confirmed: bool = False
    tokens: frozenset[str] = frozenset()
    is_quiet: bool = False
    keeps_going: bool = False
    is_dry: bool = False
    output: str = "text"


def run_scripts(scripts: Sequence[Script], options: RunOptions, hide: SecretHider) -> RunReport:
    """Runs the scripts in the order given, and prints each result and error as soon as it is known. Unless
    ``keeps_going`` is set, the run stops at the first error. The report contains this error."""
    is_text = options.output == "text"
    console = console_for() if is_text else console_for(sys.stderr)
    report = RunReport(hide=hide, is_dry=options.is_dry)
    answer = choose_answer(console, is_confirmed=options.is_confirmed, tokens=options.tokens)
    transcript = Transcript(console, answer, is_quiet=options.is_quiet, hide=hide, hide_values=hide.values)
    status = RunStatus(is_quiet=options.is_quiet)
    run = ScriptRun(scripts, options, report, transcript if is_text else None, status.line)
    started = time.monotonic()
    if not run.stops_at_once():
        if options.is_dry:
            with _dry_session(options.warehouse) as attached:
                run.foresee(attached)
        else:
            with spark_for(options.warehouse, status=status.line) as spark:
                status.spark = spark
                run.carry_out(spark, transcript)
    report.seconds = time.monotonic() - started
    if options.output != "text":
        sys.stdout.write(report.as_json() + "\n" if options.output == "json" else report.as_junit())
    elif not report.is_interrupted:
        console_for(sys.stderr).print(Text(report.summary, style="dim"))
    return report


class RunStatus:
    """The status line of a run. While Spark is starting, the line says so. Afterwards, the line shows the activity of
    the running statement."""

    def __init__(self, *, is_quiet: bool) -> None:
        self.spark: SparkSession | None = None
        # The status line has its own copy of standard error, because standard error itself is redirected to a file
        # while Spark starts.
        self.line = StatusLine(self._describe, stream=own_stderr(), is_quiet=is_quiet)

    def _describe(self) -> Progress:
        if self.spark is None:
            return Doing(STARTING)
        from rw_sql.session.attach import attached_to, statement_progress

        attached = attached_to(self.spark)
        return Doing("closing the session") if attached is None else statement_progress(attached)


class ScriptRun:
    """One run of all scripts. ``transcript`` is None if nothing is printed during the run."""

    def __init__(
        self,
        scripts: Sequence[Script],
        options: RunOptions,
        report: RunReport,
        transcript: Transcript | None,
        status: StatusLine | None = None,
    ) -> None:
        self._scripts = scripts
        self._keeps_going = options.keeps_going
        self._report = report
        self._transcript = transcript
        # The thread that shows the status line starts together with the first statement.
        self._status = status if status is not None else StatusLine(lambda: Doing(""), is_quiet=True)
        self._is_over = False
        self._was_interrupted = False

    def stops_at_once(self) -> bool:
        """True if the first statement cannot be parsed, and its error ends the run. This method then reports the error,
        and the caller need not start Spark, which would take seconds."""
        script = next((script for script in self._scripts if script.parts), None)
        error = None if script is None or self._keeps_going else _unparsed(script, script.parts[0])
        if error is None:
            return False
        refusal: SqlError = error

        def refuse(_script: Script, _part: ScriptStatement) -> _Outcome:
            raise refusal

        for each in self._scripts:
            self._each(each, refuse)
        return True

    def carry_out(self, spark: SparkSession, asking: Transcript) -> None:
        """Runs the statements one by one, until an error ends the run. ``asking`` prints the statements that need a
        confirmation, even if nothing else is printed during the run."""
        from rw_sql.session.scripts import answering, run_part

        answer = asking.answer

        def run(script: Script, part: ScriptStatement) -> _Outcome:
            asking.begin()
            kept: list[Values] = []
            with self._status.running():
                run_part(attached, part, script.expanded.text, None, lambda frame: kept.append(read_values(frame)))
            return _Outcome(result=kept[0])

        def ask(question: Question) -> bool:
            assert answer is not None
            with self._status.hidden():
                return answer(question)

        with answering(spark, None if answer is None else ask) as attached:
            for script in self._scripts:
                self._each(script, run)
                if attached.block_state is not None:
                    self._leave_block(script)
                    attached.spark.sql("ROLLBACK")

    def foresee(self, attached: Attached) -> None:
        """Explains every statement without running it, for a dry run."""
        dry = attached.dry_run()
        sparks = 0

        def explain(script: Script, part: ScriptStatement) -> _Outcome:
            nonlocal sparks
            try:
                statement = route(part.text, dry) if could_be_ours(part.text) else None
                if statement is None:
                    sparks += 1
                    return _Outcome(plan=("a statement of Spark SQL, which a dry run does not plan",))
                foreseen = dry.explain(statement)
                return _Outcome(plan=foreseen.lines, needs_confirmation=foreseen.needs_confirmation)
            except SqlError as error:
                if sparks and error.detail is None:
                    error.detail = (
                        f"{_NOT_RUN}; before this one, there are {sparks}, which may create objects that it needs"
                    )
                raise error.moved_into(script.expanded.text, part.start, part.line, part.column, None) from None

        for script in self._scripts:
            self._each(script, explain)
            if dry.has_open_block:
                self._leave_block(script)

    def _each(self, script: Script, act: Callable[[Script, ScriptStatement], _Outcome]) -> None:
        """Applies a function to each statement, after printing the ``\\echo`` lines that precede the statement."""
        echoes = list(script.expanded.echoes)
        for part in script.parts:
            file, line, column = script.place(part)
            run = StatementRun(file=file, line=line, column=column, text=part.text, status="not run")
            if not self._is_over:
                while echoes and echoes[0].at <= part.start:
                    self._say(echoes.pop(0).text)
                run = self._attempt(script, part, run, act)
            self._report.statements.append(run)
        if not self._is_over:
            for echo in echoes:
                self._say(echo.text)

    def _attempt(
        self,
        script: Script,
        part: ScriptStatement,
        run: StatementRun,
        act: Callable[[Script, ScriptStatement], _Outcome],
    ) -> StatementRun:
        started = time.monotonic()
        try:
            if self._was_interrupted:
                raise KeyboardInterrupt
            outcome = act(script, part)
            self._show(part, outcome)
        except SqlError as error:
            script.expanded.locate(error)
            self._tell(error)
            self._is_over = not self._keeps_going
            return replace(run, status=status_of(error), error=error, seconds=time.monotonic() - started)
        except KeyboardInterrupt as interrupt:
            self._report.is_interrupted = self._is_over = True
            print_cancelled(f"cancelled: {self._interrupted(run, str(interrupt))}")
            return replace(run, seconds=time.monotonic() - started)
        return replace(
            run,
            status="done",
            result=outcome.result,
            plan=outcome.plan,
            needs_confirmation=outcome.needs_confirmation,
            seconds=time.monotonic() - started,
        )

    def _show(self, part: ScriptStatement, outcome: _Outcome) -> None:
        """Prints the result of a statement.

        The statement is complete at this point. Therefore, a Ctrl-C during this call does not affect the statement, but
        prevents the next statement from running.
        """
        if self._transcript is None:
            return
        try:
            self._transcript.show_outcome(part.text, outcome.result, outcome.plan)
        except KeyboardInterrupt:
            self._was_interrupted = True

    def _leave_block(self, script: Script) -> None:
        """Handles a script that ends inside a block.

        The block is never committed, and the script's last statement counts as failed.
        """
        if self._is_over:
            return
        error = open_block(script.name)
        self._tell(error)
        self._is_over = not self._keeps_going
        last = self._report.statements[-1]
        if last.error is None:
            self._report.statements[-1] = replace(last, status="failed", error=error)

    def _interrupted(self, run: StatementRun, why: str) -> str:
        from rw_sql.session.scripts import interrupted_at

        done, total = len(self._report.statements), sum(len(script.parts) for script in self._scripts)
        place = (
            f"{run.file}, line {run.line}" if run.file is not None and len(self._scripts) > 1 else f"line {run.line}"
        )
        return interrupted_at(done, total, place, why)

    def _tell(self, error: SqlError) -> None:
        if self._transcript is not None:
            print_error(self._report.hide.values(error.render()))

    def _say(self, text: str) -> None:
        if self._transcript is not None:
            self._transcript.say(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """The result of a statement, or its predicted effect."""

    result: Values | None = None
    plan: tuple[str, ...] | None = None
    needs_confirmation: bool = False


def _unparsed(script: Script, part: ScriptStatement) -> SqlError | None:
    """The error of an rw_sql statement that cannot be parsed, regardless of the content of the catalog; None for other
    statements."""
    try:
        if could_be_ours(part.text):
            route(part.text, EmptyCatalog())
    except SqlError as error:
        return error.moved_into(script.expanded.text, part.start, part.line, part.column, None)
    return None


@contextmanager
def _dry_session(warehouse: str | None) -> Iterator[Attached]:
    """A session that runs no jobs. The session is attached to the warehouse or, if the warehouse does not exist yet, to
    a temporary empty warehouse.

    Raises SqlError NOT_SUPPORTED if the warehouse must be migrated first, because attaching would migrate the
    warehouse.
    """
    from rw_sql.metastore import Metastore
    from rw_sql.runtime.support.store_errors import store_errors
    from rw_sql.session.attach import attach
    from rw_sql.session.location import warehouse_at

    location = warehouse_at(warehouse)
    where = location.uri
    with ExitStack() as left:
        with store_errors(lambda _: None, done=""):
            is_there = bool(location.list_names(f"{where}/rw_catalog/migrations/_delta_log"))
            if is_there:
                Metastore.open(where, only_reads=True)
        if not is_there:
            where = left.enter_context(TemporaryDirectory(prefix="rw_sql-dry-run-"))
        spark = left.enter_context(spark_for(where, run_jobs=False))
        yield attach(spark, where, run_jobs=False)
