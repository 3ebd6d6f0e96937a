"""Statements that are not rw_sql's reach Spark byte for byte, with the same result as in a session that was never
attached.

For an error, the class, condition, parameters and message are the same; rw_sql rewrites its text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError, unescape_new_line
from pyspark.errors import PySparkException

import rw_sql
from rw_sql.session.scripts import run_statements
from tests.integration.attached import AttachedSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("made_code")]

FILE = Path(__file__).with_name("spark_statements.txt")
_ODD_SPACE = ("SELECT 1\r\n", "\tSELECT\t1\t", "SELECT\u00a01", "\ufeffSELECT 1", "SELECT 1\n\n\n", "", " ", "\n--\n")
STATEMENTS = (*FILE.read_bytes().decode().rstrip("\n").split("\n====\n"), *_ODD_SPACE)

# Numbers that Spark counts up, and times.
_COUNTED = re.compile(r"#\d+L?|plan_id=\d+|\[id=#\d+\]|\d+\.\d+ ms|Time Taken.*|`[0-9a-f-]{36}`")


def outcome(spark: SparkSession, text: str) -> tuple[str, ...]:
    """The result or error of a statement."""
    return outcome_of(lambda: spark.sql(text))


def message_of(error: PySparkException) -> str:
    """Spark's message; empty for an error of Delta Lake, for which Spark has no template."""
    try:
        return str(error.getMessage())
    except Py4JJavaError:
        return ""


def outcome_of(ask: Callable[[], DataFrame]) -> tuple[str, ...]:
    """The schema and rows of a call, or its error, without counters."""
    try:
        frame = ask()
        told = ("rows", frame.schema.simpleString(), *(str(row) for row in frame.collect()))
    except PySparkException as error:
        facts = sorted((error.getMessageParameters() or {}).items())
        told = ("error", type(error).__name__, str(error.getCondition()), str(facts), message_of(error))
    return tuple(_COUNTED.sub("#", word) for word in told)


def clean(spark: SparkSession) -> None:
    """Returns the session to its initial state."""
    spark.sql("USE default").collect()
    spark.sql("DROP DATABASE IF EXISTS other CASCADE").collect()
    for table in spark.catalog.listTables("default"):
        kind = "VIEW" if table.tableType in ("VIEW", "TEMPORARY") else "TABLE"
        spark.sql(f"DROP {kind} IF EXISTS `{table.name}`").collect()
    spark.catalog.dropGlobalTempView("everywhere")
    spark.catalog.clearCache()
    for key in ("my.own.key", "spark.sql.session.timeZone"):
        spark.conf.unset(key)


@pytest.fixture
def seen_by_the_jvm(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of all ``sql`` calls that leave for the JVM from now on, as py4j's wire protocol carries them."""
    client: Any = spark._sc._gateway._gateway_client  # type: ignore[union-attr]
    send: Callable[..., str] = client.send_command
    texts: list[str] = []

    def listen(command: str, *args: Any, **kwargs: Any) -> str:
        kind, _, rest = command.partition("\n")
        parts = rest.split("\n")
        if kind == "c" and parts[1] == "sql":
            texts.append(unescape_new_line(parts[2].removeprefix("s")))
        return send(command, *args, **kwargs)

    monkeypatch.setattr(client, "send_command", listen)
    return texts


def test_there_are_enough_of_them() -> None:
    assert len(STATEMENTS) == len(set(STATEMENTS)) >= 200


@pytest.mark.alone
@pytest.mark.long
def test_every_statement_of_sparks_own(spark: SparkSession, tmp_path: Path, seen_by_the_jvm: list[str]) -> None:
    rw_sql.detach(spark)
    clean(spark)
    bare = [outcome(spark, text) for text in STATEMENTS]
    clean(spark)
    session = AttachedSession(spark, str(tmp_path / "warehouse"))
    try:
        for text, expected in zip(STATEMENTS, bare, strict=True):
            seen_by_the_jvm.clear()
            found = outcome(spark, text)
            assert seen_by_the_jvm == [text]
            assert found == expected, text
    finally:
        session.detach()
        clean(spark)


def test_arguments_go_through(session: AttachedSession) -> None:
    """Arguments take effect. The parser of Delta Lake loses them on some versions of Spark, and rw_sql does not."""
    spark = session.spark
    frame = spark.range(3)
    calls: tuple[Callable[[], DataFrame], ...] = (
        lambda: spark.sql("SELECT :x + 1 AS y", args={"x": 5}),
        lambda: spark.sql("SELECT ? + 1 AS y", args=[6]),
        lambda: spark.sql("SELECT ? + 1 AS y", [6]),
        lambda: spark.sql("SELECT max(id) AS y FROM {frame}", frame=frame),
        lambda: spark.sql(sqlQuery="SELECT 2 AS y"),
        lambda: spark.sql("SHOW SOURCES", args={"x": 5}),
        lambda: spark.sql("SELECT :x", args=5),  # type: ignore[arg-type]
    )
    attached = [outcome_of(call) for call in calls]
    assert [outcome[2] for outcome in attached[:3]] == ["Row(y=6)", "Row(y=7)", "Row(y=7)"]
    assert attached[3:5] == [("rows", "struct<y:bigint>", "Row(y=2)"), ("rows", "struct<y:int>", "Row(y=2)")]
    session.detach()
    assert attached[3:] == [outcome_of(call) for call in calls[3:]]


def test_another_session_is_not_attached(session: AttachedSession) -> None:
    other = session.spark.newSession()
    with pytest.raises(PySparkException, match="PARSE_SYNTAX_ERROR"):
        other.sql("SHOW SOURCES")


@pytest.mark.long
def test_names_of_ours_do_not_hide_sparks(session: AttachedSession) -> None:
    """An object whose name is one of Spark's words; Spark's own table of that name stays readable beside it."""
    session.run(
        "CREATE TABLE orders_of_spark USING delta AS SELECT 1 AS id",
        "CREATE SOURCE tables (id INT) WITH (connector = 'datagen', datagen.rows.total = '3')",
        "CREATE MATERIALIZED VIEW functions AS SELECT id FROM tables",
        "FLUSH",
    )
    assert len(session.rows_of("functions")) == 3
    assert {row.tableName for row in session.sql("SHOW TABLES")} >= {"orders_of_spark", "functions"}
    assert session.rows_of("orders_of_spark") == [(1,)]
    assert [row.name for row in session.sql("DESCRIBE tables")] == ["id"]
    assert session.sql("SHOW FUNCTIONS LIKE 'abs'")
    session.run("DROP TABLE orders_of_spark")


@pytest.mark.long
def test_a_table_or_view_of_the_users_own_is_never_replaced(session: AttachedSession) -> None:
    session.run(
        "CREATE TABLE taken USING delta AS SELECT 'mine' AS whose",
        "CREATE VIEW taken_too AS SELECT 'mine' AS whose",
        "CREATE SOURCE s (id INT) WITH (connector = 'datagen', datagen.rows.total = '3')",
        "CREATE MATERIALIZED VIEW taken AS SELECT id FROM s",
        "CREATE MATERIALIZED VIEW taken_too AS SELECT id FROM s",
        "CREATE MATERIALIZED VIEW free AS SELECT id FROM s",
        "FLUSH",
    )
    assert [len(session.rows_of(name)) for name in ("taken", "taken_too", "free")] == [1, 1, 3]
    session.run("DROP MATERIALIZED VIEW taken", "DROP MATERIALIZED VIEW taken_too")
    assert session.rows_of("taken") == session.rows_of("taken_too") == [("mine",)]
    session.detach()
    assert {row.tableName for row in session.sql("SHOW TABLES")} >= {"taken", "taken_too"}
    assert "free" not in {row.tableName for row in session.sql("SHOW TABLES")}
    session.run("DROP TABLE taken", "DROP VIEW taken_too")


_REFUSED = (
    "DROP VIEW totals",
    "DROP VIEW IF EXISTS TOTALS",
    "DROP VIEW default.totals",
    "DROP VIEW `spark_catalog`.`default`.`totals`",
    "DROP TABLE default.totals",
    "EXECUTE IMMEDIATE 'DROP VIEW totals'",
    "ALTER VIEW totals AS SELECT 1 AS n",
    "ALTER VIEW totals RENAME TO others",
    "ALTER VIEW totals SET TBLPROPERTIES ('rw_sql.warehouse' = '')",
    "CREATE OR REPLACE VIEW totals AS SELECT 1 AS n",
    "CREATE VIEW IF NOT EXISTS totals AS SELECT 1 AS n",
    "INSERT INTO totals VALUES (1)",
    "WITH a AS (SELECT 1) INSERT INTO totals SELECT * FROM a",
    "DELETE FROM totals",
    "UPDATE totals SET n = 1",
    "MERGE INTO totals USING (SELECT 1 AS n) AS s ON s.n = totals.n WHEN MATCHED THEN DELETE",
    "TRUNCATE TABLE totals",
    "CACHE TABLE totals",
    "OPTIMIZE totals",
    "DROP VIEW IF EXISTS s",
    "INSERT INTO s VALUES (1)",
    "DROP VIEW rw_catalog.rw_sources",
    "CREATE OR REPLACE VIEW rw_catalog.rw_sources AS SELECT 1 AS n",
    "DROP DATABASE rw_catalog CASCADE",
    "DROP TABLE totals",
    "DROP TABLE IF EXISTS Totals",
    "DROP TABLE public.totals",
    "DROP VIEW public.totals",
    "ALTER TABLE totals SET TBLPROPERTIES ('a' = 'b')",
    "ALTER TABLE s ADD COLUMN n INT",
    "CREATE OR REPLACE TEMP VIEW totals AS SELECT 1 AS n",
    "create or replace /* a */ temporary\n view `TOTALS` AS SELECT 1 AS n",
    "INSERT INTO `s$errors` VALUES (1)",
    "DROP VIEW `S$errors`",
)


@pytest.mark.long
def test_statements_of_sparks_do_not_change_what_is_ours(session: AttachedSession) -> None:
    session.run(
        "CREATE SOURCE s (id INT) WITH (connector = 'datagen', datagen.rows.total = '3')",
        "CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n FROM s",
        "FLUSH",
    )
    sources = session.rows_of("rw_catalog.rw_sources")
    for text in _REFUSED:
        with pytest.raises(rw_sql.SqlError, match=r"RW236|RW201"):
            session.sql(text)
    with pytest.raises(rw_sql.SqlError, match="HINT: DROP MATERIALIZED VIEW totals"):
        session.sql("DROP VIEW totals")
    with pytest.raises(rw_sql.SqlError, match="RW236"):
        session.spark.sql("INSERT INTO totals VALUES (:n)", args={"n": 1})
    assert session.rows_of("totals") == [(3,)]
    assert session.rows_of("rw_catalog.rw_sources") == sources
    session.run("REFRESH TABLE default.totals", "DROP MATERIALIZED VIEW totals", "DROP SOURCE s")


@pytest.mark.long
def test_names_of_ours_elsewhere_are_the_users(session: AttachedSession) -> None:
    """In another database, and as a temporary view, the same name does not refer to rw_sql's object."""
    session.run(
        "CREATE SOURCE s (id INT) WITH (connector = 'datagen', datagen.rows.total = '3')",
        "CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n FROM s",
        "FLUSH",
        "CREATE DATABASE other",
        "CREATE VIEW other.totals AS SELECT 1 AS mine",
        "CREATE OR REPLACE VIEW other.totals AS SELECT 2 AS mine",
        "CREATE TABLE other.s USING delta AS SELECT 1 AS mine",
        "CREATE TEMP VIEW totals AS SELECT 3 AS mine",
        "CREATE OR REPLACE TEMP VIEW totals AS SELECT 3 AS mine",
    )
    assert session.rows_of("totals") == [(3,)]
    assert [row.col_name for row in session.sql("DESCRIBE totals")] == ["mine"]
    session.run("DROP VIEW totals", "USE other", "INSERT INTO s VALUES (2)", "ALTER TABLE s ADD COLUMN more INT")
    assert [row.col_name for row in session.sql("DESCRIBE s")] == ["mine", "more"]
    assert [row.name for row in session.sql("DESCRIBE public.s")] == ["id"]
    session.run("DROP TABLE s", "DROP VIEW totals")
    with pytest.raises(rw_sql.SqlError, match="RW236"):
        session.sql("DROP VIEW default.totals")
    session.run("USE default", "DROP DATABASE other")
    assert session.rows_of("totals") == [(3,)]
    session.run("DROP MATERIALIZED VIEW totals", "DROP SOURCE s")


def test_a_byte_order_mark_before_a_statement_of_ours(session: AttachedSession) -> None:
    assert session.sql("\ufeffSHOW SOURCES") == []
    told: list[str] = []
    run_statements(
        session.spark,
        "\ufeffSELECT 1 AS x;\n\ufeffSHOW SOURCES",
        answer=None,
        on_result=lambda statement, _: told.append(statement.text),
    )
    assert told == ["SELECT 1 AS x", "SHOW SOURCES"]
    with pytest.raises(rw_sql.SqlError, match=r"RW101: the invisible character U\+200B ZERO WIDTH SPACE"):
        run_statements(session.spark, "SELECT\u200b1", answer=None, on_result=lambda _, __: None)
