"""An error about a refused statement shows no secret, wherever it stands, and keeps what cannot be secret."""

from __future__ import annotations

import time
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rw_sql.cli.checking.check import check_script
from rw_sql.cli.interface.masked_statements import masked_statement
from rw_sql.cli.script.loading import hiding
from rw_sql.cli.script.report import RunReport, StatementRun
from rw_sql.cli.shell.prompt import StatementHistory
from rw_sql.errors import SYNTAX_ERROR, Span, SqlError
from rw_sql.masking import masked, without_secrets_of
from rw_sql.masking.refused import _PLAIN_KEYS, hidden_spans
from rw_sql.syntax import parse_statement, split_script

_SOURCE = "CREATE SOURCE s (id INT) WITH (connector = 'kafka', %s, topic = 'orders') FORMAT PLAIN ENCODE JSON"

_AFTER_THE_KEY = [
    "- 'hunter2'", "-'hunter2'", "+ 'hunter2'", "; 'hunter2'", ":= 'hunter2'", ", 'hunter2'", ". 'hunter2'",
    "~ 'hunter2'", '"=" \'hunter2\'', "IS 'hunter2'", "('hunter2')", "= ) 'hunter2'", "<- 'hunter2'", "! 'hunter2'",
    "_ 'hunter2'", "_= 'hunter2'", "hunter2", "(hunter2)", "- hunter2", "is hunter2", "\\= 'hunter2'", "[= 'hunter2'",
    "LIKE 'hunter2'", "(= 'hunter2'", "# 'hunter2'", "–'hunter2'", "＝ 'hunter2'", "* 'hunter2'", "| 'hunter2'",
    "AS 'hunter2'", "WITH 'hunter2'", "USING 'hunter2'", "0 'hunter2'", "FILE 'hunter2'", "VALUE 'hunter2'",
    "SECRET = 'hunter2'", "SECRET pw AS 'hunter2'", "= SECRET pw = 'hunter2'", "= SECRET pw 'hunter2'",
    "REASON 'hunter2'", "DEFAULT 'hunter2'", "- '20260131'", "- “hunter2”", "= ‘hun hunter2’", '- "hunter2"',
    "- `hunter2`", "- $$hunter2$$", "- N'hunter2'", "= hunter2 hunter2", "hun-hunter2",
]  # fmt: skip


def refusal(text: str) -> SqlError:
    """The error of a wrong statement."""
    with pytest.raises(SqlError) as caught:
        parse_statement(text)
    return caught.value


@pytest.mark.parametrize("after", _AFTER_THE_KEY)
def test_a_value_after_any_sign_is_masked(after: str) -> None:
    text = _SOURCE % f"properties.sasl.password {after}"
    secret = "20260131" if "2026" in after else "hunter2"
    shown = refusal(text).render()
    assert secret not in shown
    assert "LINE 1: " in shown
    assert "CREATE SOURCE s (id INT) WITH (connector = 'kafka', properties.sasl.password" in masked(text, plain=())
    assert len(masked(text, plain=())) == len(text)
    assert secret not in hiding([]).statement(text)


@pytest.mark.parametrize("after", _AFTER_THE_KEY)
def test_a_quoted_value_after_a_mistyped_key_and_any_sign_is_masked(after: str) -> None:
    text = _SOURCE % f"properties.sasl.kennwort {after}"
    if after.startswith(("REASON", "FILE", "DEFAULT")) or "'hunter2'" not in after:
        return  # A plain word after a name that suggests no secret is shown.
    assert "hunter2" not in masked(text, plain=())


@pytest.mark.parametrize(
    "text",
    [
        "CREATE pw WITH (backend = 'meta') AS 'hunter2'",
        "CREATE pw WITH (backend = 'meta') AS hunter2",
        "ALTER pw AS 'hunter2'",
        "ALTER SECTER pw 'hunter2'",
        "CREATE SECRET kafka-pw AS hunter2",
        "CREATE SECRET kafka-pw WITH (backend = 'meta') AS hunter2;",
        "CREATE SECRET kafka pw WITH (backend = 'meta') AS hunter2",
        "ALTER SECRET kafka-pw AS hunter2",
        "ALTER SECRET pw hun hunter2",
        "ALTER SECRET pw, hunter2",
        "ALTER SECRET pw AS 'hun' 'hunter2'",
        "CREATE CREDENTIAL pw AS 'hunter2'",
        "CREATE PASSWORD pw AS 'hunter2'",
        "PUT SECRET pw 'hunter2'",
        "EXPLAIN ANALYZE CREAT SECRET pw 'hunter2'",
        "CREATE SECRET pw AS `hunter2",
        "CREATE /* SECRET pw AS hunter2",
        "CREATE SECRET pw -- hunter2\nWITH (backend = 'meta' AS 'x'",
        "CREATE SECRET pw WITH (backend = 'meta) AS 'hunter2'",
        "CREATE SECRET pw AS 'aGhunter2==\n",
    ],
)
def test_a_statement_that_resembles_one_with_secret_is_masked(text: str, tmp_path: Path) -> None:
    shown = refusal(text).render()
    assert "hunter2" not in shown
    assert "hunter2" not in masked(text, plain=())
    history = StatementHistory(tmp_path / "history")
    history.store_string(text)
    assert not (tmp_path / "history").exists()


@pytest.mark.parametrize(
    "url",
    [
        "amqp://ann:correct hunter2@h", "amqp://ann:a''b hunter2@h", "amqp://ann/x:hunter2@h", "amqp://h?key=hunter2",
        "u/hunter2@h", "xoxb-hunter2", "{''password'':''hunter2''}", "-----BEGIN PRIVATE KEY-----hunter2",
    ],
)  # fmt: skip
def test_an_address_of_any_form_is_masked(url: str) -> None:
    assert "hunter2" not in refusal(_SOURCE % f"url '{url}'").render()
    assert "hunter2" not in masked(_SOURCE % f"url = '{url}'", plain=())


@pytest.mark.parametrize(
    "text",
    [
        "CREATE SINK s FROM t WITH (connector='jdbc', jdbc.url 'jdbc:postgresql://reader:correct-horse-battery@db/shop')",
        "CREATE MATERIALIZED VIEW v AS SELECT * FROM jdbc(a 'jdbc:postgresql://reader:correct-horse-battery@db/shop')",
        "CREATE MATERIALIZED VIEW v AS SELECT a FROM t WHERE 'jdbc:postgresql://reader:correct-horse-battery@db/' 'x'",
        "ALTER SECRET pw AS E'correct-horse\ncorrect-battery' 5",
    ],
)
def test_a_message_contains_no_part_of_a_long_text(text: str) -> None:
    error = refusal(text)
    assert "correct" not in f"{error.message} {error.hint} {error.render()}"


def test_a_long_text_is_named_instead_of_cut() -> None:
    error = refusal(f"CREATE SOURCE s WITH (topic '{'a' * 50}')")
    assert error.message == 'expected "=", found: a string'
    error = refusal(f"CREATE SOURCE s WITH (topic {'a' * 50})")
    assert error.message == 'expected "=", found: a long word'


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (_SOURCE % "scan.startup.mode 'earliest'", "scan.startup.mode 'earliest'"),
        (_SOURCE % "log.retention '7 days'", "log.retention '7 days'"),
        (_SOURCE % "x = ", "topic = 'orders'"),
        ("INJECT SOURCE OFFSETS s VALUES ('orders:0' 5)", "'orders:0'"),
        ("INJECT SOURCE OFFSETS s TO TIMESTAMP '2026-01-31 08:00' x", "'2026-01-31 08:00'"),
        ("SKIP RECORD 'orders:0' 1 ON SOURCE orders", "'orders:0'"),
        ("PAUSE SOURCE s REASON 'a long reason' x", "'a long reason'"),
        ("CREATE TABLE t (at TIMESTAMP DEFAULT 'a text' x) WITH (connector = 'kafka')", "DEFAULT 'a text'"),
        ("CREATE TABLE t (id INT) FROM shop TABLE 'public.orders' x", "'public.orders'"),
        ("CREATE MATERIALIZED VIEW v AS SELECT a FROM t WHERE status = 'a status' GROUPP BY a", "'a status'"),
        ("ALTER MATERIALIZED VIEW v AS SELECT a FROM s WHERE a = 'delivered' GROUPP BY a", "'delivered'"),
        ("CREATE SINK k AS SELECT a FROM s WHERE a = 'delivered' WITH (connector = 'jdbc' x)", "'delivered'"),
        ("CREATE SOURCE s (id INT) WITH (group.id = 'a) FORMAT PLAIN ENCODE JSON", "FORMAT PLAIN ENCODE JSON"),
        ("CREATE SOURCE \"my orders\" (id INT) WIT (connector = 'kafka')", '"my orders"'),
        ("ALTER SOURCE s SET CONNECTION 'broker'", "'broker'"),
        ("SET TIME ZONE 'Europe/Berlin' x", "'Europe/Berlin'"),
        ("CREATE TABLE t (token STRING, password VARCHAR NOT NUL) WITH (connector = 'kafka')", "VARCHAR NOT NUL"),
        ("CREATE TABLE t (token WRONG(5), id INT PRIMARY) WITH (connector = 'kafka')", "token WRONG(5), id INT"),
        ("CREATE SOURCE s (a STRUCT<token: TEXTT, b: INT>) WITH (connector = 'kafka')", "token: TEXTT, b: INT"),
        (_SOURCE % "properties.sasl.password = SECRET kafka_pw x", "SECRET kafka_pw"),
        ("DROP SECRET pw other", "DROP SECRET pw other"),
        ("CREATE SECRET pw WIT (backend = 'file', path = '/etc/pw')", "CREATE SECRET pw WIT (backend = "),
        ("ALTER SECRET pw RENAM TO other", "ALTER SECRET pw RENAM TO"),
        ("ALTER SECRET pw OWNER TO ann x", "ALTER SECRET pw OWNER TO ann"),
        (_SOURCE % "schema.registry 'http://registry:8081'", "'http://registry:8081'"),
    ],
)
def test_what_cannot_be_secret_stays_legible(text: str, kept: str) -> None:
    assert kept in refusal(text).render()
    assert kept in masked(text, plain=())


def test_a_hint_repeats_the_users_interval_and_split() -> None:
    assert refusal("INJECT SOURCE OFFSETS s BACK BY '2 hours'").hint == "write INTERVAL before '2 hours'"
    assert "'orders:0'" in (refusal("SKIP RECORD 'orders:0' 1 ON SOURCE orders").hint or "")


def test_the_options_of_a_sink_over_a_query_are_masked() -> None:
    for options in ("WITH (connector = 'jdbc', pasword 'hunter2')", "WIHT (connector = 'jdbc', pasword = 'hunter2')"):
        assert "hunter2" not in refusal(f"CREATE SINK k AS SELECT a FROM s WHERE a = 'delivered' {options}").render()


def test_the_hint_for_an_open_string_stays_legible() -> None:
    error = refusal("CREATE SOURCE s WITH (pasword = 'the string ends here")
    assert error.hint == "write ' where the string ends"


def test_a_message_quotes_no_text_that_the_line_hides() -> None:
    plain = _SOURCE % "kennwort 'hunter2'"
    assert without_secrets_of(plain, "found: 'hunter2'", plain=()) == "found: '*******'"
    assert without_secrets_of(plain, "found: 'hunter2'") == "found: 'hunter2'"


def test_the_report_of_a_run_masks_a_refused_statement() -> None:
    text = _SOURCE % "kennwort - 'hunter2'"
    error = refusal(text)
    run = StatementRun(file=None, line=1, column=1, text=text, status="failed", error=error)
    report = RunReport(hide=hiding([]), statements=[run])
    assert "hunter2" not in report.as_json() + report.as_junit()
    assert "topic = 'orders'" in report.as_json()


def test_statements_of_spark_keep_their_literals() -> None:
    text = "SELECT 'a text' FROM t; INSERT INTO t VALUES ('a text'); CREATE VIEW v AS SELECT 'a text'"
    assert masked(text, plain=()) == text
    error = SqlError(SYNTAX_ERROR, "this ( has no )", span=Span(7, 15, 1, 8)).located(text)
    assert "'a text'" in error.render()


_KAFKA = (
    "CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = 'x', properties.bootstrap.server = 'h:1', "
    "properties.sasl.kennwort %s 'hunter2') FORMAT PLAIN ENCODE JSON;"
)
_BEFORE = [
    "SHOW SOURCES\n", "PAUSE SOURCE s\n", "DROP SOURCE s\n", "WAIT\n", "FLUSH\n", "BEGIN UNSAFE\n",
    "CREATE MATERIALIZED VIEW v AS SELECT a FROM t\n", "COMMENT ON TABLE t IS 'it\\'s';\n",
    "INSERT INTO notes VALUES ('it's fine');\n", "SET spark.app.name=it's;\n", "ADD JAR /it's/x.jar;\n",
    "PAUSE SOURCE s REASON 'it\\'s';\n", "DROP SOURCE s /*\n", "SHOW SOURCES; /* ", "SHOW SOURCES ",
]  # fmt: skip


@pytest.mark.parametrize("equals", ["=", ""])
@pytest.mark.parametrize("before", _BEFORE)
def test_no_other_statement_of_a_script_reveals_a_value(before: str, equals: str) -> None:
    script = before + _KAFKA % equals
    for checked in check_script(script, "a.sql"):
        for error in checked.errors:
            assert "hunter2" not in error.render()
    for part in split_script(script):
        refused = _error_of(part.text)
        if refused is not None:
            moved = refused.moved_into(script, part.start, part.line, part.column, None)
            assert "hunter2" not in moved.render()


@pytest.mark.parametrize(
    "text",
    [
        "SHOW CHECKPOINT '/c' (pasword = 'hunter2')",
        "SHOW CHECKPOINT '/c' WIHT (pasword = 'hunter2')",
        "SHOW CHEKPOINT '/c' WITH (pasword = 'hunter2')",
        "INJECT OFFSETS s FROM CHECKPOINT '/c' (pasword = 'hunter2')",
    ],
)
def test_the_properties_for_a_checkpoint_are_masked_without_with(text: str) -> None:
    assert "hunter2" not in refusal(text).render()


@pytest.mark.parametrize(
    "text",
    [
        "EXPLAIN EXTENDED SELECT * FROM t WHERE status = 'delivered'",
        "(SELECT * FROM t WHERE status = 'delivered') UNION ALL SELECT 'other word'",
        "TABLE t |> WHERE status = 'delivered'",
        "CREATE TABLE t USING delta AS SELECT 'hello world'",
        "ALTER TABLE t DROP PARTITION (country = 'germany')",
        "ALTER VIEW v AS SELECT * FROM t WHERE a = 'delivered'",
        "CONVERT TO DELTA parquet.`/data/x/y`",
        "LOAD DATA INPATH '/data/x' INTO TABLE t",
        "REPLACE TABLE t USING delta AS SELECT 'hello'",
        r"\i 'my script.sql'",
        r"\o '/tmp/out.csv'",
        _SOURCE % "properties.client.rack = 'rack-one'" + "; SHOW SOURCES;",
        "CREATE SINK k AS SELECT * FROM s WHERE a = 'delivered' WITH (connector = 'blackhole', type='append-only'); "
        "SHOW SINKS;",
        "ALTER MATERIALIZED VIEW v AS SELECT * FROM s WHERE a = 'delivered'; SHOW JOBS;",
    ],
)
def test_valid_statements_stay_in_the_history_and_in_reports(text: str, tmp_path: Path) -> None:
    StatementHistory(tmp_path / "history").store_string(text)
    assert (tmp_path / "history").exists()
    for part in split_script(text) if not text.startswith("\\") else ():
        run = StatementRun(file=None, line=1, column=1, text=part.text, status="not run")
        assert "*****" not in RunReport(hide=hiding([]), statements=[run]).as_json()


def test_the_properties_that_lines_show_are_never_secret() -> None:
    secret = {
        key
        for file in (Path(__file__).parents[2] / "sources").glob("*.toml")
        for key, option in tomllib.loads(file.read_text(encoding="utf-8"))["options"].items()
        if option.get("secret")
    }
    assert not secret & _PLAIN_KEYS


_BROKEN = [
    "CREATE SECRET pw WITH ( backend = 'meta' ) AS 'hunter2' ;",
    "ALTER SECRET pw AS $$hunter2$$ ;",
    "CREATE SOURCE s ( id INT ) WITH ( connector = 'kafka' , properties.sasl.kennwort = 'hunter2' , topic = 'y' )",
    "CREATE SINK s FROM t WITH ( connector = 'jdbc' , jdbc.url = 'jdbc:postgresql://u:hunter2@h/d' , type = 'upsert' )",
    "ALTER SOURCE s UNSAFE SET ( properties.sasl.password = 'hunter2' , topic = 'o' ) , UNSET ( a ) ;",
    "CREATE CONNECTION c WITH ( type = 'jdbc' , password = 'hunter2' , user = 'ann' ) ;",
]
_SIGNS = [
    "'", '"', "`", "/*", "*/", "--", "$$", "\n", "-", ",", "(", ")", "=", ".", ":", "SECRET", "AS", "x", "5", "'a'",
    "‘", "\\", "E", "N", "FROM", "WITH", "TABLE", "FILE", "DEFAULT",
]  # fmt: skip


@settings(max_examples=300)
@given(
    words=st.sampled_from(_BROKEN).map(str.split),
    signs=st.lists(st.tuples(st.sampled_from(_SIGNS), st.integers(1, 30)), min_size=1, max_size=2),
    glued=st.booleans(),
)
def test_signs_in_any_place_reveal_no_secret(words: list[str], signs: list[tuple[str, int]], glued: bool) -> None:
    for sign, place in signs:
        at = 1 + place % len(words)
        if glued and at < len(words):
            words = [*words[:at], sign + words[at], *words[at + 1 :]]
        else:
            words = [*words[:at], sign, *words[at:]]
    text = " ".join(words)
    shown = masked_statement(text)
    assert len(shown) == len(text)
    error = _error_of(text)
    if error is not None:
        assert "hunter2" not in shown
        assert "hunter2" not in f"{error.render()} {error.args}".lower()


def _error_of(text: str) -> SqlError | None:
    try:
        parse_statement(text)
    except SqlError as error:
        return error
    return None


@pytest.mark.parametrize(
    "piece", ["token ", "token.", "token,", "(token = ", "-- a 'b\n", "a; ", "('x' ", "‘", "it's; "]
)
def test_the_time_to_read_a_refused_statement_grows_with_its_length(piece: str) -> None:
    def seconds(times: int) -> float:
        begun = time.process_time()
        hidden_spans(f"CREATE SOURCE s {piece * times}", ())
        return time.process_time() - begun

    short, long = (min(seconds(times) for _ in "ab") for times in (500, 4000))
    assert long < 0.1 or long < 24 * short


@pytest.mark.parametrize(
    "options",
    [
        "WTH (connector='jdbc', kennwort='hunter2') FORMAT PLAIN ENCODE JSON WITH (a='b')",
        "WTH (\"connector\"='jdbc', kennwort='hunter2') FORMAT PLAIN ENCODE JSON WITH (a='b')",
        "WTH (conector='jdbc', kennwort='hunter2') FORMAT PLAIN ENCODE JSON WITH (a='b')",
        "WTH (connector : 'jdbc', kennwort='hunter2') FORMAT PLAIN ENCODE JSON WITH (a='b')",
        "WTH (kennwort='hunter2') WITH (connector='jdbc')",
        "PROPERTIES (kennwort='hunter2') WITH (connector='jdbc')",
    ],
)
def test_a_second_list_does_not_make_the_first_one_of_a_sink_a_query(options: str) -> None:
    assert "hunter2" not in masked(f"CREATE SINK k AS SELECT 'a' FROM t {options}", plain=())


def test_a_query_with_a_parenthesis_before_the_options_of_a_sink_is_shown() -> None:
    text = "CREATE SINK k AS SELECT max(a) FROM t WHERE a IN ('new', 'delivered') WITH (connector = 'jdbc' x)"
    assert masked(text, plain=()) == text
