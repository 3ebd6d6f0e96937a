"""Secrets are masked, however they are written; what is no secret stays legible."""

from __future__ import annotations

import time
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rw_sql.cli.interface.error_report import error_as_json
from rw_sql.cli.script.loading import hiding
from rw_sql.cli.script.report import RunReport, StatementRun
from rw_sql.cli.shell.prompt import StatementHistory
from rw_sql.errors import INVALID_PROPERTY, UNDEFINED_COLUMN, Span, SqlError
from rw_sql.masking import contains_password, finding, masked, without_secrets_of
from rw_sql.masking.finding import _SHOWN_KEYS
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
        "'properties.sasl.password' = 'hunter2'",
        "'properties.sasl.password' /* it's */ 'hunter2'",
        "'password' => E'hunter2'",
        "'password' = hunter2",
        "url = 'amqp://ann:hunter2@host'",
        "url 'amqp://ann:hunter2@host'",
        'url = "amqp://ann:hunter2@host"',
        "url = $$amqp://ann:hunter2@host$$",
        "url = `amqp://ann:hunter2@host`",
        "url = “amqp://ann:hunter2@host”",
        "url = amqp://ann:hunter2@host",
        "url = 'nats://hunter2@h'",
        "url = 'u:hunter2@h:4222'",
        "url = 'h:4222, u:hunter2@h:4222'",
        "url = 'http://u:/hunter2@h'",
        "url = 'http://ann@corp:hunter2@h'",
        "url = 'jdbc:oracle:thin:scott/hunter2@//h'",
        "url = 'jdbc:postgresql://h/d?sslpassword=hunter2'",
        "url = 'http://h?access_token=hunter2'",
        "url = 'x(password=hunter2)'",
        "url = 'host=h password=hunter2 user=a'",
    ],
)
def test_the_value_of_a_telling_property_is_masked_in_any_form(value: str) -> None:
    for text in (f"CREATE SOURCE s WITH (connector = 'kafka', {value}, topic = 'o');", f"ALTER SOURCE s SET ({value})"):
        shown = masked(text)
        assert "hunter2" not in shown
        assert "kafka" in shown or "ALTER" in text
        assert len(shown) == len(text)
        assert hiding([])(text) == shown
        with pytest.raises(SqlError) as caught:
            parse_statement(f"{text} )")
        assert "hunter2" not in caught.value.located(text).render()


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t USING jdbc OPTIONS ('url' = 'jdbc:x', 'password' = 'hunter2')",
        'CREATE TABLE t USING jdbc OPTIONS (url "jdbc:postgresql://u:hunter2@h/d", dbtable "x")',
        "SELECT from_json(x, 's', map('a', 'b', 'password', 'hunter2')) FROM t",
        """SELECT from_json('{"password": "hunter2"}', 's')""",
        r"""SELECT from_json("{\"password\": \"hunter2\"}", 's')""",
        "CREATE PERSISTENT SECRET pw AS 'hunter2'",
        "CREATE KAFKA SECRET pw WITH (backend = 'meta') AS 'hunter2'",
        "CREATE KAFKA SECRET pw AS `hunter2`",
        "CREATE KAFKA SECRET pw AS'' 'hunter2'",
        "RENAME SECRET pw AS 'hunter2'",
        "SECRET pw TO 'hunter2'",
        "CREATE USER a IDENTIFIED BY 'hunter2'",
    ],
)
def test_a_secret_is_masked_in_statements_of_other_systems(text: str, tmp_path: Path) -> None:
    assert "hunter2" not in masked(text)
    assert "hunter2" not in hiding([])(text)
    assert "hunter2" not in without_secrets_of(text, "refused: 'hunter2', u:hunter2@h, found=hunter2)")
    history = StatementHistory(tmp_path / "history")
    history.store_string(text)
    assert not (tmp_path / "history").exists()


@pytest.mark.parametrize("url", ["u:hun ter2@h:1883", "[hunter2@h", "hunter2@h"])
def test_the_caret_below_a_wrong_address_shows_no_login(url: str) -> None:
    text = f"CREATE SOURCE s WITH (connector = 'mqtt', url = '{url}', topic = 'o')"
    span = Span(text.index(f"'{url}"), text.index("', topic") + 1, 1, 1)
    shown = SqlError(INVALID_PROPERTY, 'property "url" must be tcp://host:port', span=span).located(text).render()
    assert "ter2" not in shown
    assert "connector = 'mqtt', url = '*" in shown
    assert "topic = 'o'" in shown


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
        "",
        "-- only a comment, it's short",
        "set RW_SQL_SECRET_KEY to that key, or ALTER SECRET",
        "SELECT * FROM t WHERE kind = 'token' AND x = 'y' AND k IN ('token', 'x')",
        "SELECT CASE k WHEN 'password' THEN 'x' END, IF(k, 'token', 'y'), map(token, 'x'), token AS 'x' FROM t",
        "SELECT token, CASE WHEN a THEN'x'ELSE'y'END, INTERVAL'1'DAY FROM t WHERE b = 'c'",
        "SELECT regexp_extract(url, '[?&]token=([^&]+)', 1) FROM t WHERE url LIKE '%?token=%' AND v = 'ann@x.com'",
        "SELECT * FROM t WHERE a = 'http://h:8080/a@b' AND b = 'abfss://c@acct.net/x' AND c = 'mailto:ann@x.com'",
        "INJECT OFFSETS INTO s VALUES ('token' = 4)",
        "CREATE TABLE secret (id INT) WITH (topic = 'x'); CREATE SINK secret FROM x WITH (topic = 'x')",
        "CREATE VIEW secret AS SELECT 'x'; DROP SECRET pw CASCADE; SECRET pw AS FILE",
        "secret backend 'paper' is not supported",
        "SELECT count(*) FROM `orders$errors`;\nCREATE TABLE o (id INT) WITH (password = SECRET pw, topic = 'o');\n"
        "CREATE MATERIALIZED VIEW v AS SELECT id, token, amount FROM o WHERE amount > 3 AND x = 'y'",
        "SELECT token FROM `orders$errrs`",
    ],
)
def test_what_is_no_secret_stays_legible(text: str) -> None:
    assert masked(text) == text


def test_an_address_keeps_what_is_no_login() -> None:
    assert masked("url = 'jdbc:postgresql://u:hunter2@h:1/d'") == "url = 'jdbc:postgresql://*********@h:1/d'"
    assert masked("url = 'h:1,u:hunter2@h:2'") == "url = 'h:1,*********@h:2'"


def test_the_statement_after_a_missing_semicolon_stays_legible() -> None:
    text = "ALTER SECRET pw AS 'hunter2'\nCREATE SOURCE s WITH (topic = 'o')"
    assert masked(text) == "ALTER SECRET pw AS '*******'\nCREATE SOURCE s WITH (topic = 'o')"


def test_a_hidden_error_keeps_its_hint() -> None:
    text = "ALTER SECRET pw TO 'hunter2'"
    with pytest.raises(SqlError) as caught:
        parse_statement(text)
    shown = caught.value.located(text).render()
    assert "HINT: write one of AS, OWNER" in hiding([]).values(shown)


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
    assert contains_password("amqp://ann:hun/ter2@host")
    assert contains_password("http://host/d?access_token=hunter2")
    assert not contains_password("s3://bucket/token=x/*.parquet")
    assert contains_password("u:p@host")
    assert not contains_password("u:p@host", is_address=False)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT o.id FROM o\n  JOIN t ON t.id = o.id\n  AND t.token = upper(o.keyy) AND o.amout > 3",
        "SELECT\n  api_key = upper(keyy) AS same, amout FROM o",
    ],
)
def test_the_line_of_an_error_is_not_masked_as_a_statement(text: str) -> None:
    start = text.index("amout")
    line = text.count("\n", 0, start) + 1
    span = Span(start, start + 5, line, start - text.rfind("\n", 0, start))
    shown = SqlError(UNDEFINED_COLUMN, "no amout", span=span, hint="export RW_SQL_SECRET_KEY=$(openssl)").located(text)
    assert "*" not in shown.render()
    assert hiding([]).values(shown.render()) == shown.render()
    assert text.splitlines()[-1].partition(" FROM")[0] in shown.render()
    report = RunReport(
        hide=hiding(["openssl"]),
        statements=[StatementRun(file=None, line=1, column=1, text=text, status="failed", error=shown)],
    )
    for told in (report.as_json(), report.as_junit()):
        assert "export RW_SQL_SECRET_KEY=$(*****)" in told
    assert error_as_json(shown)["hint"] == "export RW_SQL_SECRET_KEY=$(openssl)"


def test_an_error_that_moves_into_a_script_shows_no_secret_of_the_script() -> None:
    error = SqlError(UNDEFINED_COLUMN, "found: 'hunter2'", hint="omit 'hunter2'")
    moved = error.moved_into("ALTER SECRET pw AS 'hunter2'", 0, 1, 1, None)
    assert "hunter2" not in moved.render()
    assert "hunter2" not in str(moved.args)


_STATEMENTS = [
    "CREATE SECRET pw WITH (backend = 'meta') AS 'my-password';\n",
    "ALTER SECRET pw AS 'a token';\n",
    "CREATE SOURCE orders (id INT) WITH (connector = 'kafka', topic = 'the-secret', x = 'y');\n",
    "CREATE SOURCE s WITH (url = 'amqp://a:hunter2@h', properties.sasl.password = 'hunter2' /* 'seed' */);\n",
    "-- needs CREATE SECRET kafka_pw first\nCREATE MATERIALIZED VIEW v AS SELECT custmer FROM o;\n",
    "/* the token */ SELECT 'my password', \"x\", 'y' FROM t WHERE t.secret = 'b';\n",
    "ALTER SOURCE s SET (reason = 'see CREATE SECRET pw') -- AS it's\n;\n",
    "SHOW SECRETS;\n",
]


@given(st.lists(st.sampled_from(_STATEMENTS), min_size=2, max_size=4))
def test_each_statement_is_masked_as_if_it_stood_alone(statements: list[str]) -> None:
    assert masked("".join(statements)) == "".join(map(masked, statements))


def test_a_secret_that_ends_like_a_property_leaves_the_next_statement_legible() -> None:
    first, second, _, fourth, fifth, sixth, seventh, _ = map(masked, _STATEMENTS)
    assert first == "CREATE SECRET pw WITH (backend = 'meta') AS '***********';\n"
    assert second == "ALTER SECRET pw AS '*******';\n"
    assert "hunter2" not in fourth
    assert fifth == _STATEMENTS[4]
    assert sixth == _STATEMENTS[5].replace("'b'", "'*'")
    assert seventh == _STATEMENTS[6]
    assert masked(_STATEMENTS[2]) == _STATEMENTS[2]


@pytest.mark.parametrize(
    "text",
    [
        "it can't reach 'amqp://ann:hunter2@h'",
        "it's the password 'hunter2'",
        "can't reach 'amqp://ann:hunter2@h': it isn't there",
        "SET a = 'it\\'s'; CREATE SECRET pw AS 'hunter2'; SET b = 'dog\\'s'",
        "-- my password = 'hunter2'\nSHOW x",
    ],
)
def test_prose_with_an_apostrophe_reveals_no_secret(text: str) -> None:
    assert "hunter2" not in masked(text)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE SOURCE lake WITH (azblob.credentials.account_name = 'lake')", 'the upstream of source "lake"'),
        ("ALTER SOURCE s SET (azblob.credentials.account_name = 'lake')", 'account "lake" does not exist'),
        ("ALTER SOURCE s SET (aws.credentials.role.arn = 'arn:aws:iam::1:role/r')", "AssumeRole arn:aws:iam::1:role/r"),
        ("ALTER SOURCE s SET (tls.client_key = 'fs:///etc/k.pem')", "No such file: fs:///etc/k.pem"),
        ("SELECT * FROM o WHERE token = 'amount' AND amout > 3", 'did you mean "amount"?'),
        ("CREATE SECRET pw AS 'secret'", 'secret "pw" exists; CREATE SECRET pw'),
        ("ALTER SOURCE s SET (password = 'source')", 'source "s" does not exist'),
        ("CREATE SOURCE s WITH (connector = 'kafka', password = 'kafka')", "the kafka connector"),
        ("ALTER SOURCE s SET (password = 'Broker')", "the broker"),
        ("SELECT token FROM `orders$errrs`", 'relation "orders$errrs" does not exist; did you mean "orders$errors"?'),
        ("SELECT it's, token FROM `orders$errrs`", 'did you mean "orders$errors"?'),
    ],
)
def test_a_message_shows_values_that_are_not_secret(statement: str, message: str) -> None:
    assert without_secrets_of(statement, message) == message


def test_a_message_does_not_show_a_key_in_place_of_its_file() -> None:
    text = "ALTER SOURCE s SET (tls.client_key = '-----BEGIN hunter2')"
    assert "hunter2" not in without_secrets_of(text, "No such file: -----BEGIN hunter2")


def test_the_properties_that_messages_show_are_those_that_connectors_do_not_keep_secret() -> None:
    options = {
        key: option
        for file in (Path(__file__).parents[2] / "sources").glob("*.toml")
        for key, option in tomllib.loads(file.read_text(encoding="utf-8"))["options"].items()
        if "*" in masked(f"{key.replace('*', 'a')} = 'x'") and option["doc"] != "Not supported."
    }
    assert {key for key, option in options.items() if not option.get("secret")} == _SHOWN_KEYS


def test_the_secrets_of_a_script_are_searched_once_for_all_its_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Counted(finding.Finder):
        def __init__(self, text: str) -> None:
            made.append(text)
            super().__init__(text)

    monkeypatch.setattr(finding, "Finder", Counted)
    text = "CREATE SECRET counted AS 'hunter2';\n" * 50
    for line in range(1, 51):
        error = SqlError(UNDEFINED_COLUMN, "found: hunter2", hint="omit it", span=Span(0, 6, line, 1))
        assert "hunter2" not in error.located(text).render()
    assert made == [text]


_BACKQUOTED = [
    "CREATE TABLE t (`a INT) WITH (connector = 'postgres-cdc', password = 'hunter2');",
    "CREATE SOURCE `orders (id INT) WITH (connector = 'kafka', properties.sasl.password = 'hunter2');",
    "CREATE SOURCE orders` (id INT) WITH (connector = 'kafka', properties.sasl.password = 'hunter2');",
    "SELECT `a FROM t WHERE password = 'hunter2'",
    "CREATE TABLE `t USING jdbc OPTIONS (url 'jdbc:postgresql://u:hunter2@h/d', password 'hunter2')",
    "CREATE SOURCE a` (id INT) WITH (password = 'hunter2') FORMAT PLAIN ENCODE `JSON`",
    "CREATE SECRET `pw WITH (backend = 'meta') AS 'hunter2';",
    "CREATE SECRET pw WITH (backend = `meta) AS 'hunter2';",
    "CREATE SECRET pw AS `hunter2`",
    "CREATE SECRET pw AS `hunter2",
]


@pytest.mark.parametrize("text", _BACKQUOTED)
def test_a_stray_backquote_reveals_no_secret(text: str) -> None:
    assert "hunter2" not in masked(text)
    assert "hunter2" not in hiding([])(text)
    with pytest.raises(SqlError) as caught:
        parse_statement(text)
    assert "hunter2" not in caught.value.located(text).render()


def test_names_in_backquotes_stay_legible() -> None:
    text = (
        "SELECT `count(1)`, `a = b`, `order date`, \"x\" FROM t WHERE token = `b` AND d > DATE'2026-01-01' AND e = 'f'"
    )
    assert masked(text) == text


def test_a_comment_with_an_apostrophe_leaves_the_statement_legible() -> None:
    first = "CREATE MATERIALIZED VIEW v AS SELECT `token`, 'a' AS b FROM s "
    last = "\nWHERE x = 'y' AND token = z"
    shown = masked(f"{first}-- it's the customer's token{last}")
    assert shown.startswith(first)
    assert shown.endswith(last)
    assert masked(f"-- CREATE SECRET pw first, it's needed\n{first}").endswith(first)


@pytest.mark.parametrize(
    "text",
    [
        "-- CREATE SECRET pw WITH (backend = 'meta')\n--   AS 'hunter2';\nSELECT 1",
        "SELECT 1 -- CREATE SECRET pw AS\n--\n-- 'hunter2';\nFROM t",
        "CREATE SOURCE s WITH (\n-- properties.sasl.password =\n--  'hunter2'\ntopic = 'o')",
        "-- CREATE SECRET pw WITH (backend = 'meta')\n  AS 'hunter2'",
        "CREATE SECRET pw -- WITH (backend = 'meta') AS 'hunter2'",
        "CREATE /* SECRET pw AS 'hunter2'",
    ],
)
def test_a_statement_in_comments_shows_no_secret(text: str) -> None:
    assert "hunter2" not in masked(text)


def test_a_message_does_not_show_what_a_query_compares_with_a_secret_in_expressions() -> None:
    text = "SELECT * FROM a WHERE api_tokens = 'sk_live_51H' AND token IN ('orders', 'amount') AND amount > 3"
    told = without_secrets_of(text, 'Cannot resolve "(api_tokens = sk_live_51H)" and "(token IN (orders, amount))"')
    assert told == 'Cannot resolve "(api_tokens = ***********)" and "(token IN (orders, amount))"'


@pytest.mark.parametrize(
    "piece",
    [
        "-- CREATE SECRET x WITH backend\n",
        "-- CREATE SECRET x 'a\n",
        "//a:",
        "=a:",
        ",a:b",
        "token ",
        "it's 'x' and; ",
        ",h:1",
        "';--",
        "//h:1?",
    ],
)
def test_the_time_to_mask_a_text_grows_with_its_length(piece: str) -> None:
    def seconds(text: str) -> float:
        begun = time.process_time()
        masked(text)
        return time.process_time() - begun

    short, long = (min(seconds(piece * times + end) for end in "ab") for times in (500, 4000))
    assert long < 0.1 or long < 24 * short


def test_a_message_does_not_quote_what_a_query_compares_with_a_secret() -> None:
    for literal in ("'sk_live'", '"sk_live"'):
        text = f"SELECT * FROM accounts WHERE api_key = {literal}"
        told = without_secrets_of(text, "The value 'sk_live' of the type STRING cannot be cast")
        assert told == "The value '*******' of the type STRING cannot be cast"


@pytest.mark.parametrize(
    "text",
    [
        "CREATE SECRET pw WITH (backend = 'meta') AS $\n$hunter2$$;",
        "CREATE SECRET pw WITH (backend =$$ 'meta') AS $$hunter2$$;",
        "CREATE SECRET pw WITH (backend = 'meta) AS 'hunter2';",
    ],
)
def test_an_error_about_quotes_shows_no_secret(text: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse_statement(text)
    assert "hunter2" not in caught.value.located(text).render()


def test_a_message_does_not_show_the_content_of_a_dollar_quoted_secret() -> None:
    for value in ("$$hunter2$$", "$x$hunter2$x$"):
        assert "hunter2" not in without_secrets_of(f"ALTER SECRET pw AS {value}", "refused: hunter2")


_BROKEN = [
    "CREATE SECRET pw WITH ( backend = 'meta' ) AS 'hunter2' ;",
    "ALTER SECRET pw AS $$hunter2$$ ;",
    "CREATE SOURCE orders ( id INT ) WITH ( connector = 'kafka' , properties.sasl.password = 'hunter2' , x = 'y' ) ;",
    "SELECT a FROM t WHERE password = 'hunter2' ;",
    "CREATE TABLE t USING jdbc OPTIONS ( url 'jdbc:postgresql://u:hunter2@h/d' , password 'hunter2' ) ;",
]


@given(
    words=st.sampled_from(_BROKEN).map(str.split),
    sign=st.sampled_from(["'", '"', "`", "``", "/*", "*/", "--", "$$", "\n", " -- it's\n", "/* ' */"]),
    place=st.integers(0, 30),
)
def test_a_sign_between_two_tokens_reveals_no_secret(words: list[str], sign: str, place: int) -> None:
    place %= len(words) + 1
    text = " ".join([*words[:place], sign, *words[place:]])
    shown = masked(text)
    assert "hunter2" not in shown
    assert len(shown) == len(text)


@given(words=st.sampled_from(_BROKEN).map(str.split), places=st.tuples(st.integers(0, 30), st.integers(0, 30)))
def test_two_backquotes_between_tokens_reveal_no_secret(words: list[str], places: tuple[int, int]) -> None:
    for place in places:
        words = [*words[: place % len(words)], "`", *words[place % len(words) :]]
    assert "hunter2" not in masked(" ".join(words))
    assert "hunter2" not in masked("".join(word if word == "`" else f" {word}" for word in words))


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
