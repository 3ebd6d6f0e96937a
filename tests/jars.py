"""Fetches every jar that the tests need, in one process: ``python -m tests.jars``."""

from __future__ import annotations

from tempfile import TemporaryDirectory

import rw_sql
from rw_sql.cli.kafka_broker import kafka_class_path
from rw_sql.connectors.registry import connector
from rw_sql.runtime.spark_sessions import SparkSessions


def main() -> None:
    """Kafka's broker by its own way, Delta's and the Kafka reader's as a session takes them."""
    kafka_class_path()
    with TemporaryDirectory() as warehouse:
        spark = rw_sql.connect(warehouse, run_jobs=False, config={"spark.ui.enabled": "false"})
        SparkSessions(spark).load(connector("kafka").spark_packages())
        spark.stop()


if __name__ == "__main__":
    main()
