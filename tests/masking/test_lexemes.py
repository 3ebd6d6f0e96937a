"""Logins and values between wrong quotes are masked; what only resembles them stays legible."""

from __future__ import annotations

import pytest

from rw_sql.masking import contains_password, masked, without_secrets_of

_ODD_PASSWORDS = ["2024#hunter2", "7,hunter2", "1?hunter2", "1;hunter2", "1?x=hunter2", ":hunter2", "123456/hunter2"]


@pytest.mark.parametrize("password", _ODD_PASSWORDS)
def test_a_password_that_resembles_a_port_is_masked(password: str) -> None:
    assert "hunter2" not in masked(f"url = 'amqp://ann:{password}@h:5552'")
    assert contains_password(f"amqp://ann:{password}@h:5552") == (password != "1?x=hunter2")
    if ":" not in password and "/" not in password and "=" not in password:
        assert "hunter2" not in masked(f"url = 'ann:{password}@h:5552'")


def test_a_password_after_a_long_user_is_masked() -> None:
    assert "hunter2" not in masked(f"url = 'amqp://{'u' * 500}:hunter2@h'")


@pytest.mark.parametrize("url", ["http://h:8080/a@b", "//h1:1,h2:2/d?user=a@b", "//ann:[secret]@h"])
def test_ports_before_a_path_are_no_password(url: str) -> None:
    assert masked(f"url = '{url}'") == f"url = '{url}'"
    assert not contains_password(url)


@pytest.mark.parametrize(
    "text",
    [
        "ALTER SECRET pw AS ''a;hunter2'';",
        "ALTER SOURCE s SET (password = ''a;hunter2'')",
        "CREATE SECRET pw WITH (backend = 'meta') AS 'it's;hunter2';\n-- it's the next\nSELECT 1;",
        "CREATE SOURCE s WITH (connector = 'kafka, password = 'a;hunter2', topic = 'o'); -- it's",
        "SELECT a ' FROM t;\nALTER SOURCE s SET (password = 'a;hunter2');\nSELECT b ' FROM t;",
        "SELECT a ' FROM t; -- x\nALTER SOURCE s SET (password = ' a;hunter2');\nSELECT b ' FROM t;",
    ],
)
def test_a_semicolon_in_a_password_between_wrong_quotes_reveals_nothing(text: str) -> None:
    assert "hunter2" not in masked(text)
    assert masked(text).endswith(text.rpartition("\n")[2] if "\n" in text else "")


def test_the_statement_after_wrong_quotes_stays_legible() -> None:
    text = "ALTER SECRET pw AS 'it's;hunter2'; -- x\nSELECT a, 'b' FROM t;"
    assert masked(text).endswith("\nSELECT a, 'b' FROM t;")


@pytest.mark.parametrize(
    "text",
    [
        "CREATE SOURCE s WITH (password `hunter2`, topic = 'o')",
        "CREATE SOURCE s WITH (password `hunter2$1`, topic = 'o')",
        "CREATE SOURCE s WITH (password : `hunter2`, topic = 'o')",
        "CREATE SOURCE s WITH (password ‘hunter2’, topic = 'o')",
        "CREATE SOURCE s WITH (password: “hun hunter2”, topic = 'o')",
        "CREATE SOURCE s WITH (password: hun-hunter2, topic = 'o')",
        "CREATE SOURCE s WITH (password N'hunter2', topic = 'o')",
        "CREATE SECRET kafka pw AS `hunter2$b`",
        'CREATE SECRET kafka pw AS "hunter2"',
    ],
)
def test_a_value_after_a_wrong_sign_or_between_wrong_quotes_is_masked(text: str) -> None:
    assert "hunter2" not in masked(text)
    assert "topic = 'o'" in masked(text) or "AS" in text


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t (s STRUCT<token: STRING, b: INT>, token STRING)",
        "DROP SECRET `pw`; CREATE SOURCE s WITH (password = SECRET `pw`, x = 'y')",
        "ALTER TABLE t RENAME COLUMN token TO `x`",
        "SELECT 'user:ann@x.com', 'group:sales@corp.com', 'serviceAccount:x@p.iam.com', 'k:v@w' FROM t",
        "SELECT 'sip:ann@x', 'acct:a@b', 'image:1.2@sha256:a', date_format(t, 'HH:mm@dd'), concat(x,v:user,'@') FROM t",
        "ALTER SOURCE s SET (a = 'image:1.2@sha256:abc', b = '10:30@utc', c = 'sip:ann@x')",
    ],
)
def test_what_resembles_a_login_or_a_key_stays_legible(text: str) -> None:
    assert masked(text) == text
    message = "found: " + " ".join(text.split("'")[1::2])
    assert without_secrets_of(text, message) == message


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'u:hunter2@h:1883'",
        "SELECT * FROM t WHERE a = 'tcp://h,u:hunter2@h'",
        "SELECT * FROM t WHERE url = 'u:hunter2@h'",
        "CREATE SINK s FROM t (url = 'u:hunter2@h')",
        "CREATE SINK s FROM t WITH (x = 'u:hunter2@h')",
        "cannot read from 'u:hunter2@h'",
        "SELECT it's FROM 'u:hunter2@h'",
    ],
)
def test_a_login_for_a_server_is_masked_in_queries_too(text: str) -> None:
    assert "hunter2" not in masked(text)


def test_a_user_after_an_equals_sign_is_a_parameter() -> None:
    assert not contains_password("jdbc:postgresql://h/d?ApplicationName=a:b@c")
    assert not contains_password("jdbc:hive2://h:1/d;principal=a:b@c")
    assert not contains_password("jdbc:sqlserver://h:1433;user=a@b")
    assert contains_password("h:1,u:hunter2@h:2")


@pytest.mark.parametrize("value", ["?token=*", "/tmp/x;token=1/*", "s3://b/day=10:00@utc", "s3://b//a:b@c", "o,o:x@1"])
def test_a_path_or_a_name_has_no_parameters_and_no_login_without_a_scheme(value: str) -> None:
    assert not contains_password(value, is_address=False)


@pytest.mark.parametrize("value", ["s3://a:hunter2@c/x", "nats://hunter2@h", "password='hunter2'"])
def test_a_path_may_contain_a_password(value: str) -> None:
    assert contains_password(value, is_address=False)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t USING jdbc OPTION (url 'jdbc:oracle:thin:u/hunter2@h')",
        "CREATE SINK s FROM t (connector='nats', address 'ann:hunter2@h')",
        "UPDATE SOURCE s SET server.url 'ann:hunter2@h'",
        "SELECT * FROM jdbc(url => 'ann:hunter2@h')",
        "SELECT * FROM jdbc('jdbc:oracle:thin:u/hunter2@//h:1521/x')",
        "INSERT INTO t VALUES ('u:hunter2@h')",
        "ALTER SOURCE s SET (url = 'amqp://ann:correct hunter2@h')",
        "ALTER SOURCE s SET (url = 'https://h/x?sig=hunter2')",
        "ALTER SOURCE s SET (url = 'https://h/x?a=b&pass=hunter2')",
        "ALTER SOURCE s SET (url = 'https://h/x?passphrase=hunter2')",
        "ALTER SOURCE s SET (url = 'https://h/x?X-Amz-Signature=hunter2')",
        "ALTER SOURCE s SET (url = 'Endpoint=sb://x/;SharedAccessKeyName=R;SharedAccessKey=hunter2')",
        "ALTER SOURCE s SET (headers = 'Bearer hunter2')",
        "ALTER SOURCE s SET (headers = 'Authorization: Basic hunter2')",
        "SET fs.azure.sas.key = 'hunter2'",
        "SET my.pass = 'hunter2'",
    ],
)
def test_a_login_outside_a_query_is_masked(text: str) -> None:
    assert "hunter2" not in masked(text)
    assert "hunter2" not in without_secrets_of(text, f"refused: {text}")


@pytest.mark.parametrize(
    "name", ["TIMESTAMP_NTZ", "LONG", "SHORT", "INTERVAL", "TEXT", "UUID", "CHARACTER VARYING", "TEXTT"]
)
def test_a_type_after_a_field_that_suggests_a_secret_stays_legible(name: str) -> None:
    text = f"CREATE SOURCE s (a STRUCT<token: {name}, b: ARRAY<STRUCT<secret: {name}>>>) WITH (topic = 'o')"
    assert masked(text) == text
    assert masked(text, plain=()) == text


@pytest.mark.parametrize(
    "value",
    ["ann:hunter2@h:9092", "u:p@host", "//u:p@h", "amqp://u:a b@h", "https://h/x?sig=x", "https://h/x?pass=x"],
)
def test_a_login_at_the_beginning_of_an_address_is_a_password(value: str) -> None:
    assert contains_password(value)


@pytest.mark.parametrize(
    "value", ["h:9092,g:9092", "[::1]:9092", "10:30@utc", "jdbc:sqlite:/data/x@y.db", "https://h/x@y", "mailto:a@b"]
)
def test_an_address_without_a_login_contains_no_password(value: str) -> None:
    assert not contains_password(value)
