"""Certificates and keys that cannot be loaded: the message names the option, not the server."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.mqtt.source import MqttConnector
from rw_sql.connectors.rabbitmq.source import RabbitConnector
from rw_sql.connectors.support.connections.tls import tls_context

if TYPE_CHECKING:
    from pathlib import Path

_PEM = "-----BEGIN CERTIFICATE-----\nc3VwZXJzZWNyZXQ=\n-----END CERTIFICATE-----"
_KEY = "-----BEGIN PRIVATE KEY-----\nc3VwZXJzZWNyZXQ=\n-----END PRIVATE KEY-----"

CASES = [
    ({"tls.ca": "/no/ca.pem"}, 'property "tls.ca" (/no/ca.pem) cannot be loaded: No such file or directory'),
    ({"tls.ca": "fs:///no/ca.pem"}, 'property "tls.ca" (/no/ca.pem) cannot be loaded: No such file or directory'),
    ({"tls.ca": _PEM}, 'property "tls.ca" cannot be loaded: '),
    ({"tls.client_cert": "/no/c.pem"}, 'property "tls.client_cert" (/no/c.pem) cannot be loaded: No such file'),
    (
        {"tls.client_cert": "/no/c.pem", "tls.client_key": "c3VwZXJzZWNyZXQ="},
        'properties "tls.client_cert" (/no/c.pem) and "tls.client_key" cannot be loaded: No such file',
    ),
    ({"tls.client_cert": f"subject=x\n{_KEY}"}, 'property "tls.client_cert" cannot be loaded: '),
    ({"tls.client_cert": _PEM, "tls.client_key": _KEY}, 'properties "tls.client_cert" and "tls.client_key" cannot be'),
]


@pytest.mark.parametrize(("options", "told"), CASES)
def test_the_message_names_the_option_and_its_file_but_no_key(options: dict[str, str], told: str) -> None:
    with pytest.raises(OSError, match="cannot be loaded") as caught:
        tls_context(options)
    assert str(caught.value).startswith(told)
    assert "c3VwZXJzZWNyZXQ" not in str(caught.value)


def test_a_file_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("nothing")
    with pytest.raises(OSError, match=f'property "tls.ca" \\({file}\\) cannot be loaded: '):
        tls_context({"tls.ca": str(file)})


@pytest.mark.parametrize(("options", "told"), CASES)
def test_a_look_returns_the_error_of_a_certificate(options: dict[str, str], told: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"127.0.0.1:{server.getsockname()[1]}"
        mqtt = MqttConnector().look({"url": f"ssl://{place}", "topic": "a", **options}, timeout=1)
        rabbit = RabbitConnector().look({"url": f"rabbitmq-stream+tls://{place}", "stream": "a", **options}, timeout=1)
    for seen in (mqtt, rabbit):
        assert seen.error is not None
        assert seen.error.startswith(told)
