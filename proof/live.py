"""Provides one Spark and one broker for all seeds of a process, because starting Spark and the broker takes as long as
many seeds."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import rw_sql
from rw_sql.cli.servers.kafka_broker import BrokerInfo, start_broker, stop_broker
from tests.integration.attached import AttachedSession
from tests.support.nats_server import NatsServer, nats_running
from tests.support.spark_settings import FEW_ROWS


@cache
def broker() -> BrokerInfo:
    """The broker of this process, which ends together with the process. It compacts topics at once."""
    folder = _folder("proof-broker-")
    started = start_broker(folder / "broker", port=0, extra={"log.cleaner.backoff.ms": "200"})
    atexit.register(stop_broker, folder / "broker")
    return started


@cache
def nats() -> NatsServer:
    """The NATS server of this process, which ends together with the process."""
    ending = ExitStack()
    server = ending.enter_context(nats_running())
    atexit.register(ending.close)
    return server


@cache
def spark() -> SparkSession:
    """The Spark of this process, without an attached warehouse."""
    session = rw_sql.connect(str(_folder("proof-warehouse-")), config=FEW_ROWS)
    rw_sql.detach(session)
    atexit.register(session.stop)
    return session


@contextmanager
def attached(warehouse: Path) -> Iterator[AttachedSession]:
    """A context manager that attaches the Spark of this process to a new warehouse. Afterwards, nothing of the
    warehouse remains in Spark."""
    session = AttachedSession(spark(), str(warehouse))
    try:
        yield session
    finally:
        session.detach()
        jvm: Any = spark()._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def _folder(prefix: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
