"""Fixtures for the tests of the NATS connector."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.support.nats_server import NatsServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def stream(nats_server: NatsServer) -> Iterator[str]:
    """The name of a stream that no other test uses, and that the test may create."""
    name = f"S{uuid4().hex[:10]}"
    yield name
    with suppress(Exception):
        nats_server.delete(name)
