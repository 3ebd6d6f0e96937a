"""Fetches every jar that the tests need, and makes Spark's classes load faster: ``python -m tests.support.jars``.

A Spark JVM spends half of its first half minute on reading and checking some 28,000 classes; it generates 7,000 of them
itself for Scala's functions. Java can store most of the other classes in their loaded form (a dynamic CDS archive, JEP
350). Here, the archive contains the classes of a process that does the same as most tests. Every JVM of the tests then
maps the archive. After another Java or pyspark was installed, the archive does not match. Java silently ignores such an
archive, and the JVM starts as slowly as without an archive.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark import SparkContext

import rw_sql
from rw_sql.cli.process_cleanup import keep_tidy
from rw_sql.cli.servers.kafka_broker import kafka_class_path, start_broker, stop_broker
from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce
from rw_sql.cli.servers.schema_registry import registry_runner
from rw_sql.connectors.registry import connector
from rw_sql.errors import SqlError
from rw_sql.runtime.spark.sessions import SparkSessions
from rw_sql.spark_jars import installed_jars
from tests.support.java import CLASSES, JAVA_OPTIONS
from tests.support.kafka_connect import CONNECTOR, CONVERTER
from tests.support.maven import MissingJarsError, fetched_jars
from tests.support.s3_store import S3_JARS
from tests.support.spark_settings import FEW_ROWS

_TOPICS = {"old": 2, "new": 3}
_STATEMENTS = (
    "CREATE SOURCE s (id INT, part INT) INCLUDE offset AS off WITH (connector = 'kafka', topic = 'old',"
    " properties.bootstrap.server = '{bootstrap}') FORMAT PLAIN ENCODE JSON",
    "CREATE MATERIALIZED VIEW appended AS SELECT * FROM s WHERE id > 5",
    "CREATE MATERIALIZED VIEW grouped AS SELECT part, count(*) AS n, sum(id) AS ids FROM s GROUP BY part",
    "CREATE TABLE t (id INT PRIMARY KEY, part INT) WITH (connector = 'kafka', topic = 'new',"
    " properties.bootstrap.server = '{bootstrap}') FORMAT UPSERT ENCODE JSON",
    "CREATE MATERIALIZED VIEW joined AS SELECT s.id, t.part FROM s JOIN t ON s.id = t.id",
    "ALTER SYSTEM SET enable_unsafe_ops = true",
    "FLUSH",
    "PAUSE SOURCE s",
    "ALTER SOURCE s UNSAFE SET (topic = 'new')",
    "RESET SOURCE SPLITS s",
    "INJECT SOURCE OFFSETS s VALUES ('new:0' = 1)",
    "RESUME SOURCE s",
    "FLUSH",
    "SHOW SOURCE SPLITS s",
    "SHOW JOBS",
    "SELECT * FROM rw_catalog.rw_operations",
    "SELECT count(*) FROM appended",
    "SELECT * FROM grouped ORDER BY part",
    "SELECT * FROM joined",
)


def main() -> None:
    """Fetches Kafka's broker, a schema registry and Debezium if these are available, and the jars of Delta and of the
    readers in the same way as a session does."""
    kafka_class_path()
    with suppress(SqlError):  # Tests that need the missing jars are left out, and the summary names these tests.
        registry_runner()
    with suppress(MissingJarsError):
        fetched_jars(*CONNECTOR, CONVERTER)
    fetch_spark()
    # A separate process, because the jars of a file system must be present from the start of a JVM.
    subprocess.run([sys.executable, "-m", "tests.support.jars", "s3"], stdout=subprocess.DEVNULL, check=True)
    Path(CLASSES).unlink(missing_ok=True)
    subprocess.run(
        [sys.executable, "-m", "tests.support.jars", "use"],
        env={**os.environ, "SPARK_SUBMIT_OPTS": f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={CLASSES}"},
        stdout=subprocess.DEVNULL,
        check=True,
    )


def fetch_spark() -> None:
    """Starts a session with Delta's jars, and loads the jars of Spark's readers."""
    with TemporaryDirectory() as warehouse:
        spark = rw_sql.connect(warehouse, run_jobs=False, config={"spark.ui.enabled": "false"})
        SparkSessions(spark).load((*connector("kafka").spark_packages(), installed_jars().avro))
        rw_sql.detach(spark)
        spark.stop()


def use() -> None:
    """Uses the features that most tests use: a moved source, a table, views that append, replace and join, and
    queries."""
    with TemporaryDirectory() as folder:
        broker = start_broker(Path(folder) / "kafka", port=0)
        try:
            for topic, partitions in _TOPICS.items():
                create_topic(broker.bootstrap, topic, partitions)
                rows = ({"id": id_, "part": id_ % 3} for id_ in range(100))
                records = [Record(key=b'{"id":%d}' % row["id"], value=json.dumps(row).encode()) for row in rows]
                produce(broker.bootstrap, topic, records)
            spark = rw_sql.connect(f"{folder}/warehouse", config=FEW_ROWS)
            rw_sql.attach(spark, f"{folder}/warehouse").ask = lambda _: True
            for text in _STATEMENTS:
                spark.sql(text.format(bootstrap=broker.bootstrap)).collect()
            rw_sql.detach(spark)
            spark.stop()
            wait_for_jvm()
        finally:
            stop_broker(Path(folder) / "kafka")


def fetch_s3() -> None:
    """Starts a session with the jars of S3's file system."""
    with TemporaryDirectory() as folder:
        rw_sql.connect(folder, run_jobs=False, config={"spark.ui.enabled": "false", **S3_JARS}).stop()


def wait_for_jvm() -> None:
    """Returns once the JVM has ended, because the JVM writes its classes at its end."""
    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    process = gateway.proc
    process.stdin.close()
    process.wait(300)


if __name__ == "__main__":
    keep_tidy()
    {"use": use, "s3": fetch_s3, "spark": fetch_spark}.get("".join(sys.argv[1:]), main)()
