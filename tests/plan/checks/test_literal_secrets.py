"""Literals with secrets are refused; paths, patterns and topics that resemble addresses are accepted."""

from __future__ import annotations

import re

import pytest

from rw_sql.cli.checking.check import check_script
from rw_sql.errors import SqlError
from rw_sql.plan.checks import literal_secrets
from rw_sql.plan.checks.literal_secrets import refuse_literal_secrets, refuse_passwords
from rw_sql.plan.offline.script import ScriptChecker
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
    text = (
        f"CREATE SOURCE s WITH (connector = '{connector}', hostname = 'h', username = 'u', password = SECRET pw, "
        f"database.name = 'd', server.id = '5', slot.name = 's', {key} = 'hunter2')"
    )
    with pytest.raises(SqlError) as caught:
        refuse_literal_secrets(parse_statement(text))
    assert caught.value.hint == f"omit {key}"
    script = f"CREATE SECRET pw WITH (backend = 'meta') AS 'x'; {text}"
    messages = [error.message for checked in check_script(script, "a.sql") for error in checked.errors]
    assert f'property "{key}" has no effect, and its value may be a secret' in messages
    other = text.replace(key, "debezium.max.batch.size")
    refuse_literal_secrets(parse_statement(other))
    refuse_literal_secrets(parse_statement("ALTER SOURCE s UNSAFE SET (fields.token.min = '1')"))


_STORED = """CREATE SECRET pw WITH (backend = 'meta') AS 'x';
CREATE CONNECTION c WITH (type = 'mysql', hostname = 'h', username = 'u', password = SECRET pw, database.name = 'd',
    VALIDATE = false);
CREATE SOURCE s WITH (connector = 'mysql-cdc', connection = c, server.id = '5',
    debezium.database.ssl.keystore.password = 'changeit');
"""


@pytest.mark.parametrize(
    "change",
    [
        "ALTER CONNECTION c SET (hostname = 'h2')",
        "ALTER SOURCE s CONNECTOR WITH (ssl.mode = 'required')",
        "ALTER SOURCE s UNSAFE SET (server.id = '6')",
        "ALTER SOURCE s SET CONNECTION c",
    ],
)
def test_a_stored_option_without_effect_blocks_no_change(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checker = ScriptChecker()
    with monkeypatch.context() as patched:  # The catalog may have been written when such options were accepted.
        patched.setattr(literal_secrets, "_TELLING", re.compile(r"(?!)"))
        assert [error.message for checked in checker.check(_STORED, "a.sql") for error in checked.errors] == []
    messages = [error.message for checked in checker.check(change, "b.sql") for error in checked.errors]
    assert not [message for message in messages if "debezium" in message]


@pytest.mark.parametrize(
    "text",
    [
        "CREATE CONNECTION c WITH (type = 'rabbitmq', url = 'rabbitmq-stream://h:5552', username = 'ann', "
        "pasword = 'hunter2')",
        "CREATE SOURCE s (a INT) WITH (connector = 'kafka', properties.bootstrap.server = 'h', topic = 'x', "
        "properties.sasl.pasword = 'hunter2') FORMAT PLAIN ENCODE JSON",
        "CREATE SOURCE s WITH (connector = 'mysql-cdc', hostname = 'h', server.id = 'x', pasword = 'hunter2')",
        f"{_KAFKA} FORMAT PLAIN ENCODE AVRO (schema.registry = 'http://h', schema.registry.pasword = 'hunter2')",
        "CREATE SINK k FROM nosuch WITH (connector = 'jdbc', pasword = 'hunter2')",
        "ALTER CONNECTION nosuch SET (properties.sasl.pasword = 'hunter2')",
    ],
)
def test_no_error_of_a_statement_shows_the_value_of_an_unknown_property(text: str) -> None:
    errors = [error for checked in check_script(text, "a.sql") for error in checked.errors]
    assert errors
    assert not [error.render() for error in errors if "hunter2" in error.render()]


def test_an_error_shows_the_values_of_known_properties() -> None:
    text = "CREATE SINK k FROM nosuch WITH (connector = 'jdbc', jdbc.url = 'jdbc:postgresql://h/d', user = 'ann-marie')"
    (error, *_) = [error for checked in check_script(text, "a.sql") for error in checked.errors]
    assert "user = 'ann-marie'" in error.render()


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        (
            "schema.location = 'https://h/x.json?private_token=hunter2'",
            "the parameter private_token is a password: download the file, then schema.location = 'file:///…'",
        ),
        (
            "azblob.endpoint_url = 'https://h/?sv=1&sig=hunter2'",
            "the parameter sig is a password: write the address without it",
        ),
        ("s3.endpoint_url = 'https://ann:hunter2@minio:9000'", "write the address without user and password"),
    ],
)
def test_the_hint_names_the_parameter_that_is_a_password(option: str, hint: str) -> None:
    with pytest.raises(SqlError) as caught:
        refuse_passwords(parse_statement(f"ALTER SOURCE s UNSAFE SET ({option})"))
    assert caught.value.hint == hint
    located = caught.value.located(f"ALTER SOURCE s UNSAFE SET ({option})")
    assert located.hint == hint
    assert "hunter2" not in located.render()
