"""Messages of other systems in errors and logs: without secrets."""

from __future__ import annotations

import logging
from urllib.parse import quote, quote_plus

import pytest

from rw_sql.connectors.support.messages import (
    remember_secret,
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


def test_the_secrets_that_were_read_are_in_no_message(caplog: pytest.LogCaptureFixture) -> None:
    value = remember_secret("a-known-secret-value\n")
    remember_secret("abc")
    assert isinstance(value, SecretText)
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
