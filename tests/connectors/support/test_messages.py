"""Messages of databases in errors: one line, without the password."""

from __future__ import annotations

from rw_sql.connectors.support.messages import without_password


def test_a_message_is_one_line_without_the_password() -> None:
    error = RuntimeError("connection to reader:s3cret@db failed\n  is the server running?")
    assert (
        without_password(error, {"password": "s3cret"})
        == "connection to reader:[secret]@db failed is the server running?"
    )
    assert without_password("a\tb\n", {}) == "a b"
