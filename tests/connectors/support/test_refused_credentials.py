"""A credential with white space at its ends, which its client refuses, is in no error."""

from __future__ import annotations

import socket

import pytest

from rw_sql.connectors.iceberg.source import IcebergConnector
from rw_sql.connectors.kinesis.source import KinesisConnector
from rw_sql.connectors.support.private_files import SecretText

VALUES = ["hunter2\n", "hunter2\r\n", " hunter2"]


@pytest.fixture
def closed() -> str:
    """The address of a port at which nothing listens."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{made.getsockname()[1]}"


@pytest.mark.parametrize("key", ["catalog.token", "catalog.credential"])
@pytest.mark.parametrize("value", VALUES)
def test_iceberg_shows_no_refused_credential(value: str, key: str, closed: str) -> None:
    options = {"catalog.uri": closed, "database.name": "db", "table.name": "orders", key: SecretText(value)}
    found = IcebergConnector().look(options)
    assert found.error is not None
    assert "hunter2" not in found.error


@pytest.mark.parametrize("key", ["access_key_id", "secret_access_key", "session_token"])
@pytest.mark.parametrize("value", VALUES)
def test_kinesis_shows_no_refused_credential(value: str, key: str, closed: str) -> None:
    options = {
        "stream": "s",
        "aws.region": "eu-central-1",
        "endpoint": closed,
        "kinesis.sdk.max_retry_limit": "0",
        **{f"aws.credentials.{name}": "anything" for name in ("access_key_id", "secret_access_key", "session_token")},
        f"aws.credentials.{key}": value,
    }
    found = KinesisConnector().look(options, timeout=2)
    assert found.error is not None
    assert "hunter2" not in found.error
