"""Secrets are masked, however they are written; what is no secret stays legible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rw_sql.cli.script.loading import hiding
from rw_sql.errors import SqlError
from rw_sql.masking import contains_password, masked, without_secrets_of
from rw_sql.syntax import parse_statement, split_script


@pytest.mark.parametrize(
    "text",
    [
        "CREATE SECRET pw -- the broker's password\nWITH (backend = 'meta') AS 'hunter2';",
        "CREATE SECRET pw WITH (backend = 'meta') AS /* new */ 'hunter2';",
        "ALTER SECRET pw WITH (backend = 'meta') AS -- rotated\n 'hunter2';",
        "CREATE SECRET pw /* a; b */ WITH (backend = 'meta') AS 'hunter2';",
        "CREATE SECRET \"it's\" WITH (backend = 'meta') AS 'hunter2';",
        "CREATE SECRET s.pw WITH (backend = 'meta') AS E'\\'hunter2';",
        "CREATE SECRET pw WITH (backend = 'meta') AS $$hunter2$$;",
        "EXPLAIN CREATE SECRET IF NOT EXISTS pw WITH (backend = 'meta') AS 'hunter2';",
        "SELECT 'it\\'s'; CREATE SECRET pw WITH (backend = 'meta') AS /* ' */ 'hunter2';",
        "SET a = 'c:\\'; CREATE SECRET pw WITH (backend = 'meta') AS /* ' */ 'hunter2';",
    ],
)
def test_a_shown_statement_does_not_contain_its_secret(text: str) -> None:
    for part in split_script(text):
        shown = hiding([])(part.text)
        assert "hunter2" not in shown
        assert len(shown) == len(part.text)
    assert "hunter2" not in masked(text)
    assert "meta" in masked(text)


@pytest.mark.parametrize(
    "value",
    [
        "properties.sasl.password /* x */ = 'hunter2'",
        "properties.sasl.password = /* x */ 'hunter2'",
        "properties.sasl.password -- it's\n = 'hunter2'",
        "properties.sasl. /* x */ password = 'hunter2'",
        "\"properties.sasl.password\" /* it's */ = 'hunter2'",
        "password = 'a' 'hunter2'",
        "password = 'pa'hunter2'",
        "password = 'it\\'s hunter2'",
        "password = SECRET 'hunter2'",
        "password : 'hunter2'",
        "password => 'hunter2'",
        "password == 'hunter2'",
        "password TO 'hunter2'",
        "password = :'hunter2'",
        "password = hunter2",
        "password = a-hunter2",
        "password = upper(hunter2)",
        "password = $x$hunter2$x$",
    ],
)
def test_the_value_of_a_telling_property_is_masked_in_any_form(value: str) -> None:
    for text in (f"CREATE SOURCE s WITH (connector = 'kafka', {value}, topic = 'o');", f"ALTER SOURCE s SET ({value})"):
        shown = masked(text)
        assert "hunter2" not in shown
        assert "kafka" in shown or "ALTER" in text
        assert len(shown) == len(text)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE SOURCE s WITH (password = SECRET hunter2, topic = 'hunter2', secret = secret secret)",
        "CREATE TABLE secrets (id INT) WITH (connector = 'kafka', topic = 'hunter2')",
        "CREATE MATERIALIZED VIEW secrets AS SELECT 'a' AS x, \"b\" FROM t",
        "SELECT a.token, count(*) FROM a JOIN b ON a.token = b.token WHERE a.secret_id > 5 GROUP BY a.token",
        "CREATE SINK s AS SELECT x FROM a JOIN b ON (a.token = b.token) WITH (connector = 'kafka')",
        "DROP SECRET pw; SHOW SECRETS; ALTER SECRET pw OWNER TO ann; ALTER SECRET pw SET SCHEMA s",
        "CREATE SECRET pw WITH (backend = 'hashicorp_vault', path = 'a/b', field = 'c', addr = 'http://v:8200')",
        "CREATE SECRET needs a secret name",
        "set RW_SQL_SECRET_KEY to that key, or ALTER SECRET",
    ],
)
def test_what_is_no_secret_stays_legible(text: str) -> None:
    assert masked(text) == text


def test_the_statement_after_a_missing_semicolon_stays_legible() -> None:
    text = "ALTER SECRET pw AS 'hunter2'\nCREATE SOURCE s WITH (topic = 'o')"
    assert masked(text) == "ALTER SECRET pw AS '*******'\nCREATE SOURCE s WITH (topic = 'o')"


def test_a_hidden_error_keeps_its_hint() -> None:
    text = "ALTER SECRET pw TO 'hunter2'"
    with pytest.raises(SqlError) as caught:
        parse_statement(text)
    shown = caught.value.located(text).render()
    assert "HINT: write one of AS, OWNER" in hiding([])(shown)


def test_an_error_that_quotes_a_secret_is_masked_by_the_statement() -> None:
    text = "ALTER SOURCE s SET (password = 'hunter2', topic = 'a')"
    assert (
        without_secrets_of(text, "found: 'hunter2', or hunter2, or a topic")
        == "found: '*******', or *******, or a topic"
    )


def test_a_value_with_an_apostrophe_is_no_password() -> None:
    assert not contains_password("it's where token = x")
    assert not contains_password("http://host/a?user=ann")
    assert contains_password("amqp://ann:hunter2@host")
    assert contains_password("jdbc:postgresql://host/d?password=hunter2")


_GAPS = st.sampled_from(
    [" ", "\n", " -- it's\n", ' /* it\'s; a "b" */ ', "/**/", " /* /* nested ' */ ; */ ", " -- $$ ` \n"]
)


@given(
    words=st.sampled_from(
        [
            "CREATE SECRET pw WITH ( backend = 'meta' ) AS 'hunter2'",
            "CREATE SECRET IF NOT EXISTS pw WITH ( backend = 'meta' ) AS 'hunter2'",
            "ALTER SECRET \"p;w's\" AS 'hunter2'",
            "ALTER SECRET pw WITH ( backend = 'meta' ) AS $$hunter2$$",
            "ALTER SECRET pw AS E'hunter2' 'hunter2'",
            "ALTER SOURCE s UNSAFE SET ( properties . sasl . password = 'hunter2' , topic = 'o' )",
        ]
    ),
    gaps=st.lists(_GAPS, min_size=20, max_size=20),
)
def test_comments_between_the_tokens_reveal_no_secret(words: str, gaps: list[str]) -> None:
    tokens = words.split(" ")
    text = "".join(token + gap for token, gap in zip(tokens, gaps, strict=False))
    shown = masked(text)
    assert "hunter2" not in shown
    assert len(shown) == len(text)
