"""The names that Spark statements would change, and the refusals for rw_sql's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.plan.checks.spark_changes import (
    catalog_refusal,
    change_refusal,
    companion_owner,
    companion_refusal,
    found_object,
    path_refusal,
)
from rw_sql.syntax.dialect.spark_changes import changed_names
from tests.conftest import FIXTURES, rendered
from tests.plan.canned import HERE, CannedWorld, create_source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("DROP VIEW totals", [("DROP VIEW", "totals")]),
        ("drop /* it */ view if exists `default`.totals", [("DROP VIEW", "default.totals")]),
        ("DROP TABLE spark_catalog . default .\n`to``tals`", [("DROP TABLE", "spark_catalog.default.to`tals")]),
        ("DROP VIEW IDENTIFIER( 'default.totals' )", [("DROP VIEW", "default.totals")]),
        ("DROP SCHEMA rw_catalog CASCADE", [("DROP DATABASE", "rw_catalog")]),
        ("-- all\nDELETE FROM totals WHERE n = 1", [("DELETE FROM", "totals")]),
        ("UPDATE totals SET n = 1", [("UPDATE", "totals")]),
        ("MERGE WITH SCHEMA EVOLUTION INTO totals USING s ON true", [("MERGE", "totals")]),
        ("INSERT INTO totals VALUES (1)", [("INSERT", "totals")]),
        ("INSERT OVERWRITE TABLE totals SELECT 1", [("INSERT", "totals")]),
        ("LOAD DATA LOCAL INPATH 'x' OVERWRITE INTO TABLE totals", [("LOAD", "totals")]),
        ("TRUNCATE TABLE totals", [("TRUNCATE TABLE", "totals")]),
        ("ALTER VIEW totals AS SELECT 1", [("ALTER VIEW", "totals")]),
        ("ALTER TABLE totals SET TBLPROPERTIES ('a' = 'b')", [("ALTER TABLE", "totals")]),
        ("CREATE OR REPLACE VIEW totals AS SELECT 1", [("CREATE OR REPLACE VIEW", "totals")]),
        ("CREATE TABLE IF NOT EXISTS totals USING delta AS SELECT 1", [("CREATE TABLE", "totals")]),
        ("OPTIMIZE totals", [("OPTIMIZE", "totals")]),
        ("VACUUM totals RETAIN 0 HOURS", [("VACUUM", "totals")]),
        ("RESTORE TABLE totals TO VERSION AS OF 0", [("RESTORE TABLE", "totals")]),
        ("CACHE LAZY TABLE totals", [("CACHE LAZY TABLE", "totals")]),
        ("CREATE INDEX IF NOT EXISTS i ON TABLE totals (a)", [("CREATE INDEX", "totals")]),
        ("WITH a AS (SELECT 'INSERT INTO z') INSERT INTO totals SELECT * FROM a", [("INSERT", "totals")]),
        ("FROM a INSERT INTO x SELECT 1 INSERT OVERWRITE y SELECT 2", [("INSERT", "x"), ("INSERT", "y")]),
        ("BEGIN DROP VIEW x; DELETE FROM y; END", [("DROP VIEW", "x"), ("DELETE FROM", "y")]),
        ("EXECUTE IMMEDIATE 'DROP VIEW totals'", [("DROP VIEW", "totals")]),
        ("EXECUTE IMMEDIATE 'DROP VIEW IDENTIFIER(\\'totals\\')'", [("DROP VIEW", "totals")]),
        ("CREATE OR REPLACE TEMP VIEW totals AS SELECT 1", [("CREATE OR REPLACE TEMP VIEW", "totals")]),
        ("create or replace\n temporary view `totals` as select 1", [("CREATE OR REPLACE TEMPORARY VIEW", "totals")]),
        ('DROP VIEW "totals"', [("DROP VIEW", "totals")]),
        ('DROP VIEW IDENTIFIER("totals")', [("DROP VIEW", "totals")]),
        ("INSERT INTO table_x VALUES (1)", [("INSERT", "table_x")]),
        ("INSERT INTO TABLE `s$errors` VALUES (1)", [("INSERT", "s$errors")]),
        ("DELETE FROM delta.`/w/data/9/1`", [("DELETE FROM", "delta./w/data/9/1")]),
        ("UPDATE delta . `/w/data/9/1` SET n = 1", [("UPDATE", "delta./w/data/9/1")]),
        ("MERGE INTO delta.`/w/data/9/1` t USING s ON true", [("MERGE", "delta./w/data/9/1")]),
        ("VACUUM '/w/data/9/1' RETAIN 0 HOURS", [("VACUUM", "/w/data/9/1")]),
        ("INSERT OVERWRITE LOCAL DIRECTORY '/w/data/9/1' SELECT 1", [("INSERT", "/w/data/9/1")]),
        ("INSERT OVERWRITE delta.`/w/data/9/1` SELECT 1", [("INSERT", "delta./w/data/9/1")]),
        # Statements that only read, or that create an object without a conflict with rw_sql's.
        ("SELECT 'DROP VIEW totals'", []),
        ("WITH a AS (SELECT 1) SELECT 'INSERT INTO totals'", []),
        ("CREATE TEMP VIEW totals AS SELECT 1", []),
        ("CREATE GLOBAL TEMPORARY VIEW totals AS SELECT 1", []),
        ("CACHE TABLE totals AS SELECT 1", []),
        ("UNCACHE TABLE totals", []),
        ("REFRESH TABLE totals", []),
        ("DROP FUNCTION totals", []),
        ("ANALYZE TABLE totals COMPUTE STATISTICS", []),
        ("INSERT INTO other SELECT * FROM totals", [("INSERT", "other")]),
    ],
)
def test_the_names_that_a_statement_changes(text: str, found: list[tuple[str, str]]) -> None:
    changes = list(changed_names(text))
    assert [(change.verb, ".".join(change.parts)) for change in changes] == found
    for change in changes:
        assert text[change.span.start : change.span.end].strip('`"').endswith(change.parts[-1].replace("`", "``"))


def test_each_refusal_names_the_statement_that_is_right(recorded: Callable[[Path, str], None]) -> None:
    world = CannedWorld()
    world.put_topic("t", (0, 10))
    world.run(create_source("s", "t"), "CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n FROM s")
    world.run(
        "CREATE TABLE k (id INT PRIMARY KEY) WITH (connector = 'kafka', topic = 't', "
        f"properties.bootstrap.server = '{HERE}') FORMAT PLAIN ENCODE JSON"
    )
    world.run(
        f"CREATE SINK late FROM s WITH (connector = 'kafka', topic = 't', properties.bootstrap.server = '{HERE}') "
        "FORMAT PLAIN ENCODE JSON"
    )
    told = []
    for text in (
        "DROP VIEW IF EXISTS totals",
        "DROP TABLE default.Totals",
        "ALTER VIEW totals AS SELECT 1",
        "CREATE OR REPLACE VIEW totals AS SELECT 1",
        "INSERT INTO totals VALUES (1)",
        "CACHE TABLE totals",
        "DROP VIEW k",
        "MERGE INTO k USING x ON true WHEN MATCHED THEN DELETE",
        "DROP VIEW s",
        "DELETE FROM s",
        "CREATE OR REPLACE TEMP VIEW totals AS SELECT 1",
        "VACUUM totals",
        "TRUNCATE TABLE totals",
        "CREATE INDEX by_customer ON totals (customer)",
        "EXECUTE IMMEDIATE 'DROP TABLE k'",
    ):
        (change,) = changed_names(text)
        record = found_object(world.snapshot, change.parts[-1])
        assert record is not None
        error = change_refusal(change, record)
        assert error is not None
        told.append(f"{text}\n\n{rendered(error.located(text))}")
    (change,) = changed_names("DROP VIEW rw_catalog.rw_sources")
    told.append(rendered(catalog_refusal(change, "rw_catalog.rw_sources").located("DROP VIEW rw_catalog.rw_sources")))
    for text in (
        "DROP VIEW `s$errors`",
        "DROP VIEW `K$Errors`",
        "DELETE FROM `s$errors`",
        "DROP VIEW IF EXISTS `late$rejected`",
        "DROP VIEW `gone$rejected`",
    ):
        (change,) = changed_names(text)
        name = change.parts[-1]
        error = companion_refusal(change, name, companion_owner(world.snapshot, name))
        told.append(f"{text}\n\n{rendered(error.located(text))}")
    for text, path, of in (
        ("DELETE FROM delta.`/w/data/2/1`", "/w/data/2/1", found_object(world.snapshot, "totals")),
        ("TRUNCATE TABLE delta.`/w/data/1/1`", "/w/data/1/1", found_object(world.snapshot, "s")),
        ("VACUUM '/w/rw_catalog/operations'", "/w/rw_catalog/operations", None),
        ("VACUUM '/w/rw_catalog/objects'", "/w/rw_catalog/objects", None),
    ):
        (change,) = changed_names(text)
        assert change.is_path
        told.append(f"{text}\n\n{rendered(path_refusal(change, path, of).located(text))}")
    recorded(FIXTURES / "errors" / "spark_changes.txt", "\n\n".join(told))
    (change,) = changed_names("CREATE TABLE s USING delta AS SELECT 1")
    source = found_object(world.snapshot, "s")
    assert source is not None
    assert change_refusal(change, source) is None


def test_only_tables_sources_and_sinks_have_views_of_refused_records() -> None:
    world = CannedWorld()
    world.put_topic("t", (0, 10))
    world.run(create_source("s", "t"), "CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n FROM s")
    for name in ("totals$errors", "s$rejected", "s", "$errors", "other$errors"):
        assert companion_owner(world.snapshot, name) is None
    assert companion_owner(world.snapshot, "S$ERRORS") == found_object(world.snapshot, "s")
