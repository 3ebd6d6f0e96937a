"""Fixtures of a real Kafka broker, one for the whole session.

Import them by ``pytest_plugins = ["tests.support.broker"]``.

Tests share the broker, but never a topic. Therefore, :func:`topic_name` gives each test a unique name.
"""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_broker import BrokerInfo, start_broker, stop_broker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerInfo]:
    """A broker on a free port with its data in a temporary folder. Compacted topics are cleaned at once."""
    yield from _running(tmp_path_factory, "broker", {"log.cleaner.backoff.ms": "200"})


@pytest.fixture(scope="session")
def second_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerInfo]:
    """A second cluster, to which tests move sources."""
    yield from _running(tmp_path_factory, "second_broker")


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses."""
    readable = re.sub(r"[^A-Za-z0-9_.-]+", "_", request.node.name)[:60]
    return f"{readable}.{uuid.uuid4().hex[:8]}"


def _running(
    tmp_path_factory: pytest.TempPathFactory, name: str, extra: Mapping[str, str] | None = None
) -> Iterator[BrokerInfo]:
    folder = tmp_path_factory.mktemp(name)
    yield start_broker(folder, port=0, extra=extra or {})
    stop_broker(folder)
