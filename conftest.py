"""What every test can use."""

import gc
from collections.abc import Generator

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
    "tests.support.new_warehouses",
    "tests.support.one_spark",
    "tests.support.placement",
    "tests.support.postgres",
    "tests.support.pulsar_server",
    "tests.support.rabbitmq_server",
    "tests.support.schema_registry",
    "tests.support.secured",
    "tests.support.seeds",
    "tests.support.shared_imports",
]

# Asserts outside of test modules tell what differs, too.
pytest.register_assert_rewrite("tests.integration", "tests.plan")

# How long an example takes says how busy the machine is, and nothing of what is tested.
settings.register_profile("rw_sql", deadline=None)
settings.load_profile("rw_sql")


_COLLECTED_AFTER = (20_000, 20, 20)
"""Python collects garbage after this many new objects, in place of its default of 700. With the default, garbage
collection takes one thirtieth of the CPU time of the quick tests."""


def pytest_configure() -> None:
    """Whatever ends this run, a killed shell included, nothing that it started outlives it."""
    keep_tidy()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Pauses garbage collection while the tests are collected: nearly all that is made then lasts until the run ends.

    Garbage collection would take a fifth of the time. Afterwards, it ignores the modules and the collected tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_COLLECTED_AFTER)
