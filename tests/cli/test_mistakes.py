"""The error for a mistyped statement, raised before Spark reads it: the mistake, its place, and a hint.

``tests/fixtures/mistakes/statements.sql`` has the statements, separated by blank lines; the ``.txt`` file beside it has
the errors. ``other_dialects.sql`` has statements as Flink SQL, Materialize, ksqlDB and PostgreSQL write them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.formatting.command import statement_of
from rw_sql.errors import SqlError
from rw_sql.syntax.near_statements import near_statement
from tests.conftest import FIXTURES, rendered
from tests.syntax.parsing.test_syntax_errors import blocks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MISTAKES = FIXTURES / "mistakes"


@pytest.mark.parametrize("name", ["statements", "other_dialects"])
def test_mistyped_statements(name: str, recorded: Callable[[Path, str], None]) -> None:
    path = MISTAKES / f"{name}.sql"
    told = []
    for text in blocks(path):
        with pytest.raises(SqlError) as caught:
            statement_of(text)
        error = caught.value.located(text)
        assert error.span is not None, text
        told.append(f"{text}\n\n{rendered(error)}")
    recorded(path.with_suffix(".txt"), "\n\n".join(told))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("SHOW SOURCS", "SHOW SOURCES"),
        ("show\n  jbos", "SHOW JOBS"),
        ("EXPLAIN SHOW SINKZ", "SHOW SINKS"),
        ("SHOW TABLS", "SHOW TABLES"),
        ("SHOW statement_timeot", "SHOW statement_timeout"),
        ("SELEC 1", "SELECT"),
        ("-- a remark\nSELCT 1", "SELECT"),
        ("UPDTE t SET a = 1", "UPDATE"),
        ("PAUSE SORCE s", "SOURCE"),
        ("DROP SUORCE s", "SOURCE"),
        ("DROP VEIW v", "VIEW"),
        ("DROP TABEL t", "TABLE"),
        ("CRATE SOURCE s (a INT)", "CREATE"),
        ("CREATE TABEL t (a INT)", "TABLE"),
        ("ALTER SOURCE s UNSAVE SET (topic = 'x')", "UNSAFE"),
        ("BEGIN UNSAVE", "UNSAFE"),
    ],
)
def test_the_statement_that_was_probably_meant(text: str, meant: str) -> None:
    with pytest.raises(SqlError) as caught:
        statement_of(text)
    assert caught.value.hint == f"did you mean {meant}?"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("DESCRIBE SOURCE orders", "DESCRIBE orders"),
        ('DESC SOURCE "Orders"', 'DESCRIBE "Orders"'),
        ("DESCRIBE MATERIALIZED VIEW totals", "DESCRIBE totals"),
        ("DESCRIBE CONNECTION broker", "SHOW CREATE CONNECTION broker"),
        ("DESCRIBE SINK out", "SHOW CREATE SINK out"),
    ],
)
def test_descriptions_that_spark_has_refused(text: str, meant: str) -> None:
    error = near_statement(text)
    assert error is not None
    assert error.hint == f"did you mean {meant}?"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "SHOW TABLES",
        "SHOW CATALOGS",
        "SHOW no_such_scope FUNCTIONS",
        "SHOW TBLPROPERTIES t",
        "CREATE TEMPORARY VIEW v AS SELECT 1",
        "DROP TEMPORARY VARIABLE v",
        "ALTER DATABASE d SET DBPROPERTIES ('a' = 'b')",
        "BEGIN SELECT 1; END",
        "DROP TABLE t PURG",
        "CREATE TABLE t (a INT USING parquet",
        "SET x = 1",
    ],
)
def test_texts_that_may_be_sparks_are_left_to_it(text: str) -> None:
    assert near_statement(text) is None


@pytest.mark.parametrize("text", ["SHOW TABLES", "SHOW CATALOGS", "SHOW x FUNCTIONS", "ALTER VIEW v AS SELECT 1"])
def test_sparks_statements_pass_a_check(text: str) -> None:
    assert statement_of(text) is None
