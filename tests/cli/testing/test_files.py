"""Reading test files (``.slt``, ``.test.yaml``, ``.sqltest``), and the tests of a path."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.testing.outcome import WrongTestError
from rw_sql.cli.testing.runner import ViewTest, collect
from rw_sql.cli.testing.slt_file import read_records, rewritten, topics_of
from rw_sql.cli.testing.unit_file import RowsGiven, read_unit_file
from rw_sql.cli.testing.yaml_text import plain
from tests.cli.test_main import rw_sql

if TYPE_CHECKING:
    from pathlib import Path

SLT = """\
# a comment
topic orders partitions 2

statement error RW203 does not exist
DROP SOURCE x

skipif rw_sql
onlyif other
query T rowsort
SELECT 1
UNION ALL SELECT 2
----
1
2

flush

halt

nonsense
"""


def test_records_of_a_file(tmp_path: Path) -> None:
    records = read_records(SLT, "a.slt")
    assert [(record.line, record.words[0], record.body) for record in records] == [
        (2, "topic", ()),
        (4, "statement", ("DROP SOURCE x",)),
        (9, "query", ("SELECT 1", "UNION ALL SELECT 2")),
        (16, "flush", ()),
    ]
    assert topics_of(records) == {"orders"}
    query = records[2]
    assert query.rows == ("1", "2")
    assert not query.counts(frozenset({"rw_sql"}))
    assert not query.counts(frozenset())
    assert query.counts(frozenset({"other"}))
    assert rewritten(SLT, "a.slt", records, {query.rows_at: ["3"]}) == SLT.replace("1\n2\n\n", "3\n\n")


def test_included_records_keep_their_places(tmp_path: Path) -> None:
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "b.slt").write_text("flush\n", encoding="utf-8")
    (tmp_path / "common" / "a.slt").write_text("\nstatement ok\nSELECT 1\n", encoding="utf-8")
    main = tmp_path / "main.slt"
    records = read_records("flush\n\ninclude common/*.slt\n", str(main))
    assert [(record.file.removeprefix(f"{tmp_path}/"), record.line) for record in records] == [
        ("main.slt", 1),
        ("common/a.slt", 2),
        ("common/b.slt", 1),
    ]
    (tmp_path / "common" / "c.slt").write_text("include ../main.slt", encoding="utf-8")
    main.write_text("include common/c.slt", encoding="utf-8")
    with pytest.raises(WrongTestError, match="includes itself"):
        read_records("include common/c.slt", str(main))
    with pytest.raises(WrongTestError, match="no file is named"):
        read_records("include none/*.slt", str(main))


def test_conditions_of_include_and_halt(tmp_path: Path) -> None:
    (tmp_path / "b.slt").write_text("\ufeffonlyif x\nflush\n", encoding="utf-8")
    text = "skipif rw_sql\ninclude b.slt\n\nonlyif rw_sql\nhalt\n\nflush\n\nskipif y\nflush\n"
    records = read_records(text, str(tmp_path / "a.slt"))
    assert [record.conditions for record in records] == [
        (("skipif", "rw_sql"), ("onlyif", "x")),
        (("skipif", "rw_sql"),),
        (("skipif", "rw_sql"), ("skipif", "y")),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("flush\nquery I\nSELECT 1\n----\n1", "a.slt:2: flush takes no lines below it: an empty line ends a record"),
        ("statement ok\nSELECT 1\n----\n2", "a.slt:3: only a query and an expected error have rows below ----"),
        ("let a\nSELECT 1\n----\n", "a.slt:3: only a query and an expected error have rows below ----"),
        ("skipif a\nonlyif b\nhalt", "a.slt:3: halt may have only one skipif or onlyif before it"),
        ("# nothing\n", "a.slt: the file contains no record"),
        ("flush\n\nsleep 1s\n", "a.slt:3: sleep is not supported: to wait for a condition, use flush"),
        ("system ok\nls", "a.slt:1: system is not supported"),
        ("nothing", "a.slt:1: not a record: nothing"),
        ("query I\nSELECT 1", "a.slt:1: a query needs ---- and its rows"),
        ("skipif", "a.slt:1: skipif takes one label"),
    ],
)
def test_what_is_no_record(text: str, told: str) -> None:
    with pytest.raises(WrongTestError) as caught:
        read_records(text, "a.slt")
    assert str(caught.value).startswith(told)


YAML = """\
variables: {topic: orders, version: 1.10, flag: no}
tests:
  - name: totals add up
    view: totals
    given:
      orders:
        - {id: 1, customer: ann}
        - {id: 2, amount: 1.5}
      none: []
      rates: {sql: "SELECT 1 AS a"}
      typed: {columns: {id: BIGINT}, rows: []}
      raw: {records: [{value: "{}", key: a, timestamp: 2024-01-02}]}
      listed: {file: rows.csv}
    expect: [{customer: ann}]
  -
    view: other
    expect: {file: rows.csv}
"""


def test_yaml(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,\n2,x\n", encoding="utf-8")
    found = read_unit_file(YAML, str(tmp_path / "x.test.yaml"))
    assert found.variables == {"topic": "orders", "version": "1.10", "flag": "no"}
    first, second = found.tests
    assert (first.name, first.line, second.name, second.line) == ("totals add up", 3, "other", 16)
    orders = first.given["orders"]
    assert orders.columns == ("id", "customer", "amount")
    assert tuple(map(plain, orders.rows)) == ({"id": 1, "customer": "ann"}, {"id": 2, "amount": 1.5})
    assert first.given["none"] == RowsGiven()
    assert first.given["rates"].sql == "SELECT 1 AS a"
    assert first.given["typed"].types == {"id": "BIGINT"}
    assert [record["key"] for record in first.given["raw"].records or ()] == ["a"]
    assert second.expect.rows == ({"a": "1", "b": None}, {"a": "2", "b": "x"})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tests: [", "not valid YAML"),
        ("- a", "the file must be a mapping with the keys definitions, variables, tests"),
        ("test: []", 'the file has no key "test": did you mean "tests"?'),
        ("tests: []", "the file contains no test"),
        ("tests:\n- {view: v, expects: []}", ':2: a test has no key "expects": did you mean "expect"?'),
        ("tests:\n- {view: v}", ':2: a test needs "expect"'),
        ("tests:\n\n- {view: v, expect: [1]}", ":3: a row of expect is {column: value, …}, not 1"),
        ("tests:\n- {view: v, expect: {}}", ":2: expect needs exactly one of rows, file, sql"),
        ("tests:\n- {view: v, expect: {rows: [], sql: x}}", ":2: expect needs exactly one of rows, file, sql"),
        (
            "tests:\n- {view: v, given: {o: {records: [{val: 1}]}}, expect: []}",
            'has no key "val": did you mean "value"?',
        ),
        ("tests:\n- {view: v, expect: {file: none.csv}}", "none.csv cannot be read"),
        (
            "tests:\n- view: v\n  expect: []\n  expect: [{a: 1}]",
            'x.test.yaml:4: not valid YAML: the key "expect" occurs twice',
        ),
        ("tests:\n- {view: v, expect: [{a: 2024-02-30}]}", "not valid YAML: day is out of range for month"),
        ("tests:\n- {view: v, expect: []}\n- {view: v, expect: []}", ':2: "v" is the name of two tests'),
    ],
)
def test_what_is_no_test_in_yaml(text: str, told: str) -> None:
    with pytest.raises(WrongTestError) as caught:
        read_unit_file(text, "x.test.yaml")
    assert told in str(caught.value)


SQL = """\
-- tests; of totals
DEFINITIONS '../*.sql', 'more.sql';

TEST 'it''s right' FOR Totals
GIVEN orders (id, customer) AS (VALUES (1, 'a)n;n'), (2, '\\')')) -- a (comment
GIVEN "Odd" AS (SELECT /* ( */ 1 AS a),
EXPECT (customer) AS (VALUES ('ann'));
TEST second FOR "V" EXPECT AS (SELECT 1 AS a)
"""


def test_sql() -> None:
    found = read_unit_file(SQL, "x.sqltest")
    assert found.definitions == ("../*.sql", "more.sql")
    first, second = found.tests
    assert (first.name, first.view, first.line) == ("it's right", "totals", 4)
    assert first.given["orders"].sql == "SELECT * FROM (VALUES (1, 'a)n;n'), (2, '\\')')) AS t(id, customer)"
    assert (first.given["Odd"].sql or "").split() == ["SELECT", "*", "FROM", "(SELECT", "1", "AS", "a)", "AS", "t"]
    assert first.expect.sql == "SELECT * FROM (VALUES ('ann')) AS t(customer)"
    assert (second.name, second.view, second.line, second.given) == ("second", "V", 8, {})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SELECT 1;", "x.sqltest:1: a test begins with TEST name FOR view"),
        ("\nTEST a FOR v\nGIVEN o AS SELECT 1;", "x.sqltest:3: GIVEN … AS (…) or EXPECT … AS (…) is expected"),
        ("TEST a FOR v GIVEN o AS (SELECT 1;", "x.sqltest:1: a bracket is not closed"),
        ("TEST a FOR v GIVEN o AS (SELECT 1);", "x.sqltest:1: the test expects nothing"),
        ("", "the file contains no test"),
    ],
)
def test_what_is_no_test_in_sql(text: str, told: str) -> None:
    with pytest.raises(WrongTestError) as caught:
        read_unit_file(text, "x.sqltest")
    assert told in str(caught.value)


PIPELINE = """\
SET query_dialect = 'risingwave';
CREATE SOURCE orders (id INT, customer VARCHAR, amount NUMERIC(10, 2)) INCLUDE timestamp AS at
WITH (connector = 'kafka', topic = :'topic', properties.bootstrap.server = 'b:1') FORMAT PLAIN ENCODE JSON;
CREATE MATERIALIZED VIEW totals AS SELECT customer, sum(amount) AS amount FROM orders GROUP BY customer;
"""


def test_which_tests_a_path_has(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "pipeline.sql").write_text(PIPELINE, encoding="utf-8")
    (tmp_path / "a.slt").write_text("flush", encoding="utf-8")
    (tmp_path / ".hidden" / "b.slt").write_text("nonsense", encoding="utf-8")
    (tmp_path / "tests" / "t.sqltest").write_text(
        "TEST one FOR totals EXPECT AS (SELECT 1); TEST two FOR totals EXPECT AS (SELECT 1)", encoding="utf-8"
    )
    (tmp_path / "tests" / "u.test.yml").write_text(
        textwrap.dedent("""\
        definitions: ../pipeline.sql
        variables: {topic: o}
        tests:
          - {view: totals, expect: []}
        """),
        encoding="utf-8",
    )
    variables = {"topic": "orders"}
    found = collect([str(tmp_path)], variables)
    assert [test.id.removeprefix(f"{tmp_path}/") for test in found.tests] == [
        "a.slt",
        "tests/t.sqltest::one",
        "tests/t.sqltest::two",
        "tests/u.test.yml::totals",
    ]
    chosen = collect([f"{tmp_path}/tests/t.sqltest::t*", f"{tmp_path}/tests/t.sqltest::two"], variables).tests
    assert [test.id.rpartition("::")[2] for test in chosen] == ["two"]
    (view,) = [test for test in chosen if isinstance(test, ViewTest)]
    assert view.definitions["totals"].reads == ("orders",)
    assert view.definitions["totals"].dialect == "risingwave"
    for wrong, told in ((f"{tmp_path}/tests/t.sqltest::none", "no test is named none"), (f"{tmp_path}/x", "no such")):
        with pytest.raises(WrongTestError, match=told):
            collect([wrong], variables)
    assert [str(wrong).partition("t.sqltest")[0] for wrong in collect([str(tmp_path)], {}).wrong] != []


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.slt", "sleep 1s", "a.slt:1: sleep is not supported"),
        ("a.test.yaml", "tests: 1", 'a.test.yaml:1: "tests" of the file has the wrong type'),
        ("b.txt", "", "b.txt: a test's file ends in .slt, .test.yaml, .test.yml, .sqltest"),
        (
            "a.sqltest",
            "TEST a FOR v EXPECT AS (SELECT 1)",
            "a.sqltest: no *.sql file is beside it: list the files under definitions",
        ),
    ],
)
def test_a_wrong_file_has_status_2_before_spark_starts(name: str, text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    env = {"PATH": "/nowhere", "HOME": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    done = rw_sql("test", str(tmp_path / name), env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


@pytest.mark.parametrize(
    ("file", "hint"),
    [
        ("tests/t.sqltest", "DEFINITIONS '../**/*.sql'; reads the files in subfolders too"),
        ("tests/u.test.yaml", 'definitions: ["../**/*.sql"] reads the files in subfolders too'),
        ("v.test.yaml", 'definitions: ["**/*.sql"] reads the files in subfolders too'),
        ("staging/w.test.yaml", ""),
    ],
)
def test_definitions_in_subfolders_are_named(file: str, hint: str, tmp_path: Path) -> None:
    for folder in ("tests", "staging/raw", "empty"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "staging" / "totals.sql").write_text(PIPELINE, encoding="utf-8")
    path = tmp_path / file
    path.write_text(
        "TEST one FOR totals EXPECT AS (SELECT 1)"
        if file.endswith(".sqltest")
        else "tests: [{name: one, view: totals, expect: []}]",
        encoding="utf-8",
    )
    found = read_unit_file(path.read_text(encoding="utf-8"), str(path))
    assert found.with_subfolders == hint
    if hint:
        words = hint.partition(" reads")[0]
        with pytest.raises(WrongTestError, match=re.escape(f"no *.sql file is beside it: {hint}")):
            found.definition_files()
        named = read_unit_file(f"{words}\n{path.read_text(encoding='utf-8')}", str(path))
        (totals,) = named.definition_files()
        assert totals.endswith("staging/totals.sql")
        assert named.with_subfolders == ""


def test_the_secret_values_of_all_variables_of_tests_are_hidden(tmp_path: Path) -> None:
    """Those that are given, and those of an environment, a test file and a file of definitions."""
    (tmp_path / "prod.env").write_text("ENV_TOKEN=ofenv\nTOPIC=orders\n", encoding="utf-8")
    (tmp_path / "a.slt").write_text("statement ok\nSELECT 1\n", encoding="utf-8")
    (tmp_path / "v.sql").write_text(
        "\\set set_token 'ofset'\nCREATE MATERIALIZED VIEW v AS SELECT 1 AS a FROM s;\n", encoding="utf-8"
    )
    yaml = "variables: {yaml_token: ofyaml}\ntests:\n- {name: n, view: v, given: {}, expect: []}\n"
    (tmp_path / "v.test.yaml").write_text(yaml, encoding="utf-8")
    text = "ofenv ofset ofyaml ofoption orders"
    given = {"option_token": "ofoption"}
    assert collect([str(tmp_path)], given, "prod").hide(text) == "***** ***** ***** ***** orders"
    assert collect([str(tmp_path)], {}).hide(text) == "ofenv ***** ***** ofoption orders"
    assert collect([str(tmp_path / "a.slt")], given, "prod").hide(text) == "***** ofset ofyaml ***** orders"
    # The test itself reports that its environment is missing.
    assert collect([str(tmp_path / "a.slt")], given, "nowhere").hide(text) == "ofenv ofset ofyaml ***** orders"
    (tmp_path / "v.sql").write_text("CREATE SOURCE s ${ENV_TOKEN};\n", encoding="utf-8")
    (wrong,) = collect([str(tmp_path / "v.test.yaml")], given, "prod").wrong
    assert "found: *****" in str(wrong)
    assert "ofenv" not in str(wrong)
