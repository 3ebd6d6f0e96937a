"""Runs the statements of ``rw-sql apply`` and ``rollback``, with a status line while Spark starts and while a statement
runs."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from rw_sql.errors import NOT_APPLIED_YET, Span, SqlError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from rich.console import Console

    from rw_sql.cli.script.loading import SecretHider
    from rw_sql.metastore import Snapshot
    from rw_sql.plan.deploy.change import DeployChange
    from rw_sql.plan.deploy.plan_file import SavedPlan
    from rw_sql.runtime.support.warehouse import Warehouse
    from rw_sql.session.attach import Question
    from rw_sql.session.scripts import StatementText
    from rw_sql.syntax.statements import Wait


def catalog_of(warehouse: str | None) -> tuple[Warehouse, Snapshot]:
    """The warehouse and its catalog; the catalog is empty if the warehouse does not exist yet.

    The call writes nothing, and reads a warehouse of an older format without migrating it. Raises SqlError
    STORE_UNREACHABLE if the warehouse's store fails.
    """
    from rw_sql.metastore import Snapshot
    from rw_sql.runtime.support.warehouse import Warehouse

    location = Warehouse.at(warehouse or "./rw_warehouse")
    try:
        if not location.list_names(f"{location.uri}/rw_catalog/operations/_delta_log"):
            return location, Snapshot()
    except OSError as error:
        from rw_sql.runtime.support.store_errors import store_error

        raise store_error(error, done="") from error
    # These modules need delta-rs, which a light installation lacks, so they are imported only if there are rows.
    from rw_sql.metastore import Metastore
    from rw_sql.runtime.support.store_errors import store_errors

    with store_errors(lambda _: None, done=""):
        return location, Metastore.open(location.uri, only_reads=True, accepts_older=True).snapshot()


class StatementRunner:
    """Runs statements on a warehouse one by one, and prints each statement with its rows. ``hide`` replaces the secrets
    in what is printed."""

    def __init__(
        self,
        console: Console,
        location: Warehouse,
        hide: SecretHider,
        *,
        is_confirmed: bool,
        tokens: frozenset[str] = frozenset(),
    ) -> None:
        from rw_sql.cli.script.running import RunStatus
        from rw_sql.cli.terminal.question import choose_answer, first_unconfirmed
        from rw_sql.cli.terminal.transcript import Transcript

        self.location = location
        self.first_unconfirmed = partial(first_unconfirmed, console, is_confirmed=is_confirmed, tokens=tokens)
        """A function that takes several questions and returns the first question that nobody can confirm. The function
        does not ask the user any question."""
        answer = choose_answer(console, is_confirmed=is_confirmed, tokens=tokens)
        self._transcript = Transcript(console, answer, hide=hide, hide_values=hide.values)
        self._status = RunStatus(is_quiet=False)

    @contextmanager
    def session(self) -> Iterator[SparkSession]:
        """A context manager that yields a session for :meth:`run`."""
        from rw_sql.cli.spark_start import spark_for

        with spark_for(self.location.uri, status=self._status.line) as spark:
            self._status.spark = spark
            yield spark

    def run(self, spark: SparkSession, text: str) -> None:
        """Runs one statement. Raises SqlError."""
        from rw_sql.session.scripts import run_statements

        self._transcript.begin()
        with self._status.line.running():
            answer = None if self._transcript.answer is None else self._ask
            run_statements(spark, text, answer=answer, on_result=self._show)

    def run_one(self, text: str) -> None:
        """Runs one statement in a separate session. Raises SqlError."""
        with self.session() as spark:
            self.run(spark, text)

    def _ask(self, question: Question) -> bool:
        answer = self._transcript.answer
        assert answer is not None
        with self._status.line.hidden():
            return answer(question)

    def _show(self, statement: StatementText, result: DataFrame | None) -> None:
        from rw_sql.session.results import read_values

        values = None if result is None else read_values(result)
        with self._status.line.hidden():
            self._transcript.show_outcome(statement.text, values)


def carry_out(
    runner: StatementRunner,
    plan: SavedPlan,
    changes: Sequence[DeployChange],
    made: list[DeployChange],
    first: Sequence[str],
    again: str,
    plan_file: str | None,
) -> None:
    """Runs the statements in ``first``, then the statements of the changes, and appends each completed change to
    ``made``. ``again`` is the instruction for continuing after an error, such as "run the same command again".
    ``plan_file`` is the file from which the plan was read, if any.

    All statements of the changes are planned before the first statement runs. Therefore, nothing changes if one of
    these statements would be refused, or would need a confirmation that nobody can give. If there is only one statement
    in all, it is not planned beforehand, because a refused statement changes nothing.

    A change that rebuilds a view is complete when queries read the new rows. Raises SqlError NOT_APPLIED_YET if the
    rebuild does not end, because the view's job is stalled or no process runs it. Raises SqlError CONCURRENT_CHANGE if
    another session has changed the object of a change that has not run yet.
    """
    from rw_sql.cli.terminal.output import print_error
    from rw_sql.plan.deploy.concurrent_changes import KnownDefinitions
    from rw_sql.plan.deploy.plan_file import require_current, require_still_there
    from rw_sql.plan.result.confirmation import UnconfirmedError, hint_for_a_command
    from rw_sql.syntax.statements import Wait

    uri = runner.location.uri
    with runner.session() as spark:
        from rw_sql.runtime.support.faults import fault

        # The plan is checked again, because the catalog may have changed while the user answered and Spark started.
        snapshot = catalog_of(uri)[1]
        require_current(snapshot, plan, uri, again)
        known = KnownDefinitions(snapshot, changes)
        if changes and len(first) + sum(len(change.statements) for change in changes) > 1:
            _require_possible(spark, runner, changes, plan_file)
        is_outdated = False
        try:
            for text in first:
                runner.run(spark, text)
            for change in changes:
                fault("apply.before_change")
                snapshot = catalog_of(uri)[1]
                require_still_there(snapshot, change)
                for statement, text in zip(change.statements, change.texts, strict=True):
                    if not isinstance(statement, Wait):
                        known.require_unchanged(snapshot, change, again)
                    runner.run(spark, text)
                    is_outdated = True
                    snapshot = catalog_of(uri)[1]
                    if not isinstance(statement, Wait):
                        known.renew(snapshot, change)
                    elif not _unfinished(snapshot, statement):
                        break  # The other statements of the change begin a stalled rebuild again.
                _require_rebuilt(snapshot, change, again)
                made.append(change)
        except (SqlError, KeyboardInterrupt) as error:
            if isinstance(error, UnconfirmedError):
                # The statement's own token is valid now, since the statements before it have run.
                error.hint = hint_for_a_command(error.question, plan_file=plan_file, is_outdated=is_outdated)
            if changes:
                print_error(f"{len(made)} of {len(changes)} changes were applied; to continue, {again}")
            raise


def _require_possible(
    spark: SparkSession, runner: StatementRunner, changes: Sequence[DeployChange], plan_file: str | None
) -> None:
    """Raises SqlError if a statement would be refused on the catalog that the preceding statements produce, or if the
    statement needs a confirmation that nobody can give."""
    from rw_sql.cli.terminal.output import print_error
    from rw_sql.plan.result.confirmation import UnconfirmedError, hint_beforehand
    from rw_sql.session.scripts import run_dry

    try:
        question = runner.first_unconfirmed(run_dry(spark, [text for change in changes for text in change.texts]))
        if question is not None:
            raise UnconfirmedError(
                question,
                "an operation of this plan needs a confirmation, but this session is not interactive",
                span=Span(start=0, end=len(question.statement), line=1, column=1),
                hint=hint_beforehand(question, plan_file=plan_file),
            ).located(question.statement)
    except SqlError:
        print_error(f"0 of {len(changes)} changes were applied: a statement would be refused")
        raise


def _require_rebuilt(snapshot: Snapshot, change: DeployChange, again: str) -> None:
    """Raises SqlError NOT_APPLIED_YET if a change ends with a WAIT for a view's rebuild, and this rebuild is still
    running."""
    from rw_sql.syntax.statements import Wait

    last = change.statements[-1]
    if isinstance(last, Wait) and (name := _unfinished(snapshot, last)):
        raise SqlError(
            NOT_APPLIED_YET,
            f'materialized view "{name}" is still being rebuilt, and queries read its previous rows',
            hint=f"SHOW JOBS shows why the rebuild does not end; then {again}",
        )


def _unfinished(snapshot: Snapshot, wait: Wait) -> str:
    """Returns the name of the view that a WAIT waits for, if this view is still being rebuilt. Otherwise, returns the
    empty string."""
    from rw_sql.model.object_lookup import object_name

    name = object_name(wait.name) if wait.name is not None else ""
    return name if any(rebuild.name == name for rebuild in snapshot.all("rebuild")) else ""
