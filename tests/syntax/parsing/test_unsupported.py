"""Statements that parse but have no meaning here are refused, with the alternative to type."""

from __future__ import annotations

import pytest

from rw_sql.errors import NOT_SUPPORTED
from rw_sql.syntax import parse_statement
from rw_sql.syntax.parsing.unsupported import unsupported


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("CREATE SOURCE invoices (*) FROM billing_pg TABLE 'public.invoices'", "Debezium"),
        ("CREATE TABLE hooks (body JSONB) WITH (connector = 'webhook') VALIDATE AS secure_compare(a, b)", "Kafka"),
        ("CREATE TABLE accounts (id INT) ENGINE = iceberg", "omit ENGINE"),
        ("ALTER SOURCE clicks OWNER TO ops", "grant rights"),
        ("ALTER SINK late SET CONFIG (streaming.developer.chunk_size = 256)", "ALTER SYSTEM SET"),
        ("EXPLAIN DESCRIBE FRAGMENTS late", "SHOW JOBS"),
    ],
)
def test_says_what_to_use(text: str, instead: str) -> None:
    error = unsupported(parse_statement(text))
    assert error is not None
    assert error.kind is NOT_SUPPORTED
    assert error.hint is not None
    assert instead in error.hint


def test_what_runs_is_not_refused() -> None:
    assert unsupported(parse_statement("CREATE SOURCE clicks (page VARCHAR) WITH (connector = 'datagen')")) is None
