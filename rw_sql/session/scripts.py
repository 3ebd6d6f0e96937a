"""Runs scripts for the command line and notebooks, with Spark's errors converted to located SqlErrors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from rw_sql.errors import NO_SESSION, SPARK_ERROR, SqlError
from rw_sql.runtime.spark.interrupts import interruptible
from rw_sql.runtime.spark.spark_errors import as_sql_error, known_names
from rw_sql.runtime.support.failures import cause_line
from rw_sql.session.attach import attached_to, catalog_of, status_shown
from rw_sql.session.attached import asked_by
from rw_sql.syntax import parse_statement, split_script

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.metastore.facts import BackfillProgress
    from rw_sql.session.attach import Attached, Question
    from rw_sql.syntax import ScriptStatement


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementText:
    """One statement of a script and its position. ``line`` and ``column`` are 1-based."""

    text: str
    line: int
    column: int


@contextmanager
def answering(
    spark: SparkSession,
    answer: Callable[[Question], bool] | None,
    on_progress: Callable[[BackfillProgress], None] | None = None,
) -> Iterator[Attached]:
    """A context manager for running a script. The value of the context manager is the attached session, which has the
    given callbacks until the ``with`` block ends.

    ``answer`` is a function that confirms unsafe statements; None if nobody can confirm them. ``on_progress`` is a
    function that receives the progress of a view for which a statement waits. Raises SqlError NO_SESSION if the session
    is not attached to a warehouse.
    """
    attached = _attached(spark)
    told, attached.on_progress = attached.on_progress, on_progress
    try:
        with asked_by(attached, answer):
            yield attached
    finally:
        attached.on_progress = told


def _attached(spark: SparkSession) -> Attached:
    attached = attached_to(spark)
    if attached is None:
        raise SqlError(
            NO_SESSION, "this Spark session is not attached to a warehouse", hint="rw_sql.attach(spark, 'a_warehouse')"
        )
    return attached


def run_part(
    attached: Attached,
    part: ScriptStatement,
    script: str,
    file: str | None = None,
    on_result: Callable[[DataFrame], None] | None = None,
) -> None:
    """Runs one statement of a script, which is a statement of rw_sql or of Spark. ``on_result`` receives the rows of
    the statement.

    Raises SqlError with its position in the script. Also raises SqlError, after the statement has succeeded, if the
    statement's rows cannot be converted to Python values.
    """
    try:
        with interruptible(), status_shown(attached):
            statement = attached.route(part.text)
            spark = attached.spark
            result = spark.sql(part.text) if statement is None else attached.run(part.text, statement)
            if on_result is not None:
                on_result(result)
    except SqlError as error:
        raise error.moved_into(script, part.start, part.line, part.column, file) from error.__cause__
    except PySparkException as error:
        told = as_sql_error(error, part.text, known_names(attached.spark, partial(catalog_of, attached)))
        raise told.moved_into(script, part.start, part.line, part.column, file) from error
    except (Py4JError, ValueError, ArithmeticError) as error:
        # Some of Spark's values have no counterpart in Python, such as a time after the year 9999.
        attached.require_alive()
        told = SqlError(
            SPARK_ERROR,
            f"the statement ran, and its result cannot be shown: {cause_line(str(error)) or type(error).__name__}",
            hint="CAST(a_column AS STRING) shows values that Python cannot represent",
        )
        raise told.moved_into(script, part.start, part.line, part.column, file) from error


def run_statements(
    spark: SparkSession,
    text: str,
    file: str | None = None,
    *,
    answer: Callable[[Question], bool] | None,
    on_result: Callable[[StatementText, DataFrame | None], None],
    on_progress: Callable[[BackfillProgress], None] | None = None,
) -> None:
    """Runs a script's statements until the first error.

    ``on_result`` receives each result before the next statement starts.

    ``answer`` is a function that confirms unsafe statements; None if nobody can confirm them. ``on_progress`` is a
    function that receives the progress of a view for which a statement waits. Raises SqlError with the file, line and
    column of the error. The effects of the preceding statements remain, and an open BEGIN UNSAFE block is aborted.
    """
    with answering(spark, answer, on_progress) as attached:
        parts = split_script(text)
        for part in parts:
            shown = StatementText(text=part.text, line=part.line, column=part.column)
            try:
                run_part(attached, part, text, file, partial(on_result, shown))
            except BaseException:
                if part is not parts[-1]:
                    attached.abort_block()  # COMMIT must not run a block without the failed statement.
                raise


def run_dry(spark: SparkSession, texts: Sequence[str]) -> tuple[Question, ...]:
    """Plans rw_sql statements one by one without running them, each on the catalog that the preceding statements would
    produce. If planning fails, raises the SqlError that running the statement would raise, located in the statement. An
    unsafe statement that lacks a confirmation raises no error: the function returns the confirmation requests of all
    unsafe statements."""
    dry = _attached(spark).dry_run()
    found: list[Question] = []
    for text in texts:
        try:
            question = dry.explain(parse_statement(text)).question
            found += [question] if question is not None else []
        except SqlError as error:
            raise error.located(text) from error.__cause__
    return tuple(found)


def interrupted_at(done: int, total: int, place: str, why: str) -> str:
    """Returns the message after Ctrl-C. The message contains the number of the interrupted statement and the number of
    statements that completed before it.

    Of the ``total`` statements, ``done`` statements completed before the interruption. ``place`` is the position of the
    interrupted statement, and ``why`` is the cause of the interruption. Both are empty if unknown.
    """
    before = {0: "no statement ran before it", 1: "the one before it is complete"}.get(
        done, f"the {done} before it are complete"
    )
    where = f" ({place})" if place else ""
    return f"statement {done + 1} of {total}{where} was interrupted; {f'{why}; ' if why else ''}{before}"
