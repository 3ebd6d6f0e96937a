"""Fetches every jar that the tests need, and makes Spark's classes quick to load: ``python -m tests.jars``.

A Spark JVM spends half of its first half minute on reading and checking some 20,000 classes. Java can keep them as it
made them (a dynamic CDS archive, JEP 350); every JVM of the tests then maps that file. One that does not fit, after
another Java or pyspark was installed, is passed over without a word, and all is as slow as without.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import rw_sql
from rw_sql.cli.kafka_broker import kafka_class_path
from rw_sql.connectors.registry import connector
from rw_sql.runtime.spark_sessions import SparkSessions
from tests.java import CLASSES, JAVA_OPTIONS

_ROWS = "CREATE SOURCE s (id INT, part INT) WITH (connector = 'datagen', datagen.rows.total = '1000')"
_VIEWS = (
    "CREATE MATERIALIZED VIEW appended AS SELECT * FROM s WHERE id > 5",
    "CREATE MATERIALIZED VIEW grouped AS SELECT part, count(*) AS n FROM s GROUP BY part",
)


def main() -> None:
    """Kafka's broker by its own way, Delta's and the Kafka reader's as a session takes them."""
    kafka_class_path()
    with TemporaryDirectory() as warehouse:
        spark = rw_sql.connect(warehouse, run_jobs=False, config={"spark.ui.enabled": "false"})
        SparkSessions(spark).load(connector("kafka").spark_packages())
        rw_sql.detach(spark)
        spark.stop()
    Path(CLASSES).unlink(missing_ok=True)
    subprocess.run(
        [sys.executable, "-m", "tests.jars", "use"],
        env={**os.environ, "SPARK_SUBMIT_OPTS": f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={CLASSES}"},
        stdout=subprocess.DEVNULL,
        check=True,
    )


def use() -> None:
    """What most tests do: a source, views that append and that replace, and a query on each."""
    with TemporaryDirectory() as warehouse:
        spark = rw_sql.connect(
            warehouse, config={"spark.ui.enabled": "false", "spark.master": "local[2]", "spark.driver.memory": "1g"}
        )
        for text in (_ROWS, *_VIEWS, "FLUSH", "SELECT count(*) FROM appended", "SELECT * FROM grouped"):
            spark.sql(text).collect()
        rw_sql.detach(spark)
        spark.stop()


if __name__ == "__main__":
    use() if sys.argv[1:] == ["use"] else main()
