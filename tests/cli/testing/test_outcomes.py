"""The reports of ``rw-sql test`` in JSON and JUnit."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

from rw_sql.cli.testing.outcome import TestOutcome
from rw_sql.cli.testing.report import TestReport
from rw_sql.cli.testing.slt_run import passed_over

OUTCOMES = [
    TestOutcome(file="a.test.yaml", name="one", line=3, status="passed", seconds=1.5, notes=("n",)),
    TestOutcome(file="a.test.yaml", name="two", line=9, status="failed", message="totals: 1 missing", detail="- <a>"),
    TestOutcome(file="b.slt", name="", line=1, status="error", message="hunter2"),
    TestOutcome(file="c.slt", name="", line=1, status="skipped", message="not run", notes=("of hunter2",)),
]
REPORT = TestReport(outcomes=OUTCOMES, seconds=2.04, hide=lambda text: text.replace("hunter2", "*"))


def test_summary() -> None:
    assert REPORT.summary == "4 tests: 1 passed, 1 failed, 1 with an error, 1 skipped; 2.0 s"
    assert REPORT.has_failures
    assert not TestReport(outcomes=OUTCOMES[:1], seconds=1).has_failures


def test_json() -> None:
    told = json.loads(REPORT.as_json())
    assert told["format"] == "rw-sql/test/1"
    assert [(test["file"], test["name"], test["status"]) for test in told["tests"]] == [
        ("a.test.yaml", "one", "passed"),
        ("a.test.yaml", "two", "failed"),
        ("b.slt", None, "error"),
        ("c.slt", None, "skipped"),
    ]
    assert len({frozenset(test) for test in told["tests"]}) == 1
    assert told["tests"][2]["message"] == "*"
    assert told["tests"][3]["notes"] == ["of *"]


def test_junit() -> None:
    root = ET.fromstring(REPORT.as_junit())
    suites = root.findall("testsuite")
    assert [
        (suite.get("name"), suite.get("tests"), suite.get("failures"), suite.get("errors")) for suite in suites
    ] == [
        ("a.test.yaml", "2", "1", "0"),
        ("b.slt", "1", "0", "1"),
        ("c.slt", "1", "0", "0"),
    ]
    failure = root.find("testsuite/testcase/failure")
    assert failure is not None
    assert (failure.get("message"), failure.text) == ("totals: 1 missing", "a.test.yaml:9: totals: 1 missing\n- <a>")


def test_what_a_flush_passes_over() -> None:
    wrong = [("s", "NOTICE", "stalled, not waited for: topic gone"), ("v", "NOTICE", "except for rows missing in s")]
    read = [("t", "FLUSHED", "read to 0=3"), ("u", "NOTICE", "paused, not waited for")]
    assert passed_over([*read]) is None
    assert passed_over([*wrong, *read]) == "s: stalled, not waited for: topic gone; v: except for rows missing in s"
