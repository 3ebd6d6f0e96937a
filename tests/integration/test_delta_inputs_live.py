"""Views and sinks over the user's own Delta tables."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import SqlError
from tests.integration.attached import AttachedSession, wait_until
from tests.support.spark_settings import FEW_ROWS
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.s3_store import S3Store

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_changes_of_a_users_table_reach_views_and_sinks(session: AttachedSession, tmp_path: Path) -> None:
    own = tmp_path / "own orders"
    where = f"delta.`{own}`"
    feed = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    session.run(
        f"CREATE TABLE {where} (id INT, n INT) USING delta {feed}",
        f"INSERT INTO {where} VALUES (1, 10), (2, 20), (2, 21)",
        f"CREATE MATERIALIZED VIEW total AS SELECT count(*) AS rows, sum(n) AS n FROM {where}",
        f"CREATE MATERIALIZED VIEW big AS SELECT id, n FROM {where} WHERE n > 15",
    )
    assert session.flushed_rows_of("total") == [(3, 51)]
    session.run(
        f"UPDATE {where} SET n = n + 100 WHERE id = 1",
        f"DELETE FROM {where} WHERE n = 21",
        f"INSERT INTO {where} VALUES (3, 1)",
    )
    assert session.flushed_rows_of("total") == [(3, 131)]
    assert session.rows_of("big") == [(1, 110), (2, 20)]


@pytest.mark.alone
def test_appends_flow_without_a_change_feed_and_anything_else_says_what_to_type(session: AttachedSession) -> None:
    session.run(
        "CREATE TABLE shop_events (id INT) USING delta",
        "CREATE MATERIALIZED VIEW seen AS SELECT id FROM shop_events",
        "INSERT INTO shop_events VALUES (1), (2)",
    )
    try:
        assert session.flushed_rows_of("seen") == [(1,), (2,)]
        session.run("INSERT INTO shop_events VALUES (3)")
        assert session.flushed_rows_of("seen") == [(1,), (2,), (3,)]
        session.run("DELETE FROM shop_events WHERE id = 2")
        wait_until(lambda: session.job("seen").state == "STALLED", "the view stands still")
        reason = session.job("seen").reason
        assert reason.startswith("CHANGED shop_events: ")
        enable, drop = reason.partition("shows which: ")[2].removesuffix(" and create it again").split("; ")
        session.run(enable, drop, "CREATE MATERIALIZED VIEW seen AS SELECT id FROM shop_events")
        assert session.flushed_rows_of("seen") == [(1,), (3,)]
        session.run("DELETE FROM shop_events WHERE id = 1")
        assert session.flushed_rows_of("seen") == [(3,)]
    finally:
        session.run("DROP MATERIALIZED VIEW IF EXISTS seen", "DROP TABLE shop_events")


def test_a_join_with_a_table_of_the_current_database_needs_its_full_name(session: AttachedSession) -> None:
    session.run(
        "CREATE DATABASE sales_with_dim",
        "CREATE TABLE sales_with_dim.dim USING delta AS SELECT 1 AS id, 'of sales' AS name",
        "CREATE TABLE dim USING delta AS SELECT 1 AS id, 'of default' AS name",
        "CREATE TABLE joined_ids (id INT) USING delta",
        "CREATE MATERIALIZED VIEW ids AS SELECT id FROM joined_ids",
        "USE sales_with_dim",
    )
    try:
        with pytest.raises(SqlError) as caught:
            session.run("CREATE MATERIALIZED VIEW names AS SELECT ids.id, name FROM ids JOIN dim ON ids.id = dim.id")
        assert caught.value.hint == "write `spark_catalog`.`sales_with_dim`.`dim`"
        session.run(
            "CREATE MATERIALIZED VIEW names AS SELECT ids.id, name FROM ids JOIN "
            "`spark_catalog`.`sales_with_dim`.`dim` ON ids.id = dim.id",
            "INSERT INTO default.joined_ids VALUES (1)",
            "USE default",
        )
        assert session.flushed_rows_of("names") == [(1, "of sales")]
    finally:
        session.run(
            "USE default",
            "DROP MATERIALIZED VIEW IF EXISTS names",
            "DROP MATERIALIZED VIEW IF EXISTS ids",
            "DROP TABLE joined_ids",
            "DROP TABLE dim",
            "DROP DATABASE sales_with_dim CASCADE",
        )


_BESIDE_A_STORE = """
import sys

import rw_sql

spark = rw_sql.connect(sys.argv[1], config=dict(setting.split("=", 1) for setting in sys.argv[3:]))
own = f"delta.`{sys.argv[2]}`"


def show(view):
    spark.sql("FLUSH").collect()
    print(view, sorted(tuple(row) for row in spark.sql(f"SELECT * FROM {view}").collect()))


spark.sql(f"CREATE TABLE {own} (id INT, n INT) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)")
spark.sql(f"INSERT INTO {own} VALUES (1, 10), (2, 20)")
spark.sql(f"CREATE MATERIALIZED VIEW total AS SELECT count(*) AS rows, sum(n) AS n FROM {own}").collect()
spark.sql(f"CREATE MATERIALIZED VIEW big AS SELECT id, n FROM {own} WHERE n > 15").collect()
show("total")
show("big")
spark.sql(f"UPDATE {own} SET n = n + 100 WHERE id = 1")
spark.sql(f"INSERT INTO {own} VALUES (3, 1)")
show("total")
show("big")
print(sorted((row.job[:2], row.lag) for row in spark.sql("SHOW JOBS").collect()))
spark.sql("REBUILD MATERIALIZED VIEW total REASON 'a test'").collect()
spark.sql("WAIT").collect()
show("total")
"""


def test_a_table_in_a_store_reaches_the_views_of_a_local_warehouse(s3_store: S3Store, tmp_path: Path) -> None:
    settings = {**FEW_ROWS, **s3_store.spark_settings()}
    table = s3_store.warehouse().replace("s3://", "s3a://")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        [sys.executable, "-c", _BESIDE_A_STORE, str(tmp_path), table, *(f"{k}={v}" for k, v in settings.items())],
        env=environment | dict(s3_store.environment()),
        stdout=subprocess.PIPE,
        text=True,
        timeout=LAST_RESORT_SECONDS,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "total [(2, 30)]",
        "big [(2, 20)]",
        "total [(3, 131)]",
        "big [(1, 110), (2, 20)]",
        "[('mv', 0), ('mv', 0)]",
        "total [(3, 131)]",
    ]
