"""``rw-sql check`` says what is wrong with each statement, and needs no Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from rw_sql.cli.check import check_script, run_check

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SCRIPT = """CREATE SOURCE s (v INT) WITH (connector = 'datagen');
SELECT * FROM s; CREATE TABLE t USING delta AS SELECT 1 AS a;
  ALTER SOURCE s UNSAFE
  SET (topic = );
ALTER SOURCE s SET PARALLELISM = 4;
CREATE SORCE s (v INT);
FLUSH
"""


def test_every_statement_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    assert {key for t in told for key in t} == {"file", "line", "column", "kind", "ok", "code", "message", "hint"}
    assert told[5]["hint"] == "did you mean SOURCE?"


def test_text_shows_errors_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.sql"
    path.write_text("FLUSH;\nDROP SOURCE a b;\n", encoding="utf-8")
    assert run_check([str(path)]) == 1
    assert capsys.readouterr().out.startswith(
        f"{path}: RW101: expected end of statement, found: b\nLINE 2: DROP SOURCE a b;\n"
    )


def test_right_scripts_are_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.sql"
    path.write_text("-- nothing but\n/* comments */;;\nFLUSH", encoding="utf-8")
    assert run_check([str(path)]) == 0
    assert capsys.readouterr().out == ""


def test_long_scripts_take_time_in_proportion() -> None:
    script = "DROP SOURCE a;\n" * 20_000
    assert sum(1 for checked in check_script(script, "x") if checked.error is None) == 20_000


def test_neither_spark_nor_java_is_loaded() -> None:
    code = (
        "import sys, rw_sql.cli.check as c, rw_sql.cli.fmt as f;"
        "list(c.check_script('CREATE MATERIALIZED VIEW v AS SELECT 1; x', 'f')); f.format_script('FLUSH');"
        "sys.exit(any(m.split('.')[0] in ('pyspark', 'delta', 'py4j', 'sqlglot') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
