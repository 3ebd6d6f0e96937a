"""Errors of sessions and processes, with their recorded texts."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.open_block import open_block
from rw_sql.cli.servers.kafka_topics import create_topic
from rw_sql.errors import SqlError
from rw_sql.session.scripts import run_statements
from tests.conftest import FIXTURES, rendered
from tests.integration.attached import AttachedSession, produce_json
from tests.support.waits import LIFE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

ERRORS = FIXTURES / "errors"


def test_flush_where_nobody_runs_the_jobs(
    spark: SparkSession, broker: BrokerInfo, tmp_path: Path, recorded: Callable[[Path, str], None]
) -> None:
    create_topic(broker.bootstrap, "not_applied_yet", 1)
    produce_json(broker.bootstrap, "not_applied_yet", [{"id": 1}])
    session = AttachedSession(spark, str(tmp_path / "warehouse"), run_jobs=False)
    try:
        session.run(
            "SET statement_timeout = '200ms'",
            "CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = 'not_applied_yet', "
            f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        )
        answers = session.sql("CREATE MATERIALIZED VIEW m AS SELECT id FROM s")
        assert [(row.change, row.detail) for row in answers] == [
            ("CREATED", "append-only"),
            ("NOTICE", "committed, not yet applied"),
            (
                "NOTICE",
                f"no process runs the jobs: rw-sql serve --warehouse {tmp_path / 'warehouse'} applies the statement",
            ),
        ]
        assert {job.state for job in session.jobs().values()} == {"WAITING"}
        with pytest.raises(SqlError) as caught:
            session.sql("FLUSH")
    finally:
        session.detach()
    recorded(ERRORS / "not_applied_yet.txt", rendered(caught.value).replace(str(tmp_path), "FOLDER"))


def test_a_connection_that_wants_tls_of_a_broker_without(
    session: AttachedSession, broker: BrokerInfo, recorded: Callable[[Path, str], None]
) -> None:
    session.sql(f"CREATE CONNECTION c WITH (type = 'kafka', properties.bootstrap.server = '{broker.bootstrap}')")
    with pytest.raises(SqlError) as caught:
        session.sql("ALTER CONNECTION c SET (properties.security.protocol = 'ssl')")
    recorded(ERRORS / "broker_without_tls.txt", rendered(caught.value).replace(broker.bootstrap, "BROKER:9092"))
    assert "properties.security.protocol" not in session.sql("SHOW CREATE CONNECTION c")[0].create_sql


def test_a_script_whose_spark_statement_fails(session: AttachedSession, recorded: Callable[[Path, str], None]) -> None:
    script = "SHOW SOURCES;\n\nSELECT 1 AS one,\n       abs(array(1)) AS two\nFROM range(1);\n"
    with pytest.raises(SqlError) as caught:
        run_statements(session.spark, script, "script.sql", answer=None, on_result=lambda *_: None)
    recorded(ERRORS / "spark_error.txt", rendered(caught.value))


def test_a_script_that_ends_inside_of_a_block(session: AttachedSession, recorded: Callable[[Path, str], None]) -> None:
    session.allow_unsafe()
    run_statements(session.spark, "BEGIN UNSAFE;", "move.sql", answer=None, on_result=lambda *_: None)
    assert session.attached.block_state == "open"
    recorded(ERRORS / "block_left_open.txt", rendered(open_block("move.sql")))


PROGRAM = """
from pyspark.sql import SparkSession
import rw_sql

def told(act):
    try:
        act()
    except rw_sql.SqlError as error:
        print(error.render(), "SQLSTATE: " + error.sqlstate, sep="\\n")

"""


def printed(body: str, folder: Path) -> str:
    """The output of a separate program with its own Spark."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + body],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIFE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_session_without_delta(tmp_path: Path, recorded: Callable[[Path, str], None]) -> None:
    body = (
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "told(lambda: rw_sql.attach(spark, 'warehouse'))\n"
        "spark.stop()\n"
    )
    recorded(ERRORS / "delta_missing.txt", printed(body, tmp_path))


@pytest.mark.long
def test_a_session_that_was_stopped(tmp_path: Path, recorded: Callable[[Path, str], None]) -> None:
    body = (
        "spark = rw_sql.connect('warehouse', config={'spark.master': 'local[1]', 'spark.ui.enabled': 'false'})\n"
        "spark.stop()\n"
        "told(lambda: spark.sql('SHOW SOURCES'))\n"
    )
    recorded(ERRORS / "spark_ended.txt", printed(body, tmp_path))
