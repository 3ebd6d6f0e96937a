"""Scripts as the edges run them: an error of Spark's own statements is located and coded like one of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from rw_sql.errors import SqlError
from rw_sql.runtime.spark.spark_errors import as_sql_error, known_names
from rw_sql.session.attach import run_script
from rw_sql.syntax import split_script
from rw_sql.syntax.dialect.spark_faults import KnownNames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.metastore.facts import BackfillProgress
    from rw_sql.session.attach import Question, StatementText


def run_statements(
    spark: SparkSession,
    text: str,
    file: str | None = None,
    *,
    answer: Callable[[Question], bool] | None,
    on_result: Callable[[StatementText, DataFrame | None], None],
    on_progress: Callable[[BackfillProgress], None] | None = None,
) -> None:
    """Runs a script's statements until the first error, each result handed to ``on_result`` before the next begins.

    Raises SqlError located in the script: of our statements their own, of Spark's what they mean, condensed.
    """
    done = 0

    def count_and_hand_on(statement: StatementText, result: DataFrame | None) -> None:
        nonlocal done
        on_result(statement, result)
        done += 1

    try:
        run_script(spark, text, file, answer=answer, on_result=count_and_hand_on, on_progress=on_progress)
    except PySparkException as error:
        if isinstance(error, SqlError):
            raise
        part = list(split_script(text))[done]
        told = as_sql_error(error, part.text, known_names(spark))
        raise told.moved_into(text, part.start, part.line, part.column, file) from error


def interrupted_at(script: str, done: int, why: str) -> str:
    """Where Ctrl-C ended a script of which so many statements are done, and what of it holds.

    ``why`` is what is to say of the statement that ran.
    """
    parts = split_script(script)
    before = {0: "nothing was done before it", 1: "the one before it is done"}.get(
        done, f"the {done} before it are done"
    )
    place = f"statement {done + 1} of {len(parts)}"
    if done < len(parts):
        place += f" (line {parts[done].line})"
    return f"{place} was interrupted; {f'{why}; ' if why else ''}{before}"


def spark_error(error: PySparkException, statement: str) -> SqlError:
    """Spark's error of a statement as one of ours, without near names."""
    return as_sql_error(error, statement, KnownNames())
