"""``rw-sql fmt`` writes statements in canonical form and leaves all other text unchanged."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.formatting.command import format_script, run_fmt
from rw_sql.errors import SqlError
from rw_sql.syntax import parse_script
from tests.conftest import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

BEFORE = """-- sources
create   source s (v int) with (connector='datagen') ; select   1;
create table t (a int) using delta;

drop source if exists s -- gone
; pause source /* this one */ s;
set spark.sql.x=1; set statement_timeout to 30
"""
AFTER = """-- sources
CREATE SOURCE s (v INT) WITH (connector = 'datagen') ; SELECT 1;
create table t (a int) using delta;

DROP SOURCE IF EXISTS s -- gone
; PAUSE SOURCE /* this one */ s;
set spark.sql.x=1; SET statement_timeout = 30
"""


def test_ours_are_formatted_and_the_rest_stays() -> None:
    assert format_script(BEFORE) == AFTER


def test_comments_types_and_queries() -> None:
    text = """create source s ( -- the clicks
    -- its number
 id integer, -- key
    name varchar, seen timestamptz) with (connector='datagen');
create materialized view v as select id, /* the */ name from s -- all
 where id = 1 and name like 'a%'
"""
    formatted = """CREATE SOURCE s ( -- the clicks
  -- its number
  id INTEGER, -- key
  name VARCHAR,
  seen TIMESTAMPTZ
)
WITH (
  connector = 'datagen'
);
CREATE MATERIALIZED VIEW v
AS SELECT
  id,
  /* the */ name
FROM s -- all
WHERE id = 1 AND name LIKE 'a%'
"""
    assert format_script(text) == formatted
    canonical = formatted.replace("INTEGER", "INT").replace("VARCHAR", "CHARACTER VARYING")
    canonical = canonical.replace("TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE")
    assert format_script(text, is_canonical=True) == canonical


@pytest.mark.parametrize(
    "text",
    [
        r"select 'it\'s', a from t",
        "select ${column} from t",
        "select a from t where b = :limit",
        "select transform(a) using 'cat' from t",
        "insert into t   select 1",
    ],
)
def test_what_cannot_be_read_for_certain_stays(text: str) -> None:
    assert format_script(text) == text


@pytest.mark.parametrize("text", ["/* the rest\n", "/* in/*.csv */\n", "select 'x from s;\n", "select (1 from s;\n"])
def test_what_does_not_end_is_refused(text: str) -> None:
    with pytest.raises(SqlError) as caught:
        format_script(f"drop source a;\n{text}drop source b;\n")
    assert (caught.value.code, caught.value.line) == ("RW101" if "(" in text else "RW102", 2)


def test_a_window_is_a_name_except_in_its_clause() -> None:
    text = "select window, sum(n) over w from s group by window(at, '1 hour') window w as (order by window.start)"
    formatted = """SELECT window, sum(n) over w
FROM s
GROUP BY window(at, '1 hour')
WINDOW w AS (ORDER BY window.start)"""
    assert format_script(text) == formatted


@pytest.mark.parametrize(
    ("text", "formatted"),
    [
        ("select a as between, b as values from t", "SELECT a AS between, b AS values FROM t"),
        ("select between, t.between + 1, -between from t", "SELECT between, t.between + 1, -between FROM t"),
        ("select a as select, b as with, c as not from t", "SELECT a AS select, b AS with, c AS not FROM t"),
        ("select a isnull, b notnull from t", "SELECT a isnull, b notnull FROM t"),
        ("with between as (select 1 as a) select a from t", "WITH between AS (SELECT 1 AS a) SELECT a FROM t"),
        (
            "with b as not materialized (select 1 as a) select a from b",
            "WITH b AS NOT materialized (SELECT 1 AS a) SELECT a FROM b",
        ),
        ("select sum(a) over between from t", "SELECT sum(a) over between FROM t"),
        ("select f(between => 1) from t", "SELECT f(between => 1) FROM t"),
        (
            "select between between 1 and 2, a not between 'x' and b from t",
            "SELECT between BETWEEN 1 AND 2, a NOT BETWEEN 'x' AND b FROM t",
        ),
        (
            "select f(a) between (1) and 2, case when a then 1 end between -1 and 2 from t",
            "SELECT f(a) BETWEEN (1) AND 2, CASE WHEN a THEN 1 END BETWEEN -1 AND 2 FROM t",
        ),
        (
            "select sum(a) over (order by b rows between unbounded preceding and current row) from t",
            "SELECT sum(a) OVER (ORDER BY b rows BETWEEN unbounded preceding AND current row) FROM t",
        ),
        ("select a from t where not between = 1 and b = 2", "SELECT a FROM t WHERE NOT between = 1 AND b = 2"),
    ],
)
def test_a_name_keeps_its_case_even_if_it_is_a_keyword_elsewhere(text: str, formatted: str) -> None:
    assert format_script(text) == formatted
    assert format_script(formatted) == formatted


def test_a_block_of_spark_stays() -> None:
    text = "begin declare n int; select   n; end;\n"
    assert format_script(text + "drop source s;\n") == text + "DROP SOURCE s;\n"


def test_formatting_twice_changes_nothing() -> None:
    assert format_script(AFTER) == AFTER


@pytest.mark.parametrize("script", sorted((FIXTURES / "syntax").glob("*.sql")), ids=lambda path: path.stem)
def test_formatting_keeps_the_meaning(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    formatted = format_script(text)
    assert parse_script(formatted) == parse_script(text)
    assert format_script(formatted) == formatted


def test_files_are_written_in_place(tmp_path: Path) -> None:
    path = tmp_path / "a.sql"
    path.write_text(BEFORE, encoding="utf-8")
    assert run_fmt([str(path)], check=True) == 1
    assert path.read_text(encoding="utf-8") == BEFORE
    assert run_fmt([str(path)]) == 0
    assert path.read_text(encoding="utf-8") == AFTER
    assert run_fmt([str(path)], check=True) == 0


def test_a_transaction_keeps_its_word() -> None:
    assert format_script("start  transaction;\n") == "START TRANSACTION;\n"


def test_a_file_with_an_error_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.sql"
    path.write_text(
        "create   source s (v int) with (connector='datagen');\nselect 1;\n  pause source;\n", encoding="utf-8"
    )
    assert run_fmt([str(path)]) == 1
    assert path.read_text(encoding="utf-8").startswith("create   source")
    shown = capsys.readouterr().err
    assert shown == (
        f"{path}: RW101: PAUSE SOURCE needs a source name\nLINE 3:   pause source;\n                      ^\n"
        "HINT: write a name after source: SHOW SOURCES lists the sources\n"
    )


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("flush ;"))
    assert run_fmt(["-"]) == 0
    assert capsys.readouterr().out == "FLUSH ;"


def test_an_unreadable_file_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_fmt([str(tmp_path / "none.sql")]) == 2
    assert "RW408: cannot read" in capsys.readouterr().err
    (tmp_path / "a.sql").write_text(BEFORE, encoding="utf-8")
    assert run_fmt([str(tmp_path / "none.sql"), str(tmp_path / "a.sql")]) == 1
    assert (tmp_path / "a.sql").read_text(encoding="utf-8") == AFTER


def test_no_file_is_no_error() -> None:
    assert run_fmt([]) == 0


def test_errors_name_the_place_in_the_script() -> None:
    with pytest.raises(SqlError) as caught:
        format_script("select 1;\n\n   drop source a b;", "x.sql")
    assert (caught.value.line, caught.value.column, caught.value.file) == (3, 18, "x.sql")
