"""The report of a run: summary, exit status, JSON and JUnit."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from pyspark.sql.types import _create_row

from rw_sql.cli.reports.junit import Case, Suite, render_junit
from rw_sql.cli.script.loading import hiding
from rw_sql.cli.script.report import RunReport, StatementRun, json_value
from rw_sql.errors import CONFIRMATION_NEEDED, SYNTAX_ERROR, UNSAFE_OPERATIONS_OFF, ErrorCode, Span, SqlError
from rw_sql.session.results import Values


def ran(status: Any, code: ErrorCode | None = None, line: int = 1, **more: Any) -> StatementRun:
    error = None
    if code is not None:
        text = "ALTER SECRET s AS 'hunter2' x"
        error = SqlError(code, "told <hunter3>", hint="h", span=Span(28, 29, line, 29), text=text, file="a.sql")
    return StatementRun(
        file="sub/a.sql", line=line, column=1, text="ALTER SECRET s AS 'hunter2'", status=status, error=error, **more
    )


@pytest.mark.parametrize(
    ("statements", "status", "summary"),
    [
        ([], 0, "0 statements: nothing to do; 3.2 s"),
        ([ran("done")], 0, "1 statement: 1 done; 3.2 s"),
        ([ran("done"), ran("failed", SYNTAX_ERROR), ran("not run")], 1, "3 statements: 1 done, 1 failed, 1 not run"),
        ([ran("refused", CONFIRMATION_NEEDED)], 3, "1 statement: 1 refused; 3.2 s"),
        ([ran("refused", UNSAFE_OPERATIONS_OFF), ran("failed", SYNTAX_ERROR)], 1, "2 statements: 1 failed, 1 refused"),
    ],
)
def test_summary_and_exit_status(statements: list[StatementRun], status: int, summary: str) -> None:
    report = RunReport(hide=hiding([]), statements=statements, seconds=3.21)
    assert report.exit_status == status
    assert report.summary.startswith(summary)
    report.is_interrupted = True
    assert report.exit_status == 130


def test_a_dry_run_says_who_must_confirm() -> None:
    report = RunReport(
        hide=hiding([]), is_dry=True, statements=[ran("done"), ran("done", needs_confirmation=True)], seconds=1
    )
    assert report.summary == "2 statements: 2 planned (1 needs a confirmation); 1.0 s"
    assert report.exit_status == 0


RUNS = [
    ran("done", result=Values(columns=("a", "b"), rows=((1, Decimal("1.10")), (None, dt.date(2024, 1, 2))))),
    ran("failed", SYNTAX_ERROR, line=3, seconds=0.25),
    ran("refused", CONFIRMATION_NEEDED, line=4),
    ran("not run", line=5),
]


def test_json_has_every_key_and_no_secret() -> None:
    report = RunReport(hide=hiding(["hunter3"]), statements=RUNS, seconds=1.5)
    text = report.as_json()
    assert "hunter" not in text
    told = json.loads(text)
    assert told["format"] == "rw-sql/run/1"
    assert told["exit_status"] == 1
    assert told["summary"] == {"statements": 4, "done": 1, "failed": 1, "refused": 1, "not_run": 1, "seconds": 1.5}
    first, second, *_ = told["statements"]
    assert first["rows"] == [[1, "1.10"], [None, "2024-01-02"]]
    assert {frozenset(each) for each in told["statements"]} == {frozenset(first)}
    assert (second["error"]["code"], second["error"]["sqlstate"]) == ("RW101", "42601")
    assert (second["error"]["line"], second["error"]["file"]) == (3, "a.sql")


def test_values_in_json() -> None:
    assert json_value({"a": [b"\x01", (2.5, True)], 1: float("nan")}) == {"a": ["\\x01", [2.5, True]], "1": "nan"}
    assert json_value(dt.datetime(2024, 1, 2, 3, 4, 5)) == "2024-01-02T03:04:05"


def test_a_struct_with_two_fields_of_one_name_has_both_in_json() -> None:
    assert json_value(_create_row(["id", "at"], [1, None])) == {"id": 1, "at": None}
    assert json_value([_create_row(["id", "id"], [1, b"\x02"])]) == [[["id", 1], ["id", "\\x02"]]]


def test_junit() -> None:
    text = RunReport(hide=hiding(["hunter3"]), statements=RUNS, seconds=1.5).as_junit()
    assert "hunter" not in text
    root = ET.fromstring(text)
    suite = root.find("testsuite")
    assert suite is not None
    assert (
        suite.get("name"),
        suite.get("tests"),
        suite.get("failures"),
        suite.get("errors"),
        suite.get("skipped"),
    ) == (
        "sub/a.sql",
        "4",
        "1",
        "1",
        "1",
    )
    done, failed, refused, skipped = suite.findall("testcase")
    assert (done.get("classname"), (done.get("name") or "")[:22], len(done)) == ("sub.a", "line 1: ALTER SECRET s", 0)
    assert (failed[0].tag, failed[0].get("type"), failed.get("time")) == ("failure", "RW101", "0.250")
    assert "LINE 3: " in (failed[0].text or "")
    assert (refused[0].tag, refused[0].get("type")) == ("error", "RW304")
    assert skipped[0].tag == "skipped"


def test_junit_takes_any_text() -> None:
    nasty = "<&\"'>\n\x00\x1b[0m\ud800 ]]> ü"
    case = Case(name=nasty, classname="c", outcome="failure", message=nasty, text=nasty)
    root = ET.fromstring(render_junit("x", [Suite(name=nasty, cases=[case], timestamp="2024-01-02T03:04:05")]))
    failure = root.find("testsuite/testcase/failure")
    assert failure is not None
    assert failure.text == "<&\"'>\n\ufffd\ufffd[0m\ufffd ]]> ü"
