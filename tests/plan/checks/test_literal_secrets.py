"""Literals with secrets are refused; paths, patterns and topics that resemble addresses are accepted."""

from __future__ import annotations

import pytest

from rw_sql.cli.checking.check import check_script
from rw_sql.errors import SqlError
from rw_sql.plan.checks.literal_secrets import refuse_literal_secrets, refuse_passwords
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
        "properties.bootstrap.server = 'u:hunter2@h:2'",
        "s3.endpoint_url = 'ann:hunter2@minio:9000'",
        "s3.endpoint_url = 'https://ann:hunter2@minio:9000'",
        "s3.endpoint = 'ann:hunter2@minio:9000'",
        "endpoint = 'ann:hunter2@kinesis:4566'",
        "unknown_thing = 'x?token=hunter2'",
    ],
)
def test_an_address_with_a_password_is_refused_without_showing_it(option: str) -> None:
    with pytest.raises(SqlError) as caught:
        refuse_literal_secrets(parse_statement(f"ALTER SOURCE s UNSAFE SET ({option})"))
    assert "hunter2" not in str(caught.value)
    with pytest.raises(SqlError, match="must not contain a password"):
        refuse_passwords(parse_statement(f"ALTER SOURCE s UNSAFE SET ({option})"))


_KAFKA = "CREATE SOURCE s (a INT) WITH (connector = 'kafka', topic = 'x', properties.bootstrap.server = 'h:1')"


@pytest.mark.parametrize(
    "text",
    [
        f"{_KAFKA} FORMAT PLAIN ENCODE PROTOBUF (message = 'm', schema.location = 'https://h/x?private_token=hunter2')",
        "CREATE SOURCE s (a INT) WITH (connector = 's3', s3.region_name = 'eu', s3.bucket_name = 'b', "
        "match_pattern = '*.csv', s3.endpoint_url = 'https://ann:hunter2@minio:9000') FORMAT PLAIN ENCODE JSON",
        "CREATE SOURCE s (a INT) WITH (connector = 'delta', delta.path = 's3://KEY:hunter2@b/x')",
        "CREATE CONNECTION c WITH (type = 's3', s3.region = 'eu', s3.endpoint = 'https://ann:hunter2@minio:9000')",
    ],
)
def test_every_session_refuses_an_address_with_a_password(text: str) -> None:
    (error,) = [error for checked in check_script(text, "a.sql") for error in checked.errors]
    assert "must not contain a password" in error.message
    assert "hunter2" not in error.render()


@pytest.mark.parametrize("connector", ["mysql-cdc", "postgres-cdc"])
def test_a_literal_in_an_ignored_option_whose_name_suggests_a_secret_is_refused(connector: str) -> None:
    key = "debezium.database.ssl.keystore.password"
    text = f"CREATE SOURCE s WITH (connector = '{connector}', {key} = 'hunter2') FORMAT PLAIN ENCODE JSON"
    with pytest.raises(SqlError) as caught:
        refuse_literal_secrets(parse_statement(text))
    assert caught.value.hint == f"omit {key}"
    messages = [error.message for checked in check_script(text, "a.sql") for error in checked.errors]
    assert f'property "{key}" has no effect, and its value may be a secret' in messages
    other = text.replace(key, "debezium.max.batch.size")
    refuse_literal_secrets(parse_statement(other))
    refuse_literal_secrets(parse_statement("ALTER SOURCE s UNSAFE SET (fields.token.min = '1')"))
