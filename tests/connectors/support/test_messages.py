"""Messages of other systems in errors and logs: without secrets."""

from __future__ import annotations

import logging
import tomllib
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from rw_sql.connectors.support.messages import (
    HIDDEN,
    remember_secrets,
    without_known_secrets,
    without_password,
    without_secrets,
)
from rw_sql.connectors.support.private_files import SecretText
from rw_sql.runtime.support.failures import Failure, StalledError, cause_line, log_error


def test_a_message_is_one_line_without_the_password() -> None:
    error = RuntimeError("connection to reader:s3cret@db failed\n  is the server running?")
    assert (
        without_password(error, {"password": "s3cret"})
        == "connection to reader:[secret]@db failed is the server running?"
    )
    assert without_password("a\tb\n", {}) == "a b"


@pytest.mark.parametrize("value", ["hunter2\n", "hunter2\r\n", " hunter2", "hunt'er2\t", "h/ünter 2\n"])
def test_a_secret_is_found_in_every_form(value: str) -> None:
    forms = [value, value.strip(), repr(value), repr(value.encode()), quote(value, safe=""), quote_plus(value.strip())]
    for options in ({"token": SecretText(value)}, {"password": value}):
        for form in forms:
            told = without_secrets(f"refused: {form} is wrong", options, ("password",))
            assert told.startswith("refused:")
            assert "unt" not in told
            assert "nter" not in told
    assert without_secrets(f"a {value}", {"user": value}) == f"a {value}"


@pytest.mark.parametrize(
    "message",
    [
        "Invalid header value b'Basic aHVudGVyMg==\\n'",
        "Invalid leading whitespace, reserved character(s), or return character(s) in header value: 'hunter2\\n'",
        "Illegal header value b'Bearer hunter2\\n'",
    ],
)
def test_a_refused_header_is_not_shown(message: str) -> None:
    told = without_secrets(message, {})
    assert told.endswith("header value: a credential contains a line break, or a blank at its beginning")


@pytest.mark.parametrize(
    "form",
    [
        r"b'user\x00hunter2'", r"a\nhunter2", r"a\thunter2", r"a\u00fchunter2", "postgres%3A%2F%2Fu%3Ahunter2%40h",
        "hunter2",
    ],
)  # fmt: skip
def test_a_secret_is_found_after_an_escaped_character(form: str) -> None:
    told = without_secrets(form, {"password": SecretText("hunter2")})
    assert told == form.replace("hunter2", "[secret]")
    assert without_secrets("xhunter2", {"password": SecretText("hunter2")}) == "xhunter2"


def test_no_secret_option_is_taken_for_a_user_name() -> None:
    for file in (Path(__file__).parents[3] / "sources").glob("*.toml"):
        for key, option in tomllib.loads(file.read_text(encoding="utf-8"))["options"].items():
            for name in [key, *option.get("also", [])] if option.get("secret") else []:
                remember_secrets({name: SecretText(f"value-of-{file.stem}-{name}")})
                assert without_known_secrets(f"value-of-{file.stem}-{name}") == HIDDEN, name


def test_the_secrets_that_were_read_are_in_no_message(caplog: pytest.LogCaptureFixture) -> None:
    value = SecretText("a-known-secret-value\n")
    remember_secrets({"password": value, "jwt": SecretText("abc")})
    assert without_known_secrets("abc: a-known-secret-value") == "abc: [secret]"
    assert Failure(reason=f"{value!r} is wrong").reason == "'[secret]' is wrong"
    assert str(StalledError(f"no {value.strip()}")) == StalledError(f"no {value.strip()}").reason == "no [secret]"
    assert cause_line(f"Caused by: {value}") == "[secret]"
    try:
        raise ValueError(value)
    except ValueError as error:
        log_error(logging.getLogger("rw_sql"), "job 1: failed", error)
    assert "Traceback" in caplog.text
    assert "known" not in caplog.text


def test_a_password_that_is_an_ordinary_word_leaves_messages_legible() -> None:
    options = {
        "hostname": "postgres",
        "database.name": "postgres",
        "username": "postgres",
        "password": SecretText("postgres"),
    }
    message = 'source "postgres_orders": database "postgres" at postgres:5432 refuses the login'
    assert without_secrets(message, options) == message
    assert (
        without_secrets("postgres://postgres:postgres@h, password=postgres", options)
        == "postgres://postgres:[secret]@h, password=[secret]"
    )
    assert without_secrets("kafka:9092/1 is not kafkas", {"password": SecretText("kafkas"), "host": "kafka:9092"}) == (
        "kafka:9092/1 is not [secret]"
    )


def test_a_short_password_is_replaced_only_where_a_password_stands() -> None:
    options = {"password": SecretText("db")}
    assert without_secrets("the db at //ann:db@host, password = 'db'", options) == (
        "the db at //ann:[secret]@host, password = '[secret]'"
    )
    assert without_secrets("a db: 'db', \"db\", b'db', `db`; isn't db, 'db or db'", options) == (
        "a db: '[secret]', \"[secret]\", b'[secret]', `[secret]`; isn't db, 'db or db'"
    )
    told = 'database "db" does not exist'
    assert without_secrets(told, {**options, "database.name": "db"}) == told


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("cannot reach https://ann:hunter2@vault:8200/v1: refused", "https://[secret]@vault:8200/v1: refused"),
        ("cannot reach https://hunter2@vault/v1", "https://[secret]@vault/v1"),
        ("proxy http://ann:hun/ter2@proxy:3128", "http://[secret]@proxy:3128"),
        ("no answer from mqtt://ann:hunter2@h, amqp://b:hunter2@h", "mqtt://[secret]@h, amqp://[secret]@h"),
        ("http://h:8080/a@b and mail to ann@example.org", "http://h:8080/a@b and mail to ann@example.org"),
    ],
)
def test_a_login_in_an_address_is_replaced_even_if_no_secret_contains_it(message: str, shown: str) -> None:
    for told in (without_secrets(message, {}), without_known_secrets(message)):
        assert told.endswith(shown)


def test_a_part_of_a_secret_address_is_a_secret() -> None:
    options = {"catalog.uri": SecretText("postgresql://ann:hunter2-of-ann@db/warehouse")}
    for message in ("password hunter2-of-ann refused", "ann:hunter2-of-ann is no login"):
        assert "hunter2" not in without_secrets(message, options)
    remember_secrets({"uri": SecretText("postgresql://ann:another-hunter@db/warehouse")})
    assert without_known_secrets("password another-hunter refused") == "password [secret] refused"


def test_a_password_inside_an_address_remains_a_secret() -> None:
    options = {"url": "jdbc:postgresql://h/d?password=hunter22", "password": SecretText("hunter22")}
    assert without_secrets("hunter22 is refused", options) == "[secret] is refused"


def test_ordinary_words_are_not_remembered_as_secrets() -> None:
    message = "rabbitmq: unshared of postgresql at somewhere: anonymous, unwatched"
    remember_secrets(
        {
            "hostname": "postgresql.example",
            "password": SecretText("postgresql"),
            "username": SecretText("anonymous"),
            "s3.credentials.access": SecretText("somewhere"),
            "schema.registry.password": SecretText("rabbitmq"),
        },
        ("rabbitmq",),
    )
    remember_secrets({"": SecretText("unwatched")})
    assert without_known_secrets(message) == message
    remember_secrets({"jwt": SecretText("unshared")})
    assert without_known_secrets("unshared, unshareds") == "[secret], unshareds"
