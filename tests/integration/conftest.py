from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.cli.servers.kafka_broker import start_broker, stop_broker
from rw_sql.runtime.observe import upstream_watcher
from tests.integration.attached import AttachedSession
from tests.support.spark_settings import FEW_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rw_sql.cli.servers.kafka_broker import BrokerInfo


@pytest.fixture
def made_code(spark: SparkSession) -> Iterator[None]:
    """Makes Spark generate code, as in users' sessions. Without generated code, ``catalog.listTables`` cannot decode
    its own rows."""
    before = {key: FEW_ROWS[key] for key in ("spark.sql.codegen.factoryMode", "spark.sql.codegen.wholeStage")}
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    spark.conf.set("spark.sql.codegen.wholeStage", "true")
    yield
    for key, value in before.items():
        spark.conf.set(key, value)


@pytest.fixture
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The location of a test's warehouse: a folder of the test or, with ``--warehouse s3``, a path in a bucket."""
    if request.config.getoption("--warehouse") == "s3":
        return str(request.getfixturevalue("s3_store").warehouse())
    return str(tmp_path / "warehouse")


@pytest.fixture
def session(spark: SparkSession, warehouse: str) -> Iterator[AttachedSession]:
    """The Spark session, attached to an empty warehouse. This process runs the warehouse's jobs."""
    attached = AttachedSession(spark, warehouse)
    if "://" in warehouse:
        # The default time limit is too short, because a batch of a stateful view takes hundreds of requests, and the
        # tests' store is a single Python process.
        attached.run("SET statement_timeout = '300s'")
    yield attached
    attached.detach()
    # Delta would cache the state of every table for an hour. The tests make hundreds of tables that are never read
    # again.
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


@pytest.fixture
def quick_discovery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the owner check upstreams twice a second, so that a test need not wait for the usual interval."""
    monkeypatch.setattr(upstream_watcher, "DISCOVERY_SECONDS", 0.5)


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerInfo]:
    """A Kafka broker that no other test uses, for tests that stop it."""
    yield start_broker(tmp_path / "broker", port=0)
    stop_broker(tmp_path / "broker")
