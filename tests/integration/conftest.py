from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import rw_sql
from rw_sql.runtime import owner
from tests.integration.attached import AttachedSession
from tests.spark_settings import FEW_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of this process, attached to nothing."""
    session = rw_sql.connect(str(tmp_path_factory.mktemp("first")), config=FEW_ROWS)
    rw_sql.detach(session)
    yield session
    rw_sql.detach(session)
    session.stop()


@pytest.fixture
def made_code(spark: SparkSession) -> Iterator[None]:
    """Spark makes code, as users' sessions do: without, its ``catalog.listTables`` cannot decode its own rows."""
    before = {key: FEW_ROWS[key] for key in ("spark.sql.codegen.factoryMode", "spark.sql.codegen.wholeStage")}
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    spark.conf.set("spark.sql.codegen.wholeStage", "true")
    yield
    for key, value in before.items():
        spark.conf.set(key, value)


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Iterator[AttachedSession]:
    """The Spark session attached to an empty warehouse, whose jobs this process runs."""
    attached = AttachedSession(spark, str(tmp_path / "warehouse"))
    yield attached
    attached.detach()
    # Delta keeps what it knows of every table for an hour: of tables that nobody reads again, by the hundred.
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


@pytest.fixture
def quick_discovery(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner looks at upstreams twice a second, so that a test need not wait for its tick."""
    monkeypatch.setattr(owner, "DISCOVERY_SECONDS", 0.5)
