"""The options of a RabbitMQ source that CREATE refuses, without a server."""

from __future__ import annotations

import pytest

from rw_sql.connectors.connection_types import check_connection_options
from rw_sql.connectors.rabbitmq.source import RabbitConnector
from rw_sql.connectors.spec import OptionError

URL = {"url": "rabbitmq-stream://h"}


@pytest.mark.parametrize(
    ("options", "key", "reason", "hint"),
    [
        ({"url": "amqp://h", "stream": "s"}, "url", "not 'amqp://h'", "url = 'rabbitmq-stream://host:5552'"),
        ({"url": "rabbitmq-stream://u:p4ss@h", "stream": "s"}, "url", "must be a list of", "as username and password"),
        ({"url": "h, rabbitmq-stream+tls://h", "stream": "s"}, "url", "with TLS and servers without", "one scheme"),
        (URL, "url", 'missing property "stream"', "needs stream or super_stream"),
        ({**URL, "stream": "a", "super_stream": "b"}, "stream", "together with", "omit stream or super_stream"),
        ({**URL, "stream": " , "}, "stream", "names ''", "1 to 255 bytes"),
        ({**URL, "super_stream": "ü" * 128}, "super_stream", "is not a stream", "1 to 255 bytes"),
        ({**URL, "stream": "a", "username": "u"}, "username", 'missing property "password"', "username needs password"),
        ({**URL, "stream": "a", "tls.ca": "/ca.pem"}, "tls.ca", "no meaning without TLS", "rabbitmq-stream+tls://"),
        ({**URL, "stream": "a", "scan.startup.mode": "timestamp"}, "scan.startup.mode", "missing property", "millis"),
    ],
)
def test_what_is_refused(options: dict[str, str], key: str, reason: str, hint: str) -> None:
    with pytest.raises(OptionError) as caught:
        RabbitConnector().check_options(options)
    assert caught.value.key == key
    assert reason in str(caught.value)
    assert hint in (caught.value.hint or "")
    assert "p4ss" not in f"{caught.value}{caught.value.hint}"


def test_what_is_accepted() -> None:
    kind = RabbitConnector()
    kind.check_options({**URL, "stream": "a, b:c", "username": "u", "password": "p", "vhost": "v"})
    kind.check_options({"url": "rabbitmq-stream+tls://h", "super_stream": "s", "tls.ca": "/ca.pem"})
    kind.check_options({**URL, "stream": "ü" * 127})


def test_only_ascii_digits_number_ports_and_partitions() -> None:
    with pytest.raises(OptionError, match="must be a list of"):
        RabbitConnector().check_options({"url": "rabbitmq-stream://h:\u0665\u0665\u0665\u0662", "stream": "a"})
    written = {**URL, "super_stream": "s"}
    assert RabbitConnector().resolve_split(written, "3") == "s:s-3"
    assert RabbitConnector().resolve_split(written, "\u0663") == "s:\u0663"


def test_a_connection_names_no_stream() -> None:
    check_connection_options("rabbitmq", {**URL, "vhost": "v"})
    with pytest.raises(OptionError, match="must be a list of"):
        check_connection_options("rabbitmq", {"url": "amqp://h"})


@pytest.mark.parametrize(
    ("named", "written", "split"),
    [
        ("a", "0", "a"),
        ("a", "", "a"),
        ("a", " a ", "a"),
        ("50%", "50%", "50%25"),
        ("50%", "50%25", "50%25"),
        ("a:b", "a:b", "a%3Ab"),
        ("a:b", "a%3Ab", "a%3Ab"),
        # Each name is quoted, even if it looks as if it were already.
        ("a%25", "a%25", "a%2525"),
        ("a, b", "0", "0"),
        # A split that the source no longer reads.
        ("a", "c%3Ad", "c%3Ad"),
    ],
)
def test_splits_as_statements_name_them(named: str, written: str, split: str) -> None:
    assert RabbitConnector().resolve_split({**URL, "stream": named}, written) == split
