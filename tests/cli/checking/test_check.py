"""``rw-sql check`` reports the errors of each statement without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.checking.check import check_script, run_check
from rw_sql.cli.main import app
from rw_sql.metastore import Metastore, catalog_from_json, catalog_to_json
from rw_sql.metastore.records import Operation, ParameterRecord, PutObject
from rw_sql.plan.offline.script import ScriptChecker

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = "CREATE SOURCE a (id INT) WITH (connector = 'datagen');\n"

SCRIPT = """CREATE SOURCE s (v INT) WITH (connector = 'datagen');
SELECT * FROM s; CREATE TABLE t USING delta AS SELECT 1 AS a;
  ALTER SOURCE s UNSAFE
  SET (topic = );
ALTER SOURCE s SET PARALLELISM = 4;
CREATE SORCE s (v INT);
FLUSH
"""


def test_every_statement_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.sql"
    path.write_text(SCRIPT, encoding="utf-8")
    assert run_check([str(path)], output="json") == 1
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(t["kind"], t["ok"], t["code"], t["line"], t["column"]) for t in told] == [
        ("CREATE SOURCE", True, None, 1, 1),
        ("spark", True, None, 2, 1),
        ("spark", True, None, 2, 18),
        ("ALTER SOURCE", False, "RW101", 4, 16),
        ("ALTER SET", False, "RW301", 5, 1),
        ("CREATE SORCE", False, "RW101", 6, 8),
        ("FLUSH", True, None, 7, 1),
    ]
    keys = {"file", "line", "column", "kind", "ok", "code", "message", "hint"}
    assert all(t.keys() == keys | {"findings", "unchecked", "blocked_by", "unsafe"} for t in told)
    assert told[5]["hint"] == "did you mean SOURCE?"


def test_text_shows_errors_and_says_what_was_not_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.sql"
    path.write_text("FLUSH;\nDROP SOURCE a b;\nANALYZE TABLE t COMPUTE STATISTICS;\n", encoding="utf-8")
    assert run_check([str(path)]) == 1
    told = capsys.readouterr()
    assert told.out == (
        f"{path}: RW101: expected end of statement, found: b\nLINE 2: DROP SOURCE a b;\n"
        "                      ^\n"
        "HINT: omit b, or write RESTRICT before it\n"
    )
    assert told.err == "3 statements in 1 file: 1 error\nunchecked, 1 statement: Spark's own statements\n"


def test_right_scripts_are_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.sql"
    path.write_text("-- nothing but\n/* comments */;;\nFLUSH", encoding="utf-8")
    assert run_check([str(path)]) == 0
    assert capsys.readouterr().out == ""


def test_long_scripts_take_time_in_proportion() -> None:
    script = "DROP SOURCE IF EXISTS a;\n" * 5_000
    assert sum(1 for checked in check_script(script, "x") if checked.error is None) == 5_000


@pytest.mark.parametrize("ordinal", ["0", "3", "99999999999999999999"])
def test_an_ordinal_beyond_the_select_list_is_an_error(ordinal: str) -> None:
    query = f"SELECT id, count(*) AS n FROM a GROUP BY 1, {ordinal}"
    checked = list(check_script(f"{SOURCE}CREATE MATERIALIZED VIEW v AS {query};\nDROP SOURCE b;", "x"))
    assert [error.message for one in checked for error in one.errors] == [
        f"GROUP BY {ordinal} is out of range: the query has 2 columns",
        'source "b" does not exist',
    ]


BLOCK = """BEGIN
  DECLARE n INT DEFAULT 0;
  CREATE TABLE lake.counts AS SELECT 1 AS n;
  IF n = 0 THEN
    -- the first time
    CREATE OR REPLACE TEMPORARY VIEW seen AS SELECT n;
  END IF;
END;
"""


def test_a_block_of_spark_is_one_statement() -> None:
    checked = list(check_script(f"{BLOCK}DROP SOURCE b;\nSELECT nothing FROM counts;", "x"))
    assert [(one.kind, one.line) for one in checked] == [("spark", 1), ("DROP SOURCE", 9), ("spark", 10)]
    assert [error.message for one in checked for error in one.errors] == ['source "b" does not exist']
    view = "CREATE MATERIALIZED VIEW v AS SELECT n FROM seen;"
    (found,) = (error.message for one in check_script(view, "x") for error in one.errors)
    assert found == 'relation "seen" does not exist'
    assert not [error for one in check_script(BLOCK + view, "x") for error in one.errors if error.message == found]


def test_a_block_without_end_is_an_error_and_the_statements_behind_it_are_checked() -> None:
    checked = list(check_script("SELECT 1;\n BEGIN\n  SELECT 2;\nDROP SOURCE b;\n", "x"))
    errors = [error for one in checked for error in one.errors]
    assert [(error.message, error.line, error.column) for error in errors] == [
        ("this BEGIN has no END", 2, 2),
        ('source "b" does not exist', 4, 13),
    ]


def test_the_objects_that_a_block_makes_are_known_wherever_they_stand() -> None:
    block = (
        "BEGIN NOT ATOMIC CREATE TABLE t1 AS SELECT 1 AS n; `l`: BEGIN CREATE TABLE t2 AS SELECT 1 AS n; END `l`; "
        "IF a THEN CREATE TABLE t3 AS SELECT 1 AS n; END IF; SELECT '; CREATE TABLE t4'; END;"
    )
    errors = []
    for number in range(1, 5):
        view = f"CREATE MATERIALIZED VIEW v AS SELECT n FROM t{number};"
        errors += [error.message for one in check_script(block + view, "x") for error in one.errors]
    assert errors == ['relation "t4" does not exist']


@pytest.mark.parametrize(
    ("block", "found"),
    [
        ("BEGIN CREATE SOURCE s (a INT) WITH (connector='kafka'); END", [("CREATE SOURCE", 1, 7)]),
        ("BEGIN NOT ATOMIC FLUSH; END", [("FLUSH", 1, 18)]),
        (
            "BEGIN\n SELECT 1;\n l: BEGIN\n DROP /* a */ SOURCE b; END l;\n PAUSE SOURCE c;\nEND",
            [("DROP SOURCE", 4, 2), ("PAUSE", 5, 2)],
        ),
        ("BEGIN IF a THEN CREATE MATERIALIZED VIEW w AS SELECT 1; END IF; END", [("CREATE MATERIALIZED VIEW", 1, 17)]),
        (
            "BEGIN CASE a WHEN 1 THEN FLUSH; ELSE SHOW SOURCES; END CASE; END",
            [("FLUSH", 1, 26), ("SHOW SOURCES", 1, 38)],
        ),
        ("BEGIN SELECT '; FLUSH' AS a; -- ; FLUSH\n SELECT 2; END", []),
        ("BEGIN SELECT CASE WHEN a THEN flush ELSE skip END AS x; SELECT t.wait FROM t; END", []),
        ("BEGIN wait: LOOP LEAVE wait; END LOOP wait; skip: BEGIN SELECT 1; END skip; END", []),
        ("BEGIN SHOW TABLES; RESET a; REFRESH TABLE t; SET flush = 1; END", []),
    ],
)
def test_a_block_of_spark_with_statements_of_rw_sql_is_refused(block: str, found: list[tuple[str, int, int]]) -> None:
    errors = [error for one in check_script(f"{block};", "x") for error in one.errors]
    assert {error.code for error in errors} <= {"RW331"}
    assert [(error.message, error.line, error.column) for error in errors] == [
        (f"{words} cannot run inside a BEGIN … END block of Spark", line, column) for words, line, column in found
    ]


def test_an_object_that_a_refused_block_would_create_is_not_reported_as_missing() -> None:
    text = f"BEGIN {SOURCE.rstrip()} END;\nCREATE MATERIALIZED VIEW v AS SELECT id FROM a;"
    assert [error.code for one in check_script(text, "x") for error in one.errors] == ["RW331"]


def test_a_block_that_changes_an_object_is_refused() -> None:
    text = f"{SOURCE}BEGIN\n  SELECT 1;\n  INSERT INTO a VALUES (1);\nEND;"
    errors = [error for one in check_script(text, "x") for error in one.errors]
    assert [error.line for error in errors] == [4]


def test_files_are_checked_one_after_the_other_or_each_by_itself(tmp_path: Path) -> None:
    first, second = tmp_path / "1.sql", tmp_path / "2.sql"
    first.write_text(SOURCE, encoding="utf-8")
    second.write_text("CREATE MATERIALIZED VIEW v AS SELECT id FROM a;\n", encoding="utf-8")
    assert run_check([str(first), str(second)]) == 0
    assert run_check([str(first), str(second)], is_each=True) == 1
    assert run_check([str(second), str(first)]) == 1
    second.write_text(SOURCE, encoding="utf-8")
    assert run_check([str(first), str(second)]) == 1
    assert run_check([str(first), str(second)], is_each=True) == 0


def test_a_later_file_that_makes_the_object_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "1.sql", tmp_path / "2.sql"
    first.write_text("PAUSE SOURCE a;", encoding="utf-8")
    second.write_text("\n" + SOURCE, encoding="utf-8")
    assert run_check([str(first), str(second)]) == 1
    assert f"HINT: it is created later, in {second}, line 2: move that statement before" in capsys.readouterr().out


def test_a_file_that_cannot_be_read_is_no_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.sql"
    path.write_text("DROP SOURCE a;", encoding="utf-8")
    assert run_check([str(tmp_path / "nosuch.sql"), str(path)]) == 2
    told = capsys.readouterr()
    assert "cannot read" in told.err
    assert 'source "a" does not exist' in told.out


@pytest.mark.parametrize("arguments", [["--output", "xml"], ["--catalog", "nosuch.json"], ["-w", "nosuch"]])
def test_what_cannot_be_used_exits_with_2(
    tmp_path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.sql").write_text("FLUSH", encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        app(["check", "a.sql", *arguments])
    assert ended.value.code == 2
    assert not (tmp_path / "nosuch").exists()


def test_on_a_warehouse_and_on_its_exported_catalog(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metastore = Metastore.open(str(tmp_path / "w"))
    snapshot = ScriptChecker()
    for checked in snapshot.check(SOURCE + "CREATE SECRET pw WITH (backend = 'meta') AS 'hunter2';", "x"):
        assert not checked.errors
    records = [*snapshot.snapshot.records.values(), ParameterRecord(id=9, name="enable_unsafe_ops", value="true")]
    changes = tuple(PutObject(record=record) for record in records)
    operation = Operation(kind="MADE", statement="-- made", objects=(), changes=changes)
    metastore.commit(operation, based_on=metastore.snapshot())
    metastore.flush()
    path, exported = tmp_path / "a.sql", tmp_path / "catalog.json"
    path.write_text("ALTER SOURCE a UNSAFE SET (datagen.seed = '5');\nDROP SOURCE b;\n", encoding="utf-8")
    with pytest.raises(SystemExit):
        app(["export-catalog", "-w", str(tmp_path / "w"), "--to", str(exported)])
    text = exported.read_text(encoding="utf-8")
    assert "hunter2" not in text
    assert "sealed pw" not in text
    for arguments in (["-w", str(tmp_path / "w")], ["--catalog", str(exported)]):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            app(["check", str(path), *arguments])
        assert ended.value.code == 1
        told = capsys.readouterr().out
        assert told.count("RW") == 1
        assert 'source "b" does not exist' in told
        assert "is unsafe: it needs ALLOW GAPS, DUPLICATES" in told
    assert catalog_to_json(catalog_from_json(text, "it")) == text


def test_neither_spark_nor_arrow_is_loaded() -> None:
    heavy = ("pyspark", "delta", "py4j", "pandas", "pyarrow", "deltalake")
    code = (
        "import sys, rw_sql.cli.checking.check as c, rw_sql.cli.formatting.command as f;"
        "list(c.check_script('CREATE MATERIALIZED VIEW v AS SELECT 1 AS a; x', 'f')); f.format_script('FLUSH');"
        f"sys.exit(any(m.split('.')[0] in {heavy} for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_only_the_kinds_of_statements_of_a_script_are_loaded(tmp_path: Path) -> None:
    others = {
        "rw_sql.plan.statements.move.undo",
        "rw_sql.plan.statements.checkpoint.checkpoint",
        "rw_sql.plan.statements.show.objects",
        "rw_sql.metastore.facts",
        "urllib.request",
    }
    file = tmp_path / "pipelines.sql"
    file.write_text(
        "CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = 's', properties.bootstrap.server = 'k:9092')\n"
        "FORMAT PLAIN ENCODE JSON; CREATE MATERIALIZED VIEW v AS SELECT id FROM s;",
        encoding="utf-8",
    )
    code = (
        "import pathlib, sys, rw_sql.cli.checking.check as c\n"
        f"text = pathlib.Path({str(file)!r}).read_text()\n"
        "print([str(error) for one in c.check_script(text, 'f') for error in one.errors])\n"
        f"print(sorted({others} & set(sys.modules)))\n"
        "list(c.check_script('UNDO OPERATION 1; SHOW SOURCES;', 'f'))\n"
        f"print(sorted({others} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    errors, first, second = told.splitlines()
    assert (errors, first) == ("[]", "[]")
    assert "rw_sql.plan.statements.move.undo" in second
    assert "rw_sql.plan.statements.show.objects" in second


@pytest.mark.parametrize(
    "option",
    [
        "properties.bootstrap.server = 'ann:hunter2@h:9092'",
        "properties.bootstrap.server = 'sasl_ssl://u:hunter2@h:1'",
        "properties.bootstrap.server = 'h:1?password=hunter2'",
        "properties.bootstrap.server = 'h:1', kennwort = 'hunter2'",
        "properties.bootstrap.server = 'h:1', properties.sasl.password = 'hunter2'",
        "properties.bootstrap.server = 'h:1', properties.sasl.password - 'hunter2'",
    ],
)
@pytest.mark.parametrize("output", ["text", "json", "github", "sarif", "junit"])
def test_no_output_shows_a_password(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, output: str
) -> None:
    path = tmp_path / "a.sql"
    path.write_text(
        f"CREATE SOURCE s (a INT) WITH (connector = 'kafka', topic = 'x', {option}) FORMAT PLAIN ENCODE JSON;\n"
        f"CREATE SOURCE b (a INT) WITH (connector = 'rabbitmq', url = 'amqp://h?password=hunter2', queue = 'q')\n"
        "FORMAT PLAIN ENCODE JSON;\n",
        encoding="utf-8",
    )
    assert run_check([str(path)], output=output) == 1
    told = capsys.readouterr()
    assert "hunter2" not in told.out + told.err
    assert "RW" in told.out


def test_no_output_shows_the_value_of_a_secret_variable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.sql"
    path.write_text(
        "CREATE SOURCE s (a INT) WITH (connector = 'kafka', topic = :'api_token',\n"
        "  properties.bootstrap.server = 'h:1') FORMAT PLAIN ENCODE JSON;\nALTER SOURCE s SET :api_token;\n",
        encoding="utf-8",
    )
    assert run_check([str(path)], variables=("api_token=hunter2 x",), output="json") == 1
    told = capsys.readouterr()
    assert "*****" in told.out
    assert "hunter2" not in told.out + told.err
