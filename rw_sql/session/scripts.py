"""Runs scripts for the command line and notebooks, with Spark's errors converted to located SqlErrors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from rw_sql.errors import SPARK_ERROR, Span, SqlError
from rw_sql.session.attach import run_script
from rw_sql.syntax import split_script
from rw_sql.syntax.parsing.script import refuse_invisible

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.metastore.facts import BackfillProgress
    from rw_sql.session.attach import Question, StatementText

# Errors of analysis and parsing end with the position, counted from 0; errors of a running query have it in a heading
# after the message, counted from 1.
_PLACE = re.compile(r"[;\s]*\(?line (\d+),? pos (\d+)\)?")
_HEADING = re.compile(r"\s*== SQL[^=]*\(line (\d+), position (\d+)\) ==")
_BEHIND = re.compile(r"\n\n|\nJVM stacktrace|\n== SQL")
_WORD = re.compile(r"[\w$]+|`[^`]*`|\S")


def run_statements(
    spark: SparkSession,
    text: str,
    file: str | None = None,
    *,
    answer: Callable[[Question], bool] | None,
    on_result: Callable[[StatementText, DataFrame | None], None],
    on_progress: Callable[[BackfillProgress], None] | None = None,
) -> None:
    """Runs a script's statements until the first error; ``on_result`` receives each result before the next one starts.

    Raises SqlError located in the script: for Spark's errors RW409 with Spark's message.
    """
    done = 0

    def count_and_hand_on(statement: StatementText, result: DataFrame | None) -> None:
        nonlocal done
        on_result(statement, result)
        done += 1

    try:
        run_script(spark, text, file, answer=answer, on_result=count_and_hand_on, on_progress=on_progress)
    except PySparkException as error:
        part = list(split_script(text))[done]
        raise spark_error(error, part.text).moved_into(text, part.start, part.line, part.column, file) from error


def interrupted_at(script: str, done: int, why: str) -> str:
    """The message for a script interrupted by Ctrl-C after ``done`` statements.

    ``why`` describes the statement that was running.
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
    """Spark's error as an SqlError: the message without the plan, and the position if Spark gives one."""
    try:
        refuse_invisible(statement)
    except SqlError as invisible:
        return invisible
    told = str(error).strip()
    if place := _PLACE.search(told):
        return SqlError(SPARK_ERROR, told[: place.start()], span=_word_at(statement, int(place[1]), int(place[2])))
    if place := _HEADING.search(told):
        return SqlError(SPARK_ERROR, told[: place.start()], span=_word_at(statement, int(place[1]), int(place[2]) - 1))
    return SqlError(SPARK_ERROR, _BEHIND.split(told)[0], span=_word_at(statement, 1, 0))


def _word_at(statement: str, line: int, position: int) -> Span:
    """The word that starts at a 1-based line and a 0-based position in it."""
    lines = statement.split("\n")
    start = sum(len(before) + 1 for before in lines[: line - 1]) + position
    word = _WORD.match(statement, start)
    return Span(start=start, end=word.end() if word else start + 1, line=line, column=position + 1)
