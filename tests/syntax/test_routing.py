"""rw_sql's statements are recognized, Spark's are left alone, and rw_sql reports errors in its own statements."""

from __future__ import annotations

import time
import timeit

import pytest

from rw_sql.errors import SqlError
from rw_sql.syntax import could_be_ours, route
from rw_sql.syntax import statements as ast
from rw_sql.syntax.lexing.first_words import is_explain, is_show_create


class Catalog:
    """A catalog with the table ``users`` and the parameter ``unsafe_confirmation``."""

    def has_object(self, name: ast.Name) -> bool:
        return name.last == "users"

    def has_parameter(self, name: str) -> bool:
        return name == "unsafe_confirmation"


def taken(text: str) -> ast.Statement | None:
    return route(text, Catalog()) if could_be_ours(text) else None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "SELECT * FROM source",
        "WITH source AS (SELECT 1) SELECT * FROM source",
        "INSERT INTO users VALUES (1)",
        "CREATE TABLE t (a INT)",
        "CREATE TABLE t (a INT PRIMARY KEY)",
        "CREATE TABLE t USING delta AS SELECT 1 AS a",
        "CREATE TABLE t AS SELECT 1 AS a",
        "CREATE TABLE t (a INT) USING parquet OPTIONS (x 'y') PARTITIONED BY (a) COMMENT 'c'",
        "CREATE TABLE t (a STRING) ROW FORMAT DELIMITED FIELDS TERMINATED BY ','",
        "CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 1",
        "CREATE TEMPORARY FUNCTION f AS 'x'",
        "CREATE DATABASE d",
        "DROP TABLE t",
        "DROP TABLE IF EXISTS t PURGE",
        "DROP VIEW v",
        "ALTER TABLE t ADD COLUMN a INT",
        "ALTER TABLE t SET TBLPROPERTIES ('a' = 'b')",
        "REFRESH TABLE t",
        "REFRESH t",
        "SHOW TABLES",
        "SHOW TABLES IN d LIKE 'a*'",
        "SHOW VIEWS",
        "SHOW COLUMNS FROM users",
        "SHOW FUNCTIONS",
        "SHOW CREATE TABLE t",
        "SHOW CREATE TABLE t AS SERDE",
        "SHOW PARTITIONS users",
        "SHOW something",
        "DESCRIBE t",
        "DESCRIBE EXTENDED t",
        "DESC FORMATTED users_too",
        "DESCRIBE FUNCTION abs",
        "SET",
        "SET spark.sql.shuffle.partitions = 1",
        "SET -v",
        "SET x",
        "SET TIME ZONE 'UTC'",
        "SET VARIABLE a = 1",
        "RESET",
        "RESET spark.sql.x",
        "EXPLAIN SELECT 1",
        "EXPLAIN EXTENDED SELECT 1",
        "EXPLAIN CREATE TABLE t (a INT)",
        "EXPLAIN FORMATTED SELECT 'CREATE SOURCE s'",
        "CACHE TABLE t",
        "MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE",
        "BEGIN SELECT 1; END",
        "CREATE TABLE t (a INT) TBLPROPERTIES ('format' = 'x')",
        "CREATE TABLE t USING parquet AS SELECT 'WITH (connector = 1)' AS text",
        'CREATE TABLE t USING parquet AS SELECT "WITH (connector = 1)" AS text -- WITH (connector = 1)',
        "CREATE TABLE t USING parquet AS SELECT 'it\\'s WITH (connector = 1)' AS text",
        "CREATE TABLE t USING parquet AS SELECT r'\\' AS a, 'WITH (x, ' AS b, 'connector = 1' AS c",
        "CREATE TABLE t USING parquet AS WITH connector AS (SELECT 1 AS connector) SELECT connector = 1 FROM connector",
        "-- CREATE SOURCE s\nSELECT 1",
        "/* DROP SOURCE s */ SELECT 1",
        "CREATE TABLE source (sink INT, include STRING, format STRING)",
        "REPLACE TABLE t AS SELECT 1",
        "CREATE TABLE rules (id INT, include BOOLEAN) USING delta",
        "CREATE TABLE include (a INT) USING delta",
        "CREATE TABLE IF NOT EXISTS db.include (a INT) USING delta",
        "CREATE TABLE t (append INT, only STRUCT<include: INT, format: INT>) PARTITIONED BY (append)",
        "CREATE TABLE t (a DECIMAL(9, 2), include INT COMMENT 'it\\'s (') USING delta",
        "CREATE TABLE t AS SELECT a AS include, b FROM s JOIN conflict ON conflict.a = s.a DISTRIBUTE BY a",
        "CREATE TABLE t AS (SELECT include FROM s) DISTRIBUTE",
        "CREATE SCHEMA include COMMENT 'c'",
        "ALTER TABLE unsafe ADD COLUMNS (a INT)",
        "ALTER TABLE db.connector SET TBLPROPERTIES ('a' = 'b')",
        "ALTER TABLE swap.unsafe.connector RENAME COLUMN a TO b c",
        "ALTER TABLE t DROP COLUMN connector, swap",
        "ALTER TABLE t ALTER watermark COMMENT 'c'",
        "ALTER TABLE t ADD COLUMN unsafe INT COMMENT 'c'",
        "DESCRIBE HISTORY t",
        "DESC DETAIL delta.`/path`",
        "DESCRIBE HISTORY '/path' LIMIT 1",
        "SELECT 1; SELECT 2",
        "",
        ";",
    ],
)
def test_left_to_spark(text: str) -> None:
    assert taken(text) is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("CREATE SOURCE s (a INT) WITH (connector = 'datagen')", ast.CreateSource),
        ("/* a */ -- b\n create source s (a int) with (connector = 'datagen') ; -- c", ast.CreateSource),
        ("CREATE TABLE t (a INT) WITH (connector = 'datagen')", ast.CreateTable),
        ("CREATE TABLE t (a INT, WATERMARK FOR a AS a - 1)", ast.CreateTable),
        ("CREATE TABLE t (*) FROM s TABLE 'x'", ast.CreateTable),
        ("DROP TABLE users", ast.DropTable),
        ("REFRESH TABLE public.users", ast.RefreshTable),
        ("DESCRIBE users", ast.Describe),
        ("DESC users;", ast.Describe),
        ("SHOW CREATE TABLE users", ast.ShowCreate),
        ("SHOW CREATE SOURCE s", ast.ShowCreate),
        ("SHOW SOURCES", ast.ShowObjects),
        ("SHOW JOBS", ast.ShowObjects),
        ("ALTER TABLE users ADD COLUMN a INT", ast.AlterAddColumn),
        ("ALTER TABLE t UNSAFE SET (topic = 'x')", ast.AlterTableUnsafeSet),
        ("ALTER SOURCE s RENAME TO t", ast.AlterRename),
        ("SET unsafe_confirmation = 'yes'", ast.SetParameter),
        ("SHOW unsafe_confirmation", ast.ShowParameter),
        ("EXPLAIN DROP TABLE users", ast.Explain),
        ("EXPLAIN RESET SOURCE SPLITS s", ast.Explain),
        ("FLUSH", ast.Flush),
        ("BEGIN UNSAFE", ast.BeginUnsafe),
        ("CREATE MATERIALIZED VIEW v AS SELECT 1", ast.CreateMaterializedView),
    ],
)
def test_taken(text: str, kind: type[ast.Statement]) -> None:
    assert isinstance(taken(text), kind)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE SOURCE",
        "CREATE SOURCE s (a INT",
        "CREATE TABLE t (a INT) WITH (connector = 'kafka') FORMAT PLAIN",
        "CREATE TABLE t (a INT) INCLUDE nothing",
        "CREATE TABLE t a INT WITH (topic = 'x(', 'connector' = 'kafka', x = 'y",
        "CREATE TABLE t a INT WITH (topic = 'it''s (', /* connector */ connector = 'kafka')",
        'CREATE TABLE t a INT WITH ("connector" = "kafka")',
        "CREATE TABLE t (a INT) ON CONFLICT DO SOMETHING",
        "CREATE TABLE include.include (include INT) INCLUDE nothing",
        'CREATE TABLE "t" (a INT) INCLUDE nothing',
        "CREATE TABLE IF NOT EXISTS t (a INT) APPEND ONLY ONCE",
        "CREATE TABLE t (a INT, WATERMARK FOR a) USING delta",
        "CREATE OR REPLACE TABLE t INCLUDE key AS k INCLUDE",
        "ALTER TABLE t UNSAFE SET topic = 'x'",
        "ALTER TABLE ONLY db.unsafe CONNECTOR SET",
        "ALTER TABLE t DROP CONNECTOR now",
        "ALTER TABLE t ALTER WATERMARK FOR a",
        "ALTER TABLE t SWAP t2",
        "ALTER TABLE users DROP COLUMN",
        "DROP TABLE users users",
        "REFRESH TABLE users now",
        "SET unsafe_confirmation 'yes'",
        "SHOW SOURCE SPLITS",
        "EXPLAIN CREATE SOURCE s",
        "PAUSE SOURCE",
        "FLUSH; FLUSH",
        "DROP SOURCE a; SELECT 1",
        "CREATE SOURCE s (a INT) WITH (x = 'y",
    ],
)
def test_our_slips_are_ours(text: str) -> None:
    with pytest.raises(SqlError):
        taken(text)


@pytest.mark.parametrize(
    "text",
    [
        "DESCRIBE HISTORY v",
        "DESC DETAIL v",
        "desc history delta.`/path`",
        "DESCRIBE EXTENDED v",
        "DESC FORMATTED db.v",
    ],
)
def test_an_object_may_have_the_name_of_a_word_of_spark(text: str) -> None:
    class Named(Catalog):
        def has_object(self, name: ast.Name) -> bool:
            return name.last in ("history", "detail", "extended", "formatted")

    assert route(text, Named()) is None
    assert isinstance(route("DESCRIBE history", Named()), ast.Describe)
    with pytest.raises(SqlError):
        route('DESCRIBE "history" v', Named())


def test_the_first_look_is_quick() -> None:
    texts = ["SELECT * FROM t WHERE a = 1", "INSERT INTO t VALUES (1)", "WITH a AS (SELECT 1) SELECT * FROM a"]
    best = min(
        timeit.repeat(lambda: [could_be_ours(text) for text in texts], number=2000, repeat=5, timer=time.process_time)
    )
    assert best / (2000 * len(texts)) < 2e-6


@pytest.mark.parametrize(
    ("text", "is_plan", "is_definition"),
    [
        ("EXPLAIN SELECT 1", True, False),
        ("/* a */ explain\n(FORMAT SVG) PAUSE SOURCE s", True, False),
        ("-- EXPLAIN\nSELECT plan FROM t", False, False),
        ("SELECT 1 AS explain", False, False),
        ("explained", False, False),
        ("-- the source\nSHOW /* its */ CREATE SOURCE s", False, True),
        ("SHOW CREATED", False, False),
    ],
)
def test_the_first_words_show_what_a_result_contains(text: str, is_plan: bool, is_definition: bool) -> None:
    assert (is_explain(text), is_show_create(text)) == (is_plan, is_definition)
