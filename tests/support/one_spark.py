"""The one Spark session of a process of tests, and an object store for warehouses if requested.

A separate session would cost a test ten seconds, and its JVM would need half a minute to load its classes. Tests
therefore share one session where this is possible. Import it by ``pytest_plugins = ["tests.support.one_spark"]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.spark_settings import FEW_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.support.s3_store import S3Store


@pytest.fixture(scope="session")
def s3_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Store]:
    """An S3 store. Processes that are started afterwards find the store through their environment."""
    # The import is here, so that runs without Spark do not wait for it.
    from tests.support.s3_store import store_of_the_environment

    with store_of_the_environment(tmp_path_factory.mktemp("s3")) as store:
        yield store


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of this process, without an attached warehouse."""
    import rw_sql

    settings = dict(FEW_ROWS)
    if request.config.getoption("--warehouse") == "s3":
        settings |= request.getfixturevalue("s3_store").spark_settings()
    session = rw_sql.connect(str(tmp_path_factory.mktemp("first")), config=settings)
    rw_sql.detach(session)
    yield session
    rw_sql.detach(session)
    session.stop()
