"""Literals with secrets are refused; paths, patterns and topics that resemble addresses are accepted."""

from __future__ import annotations

import pytest

from rw_sql.errors import SqlError
from rw_sql.plan.checks.literal_secrets import refuse_literal_secrets
from rw_sql.syntax import parse_statement


@pytest.mark.parametrize(
    "option",
    [
        "match_pattern = '?token=*'",
        "match_pattern = '(token=a)'",
        "fs.path = '/tmp/x;token=1/*'",
        "delta.path = 's3://b/day=10:00@utc'",
        "location = 's3://b//a:b@c'",
        "topic = 'orders,o:x@1'",
        "jdbc.url = 'jdbc:postgresql://h/d?ApplicationName=a:b@c'",
        "jdbc.url = 'jdbc:hive2://h:1/d;principal=a:b@c'",
    ],
)
def test_a_legal_value_that_resembles_a_login_is_accepted(option: str) -> None:
    refuse_literal_secrets(parse_statement(f"ALTER SOURCE s UNSAFE SET ({option})"))


@pytest.mark.parametrize(
    "option",
    [
        "url = 'amqp://ann:2024#hunter2@h:5552'",
        "location = 's3://ann:hunter2@b/x'",
        "fs.path = 'https://h/x?token=hunter2'",
        "jdbc.url = 'jdbc:postgresql://h/d?password=hunter2'",
        "properties.bootstrap.server = 'h:1,u:hunter2@h:2'",
        "unknown_thing = 'x?token=hunter2'",
    ],
)
def test_an_address_with_a_password_is_refused_without_showing_it(option: str) -> None:
    with pytest.raises(SqlError) as caught:
        refuse_literal_secrets(parse_statement(f"ALTER SOURCE s UNSAFE SET ({option})"))
    assert "hunter2" not in str(caught.value)
