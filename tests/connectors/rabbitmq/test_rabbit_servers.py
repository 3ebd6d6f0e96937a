"""Servers of RabbitMQ that do not answer, that are started again, and that require a login or TLS."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.rabbitmq import client as rabbit_client
from rw_sql.connectors.rabbitmq.frames import Code, Fields, Reply
from rw_sql.errors import SqlError
from tests.connectors.rabbitmq.test_rabbit_source import RABBIT, offsets, options, read
from tests.support.certificates import issue, make_authority
from tests.support.rabbitmq_server import GUEST, RabbitServer, rabbit_running

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.connectors.rabbitmq.client import RabbitClient

pytestmark = pytest.mark.rabbitmq


def test_a_server_that_does_not_answer_and_another_that_does(rabbit_server: RabbitServer, stream: str) -> None:
    rabbit_server.create(stream)
    gone = {"url": "rabbitmq-stream://127.0.0.1:1", "stream": stream}
    assert RABBIT.look(gone).error == "cannot connect to 127.0.0.1:1 (connection refused)"
    assert RABBIT.look({**gone, "url": f"127.0.0.1:1, {rabbit_server.url}"}).error is None
    with pytest.raises(SqlError, match="the servers do not answer"):
        RABBIT.offsets_at(gone, 0, [stream])
    with pytest.raises(OSError, match="cannot connect"):
        read(gone, stream, 0, 1)
    with pytest.raises(OSError, match="cannot connect"):
        RABBIT.terms(gone, [stream])
    assert RABBIT.record_times(gone, {stream: 1}) == {}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"AMQP\x00\x00\x09\x01", "this port has the protocol AMQP, not the stream protocol"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "this port has the protocol HTTP, not the stream protocol"),
        (b"+PONG\r\n\xff\xff\xff", "the server has closed the connection"),
        (b"\xff\xff\xff\xff", "this port does not have RabbitMQ's stream protocol"),
    ],
)
def test_a_port_with_another_protocol(answer: bytes, reason: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            taken, _ = server.accept()
            with taken:
                taken.recv(4_096)
                taken.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        port = server.getsockname()[1]
        told = RABBIT.look({"url": f"rabbitmq-stream://127.0.0.1:{port}", "stream": "s"}).error
        thread.join()
    assert told is not None
    assert told.startswith(f"127.0.0.1:{port}: ")
    assert reason in told or "the connection has ended" in told


def test_logins_and_permissions(rabbit_server: RabbitServer, stream: str) -> None:
    rabbit_server.create(stream)
    wrong = options(rabbit_server, stream, username="guest", password="0ther")
    told = RABBIT.look(wrong).error
    assert told == f'127.0.0.1:{rabbit_server.port}: authentication failed for user "guest"'
    other = RABBIT.look(options(rabbit_server, stream, vhost="other")).error
    assert other == (
        f'127.0.0.1:{rabbit_server.port}: virtual host "other" does not exist, or user "guest" may not use it'
    )
    assert "0ther" not in repr(rabbit_client.POOL._idle)


def test_a_stream_that_becomes_available(rabbit_server: RabbitServer, stream: str) -> None:
    rabbit_server.create(stream)
    address = rabbit_client.address_of(options(rabbit_server, stream))
    answered = iter([Code.STREAM_UNAVAILABLE, Code.STREAM_UNAVAILABLE, Code.OK])

    def ask(client: RabbitClient) -> bool:
        rabbit_client.require_ok(Reply(next(answered), Fields(b"")), stream)
        return client.is_open

    assert rabbit_client.at_leader(address, stream, 5, ask)
    assert next(answered, None) is None
    refused = Reply(Code.STREAM_UNAVAILABLE, Fields(b""))
    with pytest.raises(rabbit_client.UnavailableError, match=f"stream {stream} is not available now"):
        rabbit_client.at_leader(address, stream, 0.3, lambda client: rabbit_client.require_ok(refused, stream))


def test_a_server_that_was_started_again_a_user_s_permissions_and_tls(stream: str, tmp_path: Path) -> None:
    authority = make_authority()
    server_key = issue(authority, "server")
    for name, text in (
        ("ca.pem", authority.certificate_pem),
        ("cert.pem", server_key.certificate_pem),
        ("key.pem", server_key.key_pem()),
    ):
        (tmp_path / name).write_text(text)
    config = (
        "stream.listeners.ssl.1 = 127.0.0.1:{tls_port}\nstream.advertised_tls_port = {tls_port}\n"
        "stream.advertised_tls_host = 127.0.0.1\n"
        f"ssl_options.cacertfile = {tmp_path}/ca.pem\nssl_options.certfile = {tmp_path}/cert.pem\n"
        f"ssl_options.keyfile = {tmp_path}/key.pem\n"
    )
    ann = {"user": "ann", "vhost": "/", "configure": ".*", "write": ".*", "read": "public.*"}
    definitions = {
        **GUEST,
        "users": [*GUEST["users"], {"name": "ann", "password": "s3cret", "tags": ""}],
        "permissions": [*GUEST["permissions"], ann],
    }
    with rabbit_running(config=config, definitions=definitions) as server:
        server.create(stream)
        server.publish(stream, [b"1"] * 3)
        given_ = options(server, stream)
        assert offsets(given_, stream, 0, 3) == [0, 1, 2]
        login = {"username": "ann", "password": "s3cret"}
        assert RABBIT.look(options(server, stream, **login)).error == f"the user may not read stream {stream}"

        secured = {"url": f"rabbitmq-stream+tls://127.0.0.1:{server.tls_port}", "stream": stream}
        RABBIT.check_options(secured)
        assert "CERTIFICATE_VERIFY_FAILED" in str(RABBIT.look(secured).error)
        for ca in (str(tmp_path / "ca.pem"), authority.certificate_pem):
            assert offsets({**secured, "tls.ca": ca}, stream, 0, 3) == [0, 1, 2]

        # A pooled connection has ended: the next request opens another one.
        server.stop()
        assert f"127.0.0.1:{server.port}" in str(RABBIT.look(given_).error)
        server.start()
        assert offsets(given_, stream, 0, 3) == [0, 1, 2]
        server.publish(stream, [b"2"])
        assert offsets(given_, stream, 2, 4) == [2, 3]
        RABBIT.reconnect(given_)
        assert RABBIT.look(given_).splits[stream].end == 4
