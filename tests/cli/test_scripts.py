"""Spark's own errors in rw_sql's form: the message without plans, at the word that Spark points at."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from rw_sql.runtime.spark.spark_errors import as_sql_error
from rw_sql.syntax.dialect.spark_faults import KnownNames

# Texts of Spark 4.2, shortened in the middle.
UNKNOWN_TABLE = (
    "[TABLE_OR_VIEW_NOT_FOUND] The table or view `t` cannot be found.\n"
    "To tolerate the error on drop use DROP VIEW IF EXISTS. SQLSTATE: 42P01; line 2 pos 5;\n"
    "'Project [*]\n+- 'UnresolvedRelation [t], [], false\n"
)
SYNTAX = (
    "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'SELEC'. SQLSTATE: 42601 (line 1, pos 0)\n"
    "\n== SQL ==\nSELEC 1\n^^^\n"
)
RUNNING = (
    "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL (line 1, position 8) ==\nSELECT 1/0\n       ^^^\n\n"
    "JVM stacktrace:\norg.apache.spark.SparkArithmeticException"
)


@pytest.mark.parametrize(
    ("told", "statement", "message_end", "place", "word"),
    [
        (UNKNOWN_TABLE, "SELECT *\nFROM t", "SQLSTATE: 42P01", (2, 6), "t"),
        (SYNTAX, "SELEC 1", "SQLSTATE: 42601", (1, 1), "SELEC"),
        (RUNNING, "SELECT 1/0", "SQLSTATE: 22012", (1, 8), "1"),
        ("something else\n\nJVM stacktrace:\nx", "SELECT a", "something else", (1, 1), "SELECT"),
    ],
)
def test_the_place_and_the_message(
    told: str, statement: str, message_end: str, place: tuple[int, int], word: str
) -> None:
    error = as_sql_error(PySparkException(told), statement, KnownNames())
    assert error.code == "RW409"
    assert error.message.endswith(message_end)
    assert (error.line, error.column) == place
    assert error.span is not None
    assert statement[error.span.start : error.span.end] == word
