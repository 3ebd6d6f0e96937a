"""Fixtures for the tests of the RabbitMQ connector."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.support.rabbitmq_server import RabbitServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def stream(rabbit_server: RabbitServer) -> Iterator[str]:
    """The name of a stream that no other test uses, and that the test may create."""
    name = f"s{uuid4().hex[:10]}"
    yield name
    with suppress(Exception):
        rabbit_server.delete(name)
