"""The forms of a report contain the same facts, each in the format of its readers."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest

from rw_sql.cli.reports.check_reports import Report, github_lines, junit_xml, sarif_log, statement_json
from rw_sql.errors import FILE_UNREADABLE, SqlError
from rw_sql.plan.offline.script import ScriptChecker

ODD = "pipelines/100%, a:b.sql"
TEXT = """CREATE SOURCE a (id INT) WITH (connector = 'datagen', datagen.rows.per.seconds = '5');
ANALYZE TABLE t COMPUTE STATISTICS;
ALTER SOURCE a UNSAFE SET (datagen.seed = '5') ALLOW GAPS;
/* ü */ DROP SOURCE "b,:%\x01<&";
"""


@pytest.fixture
def report() -> Report:
    """One file with two errors, an unsafe statement and one of Spark's; another that cannot be read."""
    made = Report()
    checker = ScriptChecker()
    made.add(ODD, TEXT, checker.check(TEXT, ODD))
    made.unreadable.append(("gone.sql", SqlError(FILE_UNREADABLE, 'cannot read "gone.sql": No such file')))
    return made


def test_github_escapes_as_its_toolkit_does(report: Report) -> None:
    lines = github_lines(report)
    file = "pipelines/100%25%2C a%3Ab.sql"
    assert lines[:3] == [
        '::error file=gone.sql,title=RW408::cannot read "gone.sql": No such file',
        f"::error file={file},line=1,endLine=1,col=55,endColumn=79,title=RW204::"
        'connector "datagen" has no property "datagen.rows.per.seconds"%0A'
        'HINT: did you mean "datagen.rows.per.second"?',
        f"::error file={file},line=4,endLine=4,col=21,endColumn=30,title=RW203::"
        'source "b,:%25\x01<&" does not exist%0AHINT: SHOW SOURCES lists all sources',
    ]
    assert lines[3].startswith(
        f"::notice file={file},line=3,endLine=3,title=unsafe statement::ALTER SOURCE UNSAFE SET "
    )
    assert lines[4] == "4 statements in 1 file: 2 errors"


def test_github_says_how_many_it_does_not_show() -> None:
    report, text = Report(), "".join(f"DROP SOURCE s{number};\n" for number in range(11))
    report.add("a.sql", text, ScriptChecker().check(text, "a.sql"))
    assert github_lines(report)[0] == "::notice::11 errors; GitHub shows 10 per step; the log has all errors"


def test_sarif_has_what_its_schema_and_github_ask_for(report: Report) -> None:
    log = json.loads(json.dumps(sarif_log(report)))
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["RW-UNSAFE", "RW203", "RW204"]
    for rule in rules:
        assert rule["shortDescription"]["text"]
        assert rule["fullDescription"]["text"]
        assert rule["help"]["text"]
    assert [(r["ruleId"], r["level"]) for r in run["results"]] == [
        ("RW204", "error"),
        ("RW203", "error"),
        ("RW-UNSAFE", "note"),
    ]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
        (place,) = result["locations"]
        assert place["physicalLocation"]["artifactLocation"]["uri"] == "pipelines/100%25%2C%20a%3Ab.sql"
    assert run["results"][1]["locations"][0]["physicalLocation"]["region"] == {
        "startLine": 4,
        "startColumn": 21,
        "endLine": 4,
        "endColumn": 30,
    }
    assert run["columnKind"] == "unicodeCodePoints"
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    assert invocation["toolExecutionNotifications"][-1]["level"] == "error"


def test_sarif_of_nothing_has_empty_results() -> None:
    report = Report()
    report.add("a.sql", "FLUSH", ScriptChecker().check("FLUSH", "a.sql"))
    (run,) = sarif_log(report)["runs"]
    assert run["results"] == []
    assert run["invocations"][0]["executionSuccessful"] is True


def test_junit_has_what_all_of_its_schemas_ask_for(report: Report) -> None:
    root = ET.fromstring(junit_xml(report))
    assert root.tag == "testsuites"
    assert not root.attrib
    first, second = root
    for suite in root:
        # The order of the stricter schema.
        assert [child.tag for child in suite][:1] == ["properties"]
        assert [child.tag for child in suite][-2:] == ["system-out", "system-err"]
        assert {child.tag for child in suite[1:-2]} == {"testcase"}
        assert suite.attrib.keys() == {
            "name", "package", "id", "timestamp", "hostname", "tests", "failures", "errors", "skipped", "time"
        }  # fmt: skip
        cases = suite.findall("testcase")
        assert int(suite.attrib["tests"]) == len(cases)
        assert all(case.attrib.keys() == {"classname", "name", "time"} for case in cases)
        assert all(len(case) <= 1 for case in cases)
    counts = [first.attrib[key] for key in ("tests", "failures", "errors", "skipped")]
    assert counts == ["4", "2", "0", "1"]
    failure = first.findall("testcase")[3].find("failure")
    assert failure is not None
    assert failure.attrib == {"message": 'source "b,:%\ufffd<&" does not exist', "type": "RW203"}
    assert "LINE 4" in (failure.text or "")
    assert second.attrib["errors"] == "1"


def test_json_has_every_finding(report: Report) -> None:
    told = [statement_json(checked) for checked in report.statements]
    assert told[0]["findings"] == [
        {
            "code": "RW204",
            "sqlstate": "42704",
            "message": 'connector "datagen" has no property "datagen.rows.per.seconds"',
            "hint": 'did you mean "datagen.rows.per.second"?',
            "line": 1,
            "column": 55,
            "end_line": 1,
            "end_column": 79,
        }
    ]
    assert told[2]["unsafe"] == {
        "needs": "ALTER SYSTEM SET enable_unsafe_ops = true",
        "allow_accepts": ["GAPS", "DUPLICATES"],
        "allow_names": ["GAPS"],
    }
    assert told[1]["unchecked"] == ["Spark's own statements"]
