"""What every test can use."""

import gc

import pytest
from hypothesis import settings

from rw_sql.cli.process_cleanup import keep_tidy

pytest_plugins = [
    "tests.support.broker",
    "tests.support.kafka_connect",
    "tests.support.kinesis_server",
    "tests.support.mqtt_broker",
    "tests.support.mysql",
    "tests.support.nats_server",
    "tests.support.one_spark",
    "tests.support.placement",
    "tests.support.postgres",
    "tests.support.pulsar_server",
    "tests.support.rabbitmq_server",
    "tests.support.schema_registry",
    "tests.support.secured",
    "tests.support.seeds",
]

# Asserts outside of test modules tell what differs, too.
pytest.register_assert_rewrite("tests.integration", "tests.plan")

# How long an example takes says how busy the machine is, and nothing of what is tested.
settings.register_profile("rw_sql", deadline=None)
settings.load_profile("rw_sql")


def pytest_configure() -> None:
    """Whatever ends this run, a killed shell included, nothing that it started outlives it."""
    keep_tidy()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Excludes the modules and the collected tests from garbage collection, because they last until the run ends."""
    gc.collect()
    gc.freeze()
