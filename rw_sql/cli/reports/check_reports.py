"""Prints the errors that ``rw-sql check`` has found, as text, JSON, GitHub annotations, SARIF or JUnit."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

from rw_sql.plan.offline.report import SPARK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.errors import SqlError
    from rw_sql.plan.offline.report import Checked

_MOST_SHOWN = 10
"""The maximum number of errors that GitHub shows per step."""

UNSAFE_RULE = "RW-UNSAFE"
_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


@dataclass(slots=True)
class Report:
    """The checked files in the given order.

    Each file comes with its text and its statements, or with the reason why the file could not be read.
    """

    files: list[tuple[str, str, tuple[Checked, ...]]] = field(default_factory=list)
    unreadable: list[tuple[str, SqlError]] = field(default_factory=list)

    def add(self, path: str, text: str, checked: Iterable[Checked]) -> None:
        """Adds a file."""
        self.files.append((path, text, tuple(checked)))

    @property
    def statements(self) -> list[Checked]:
        """Every statement of all files."""
        return [checked for _, _, found in self.files for checked in found]

    @property
    def errors(self) -> list[tuple[Checked, SqlError]]:
        """Every error, by file and position."""
        return [(checked, error) for checked in self.statements for error in checked.errors]

    @property
    def summary(self) -> list[str]:
        """The number of checked statements, the number of errors, and the facts that were not checked."""
        found, files = len(self.errors), len(self.files)
        lines = [
            f"{len(self.statements)} statement{_s(len(self.statements))} in {files} file{_s(files)}: "
            f"{found or 'no'} error{_s(found)}"
        ]
        noted = Counter(what for checked in self.statements for what in checked.unchecked)
        lines += [f"unchecked, {count} statement{_s(count)}: {what}" for what, count in noted.most_common()]
        blocked = Counter(name for checked in self.statements for name in checked.blocked_by)
        lines += [
            f'unchecked, {count} statement{_s(count)}: facts that depend on "{name}", whose definition has errors'
            for name, count in blocked.most_common()
        ]
        return lines


def _s(number: int) -> str:
    return "" if number == 1 else "s"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Region:
    line: int
    column: int
    end_line: int
    end_column: int


def _region(error: SqlError, checked: Checked) -> _Region:
    """The range of an error. Columns are counted in characters and begin at 1. The end of the range is the position
    after the last character. A range of several lines is reduced to its first line. An error without a position has the
    position of its statement."""
    span, text = error.span, error.text or ""
    if span is None:
        return _Region(line=checked.line, column=checked.column, end_line=checked.line, end_column=checked.column + 1)
    end = max(span.start + 1, min(span.end, len(text)))
    if "\n" in text[span.start : end]:
        end = text.index("\n", span.start)
    return _Region(
        line=span.line, column=span.column, end_line=span.line, end_column=span.column + max(1, end - span.start)
    )


def write_report(report: Report, output: str) -> None:
    """Prints a report in one of the output formats. Files that cannot be read are also reported on standard error."""
    for _, error in report.unreadable:
        sys.stderr.write(error.render() + "\n")
    match output:
        case "text":
            _write_text(report)
        case "json":
            for path, error in report.unreadable:
                sys.stdout.write(json.dumps(unreadable_json(path, error), ensure_ascii=False) + "\n")
            for checked in report.statements:
                sys.stdout.write(json.dumps(statement_json(checked), ensure_ascii=False) + "\n")
        case "github":
            sys.stdout.writelines(line + "\n" for line in github_lines(report))
        case "sarif":
            sys.stdout.write(json.dumps(sarif_log(report), indent=1, ensure_ascii=False) + "\n")
        case "junit":
            sys.stdout.write(junit_xml(report))
        case _:
            raise ValueError(f"no form of output: {output}")


def _write_text(report: Report) -> None:
    for checked in report.statements:
        for error in checked.errors:
            sys.stdout.write(error.render() + "\n")
        if checked.unsafe is not None:
            sys.stdout.write(f"{checked.file}:{checked.line}: {checked.kind} is {checked.unsafe.describe()}\n")
    if report.statements:
        sys.stderr.writelines(line + "\n" for line in report.summary)


def statement_json(checked: Checked) -> dict[str, Any]:
    """One statement as JSON. ``line``, ``column``, ``code``, ``message`` and ``hint`` are those of the statement's
    first error. If there is no error, ``line`` and ``column`` are those of the statement, and the other three are
    None."""
    first = checked.errors[0] if checked.errors else None
    return {
        "file": checked.file,
        "line": first.line if first is not None and first.line is not None else checked.line,
        "column": first.column if first is not None and first.column is not None else checked.column,
        "kind": checked.kind,
        "ok": first is None,
        "code": first.code if first is not None else None,
        "message": first.message if first is not None else None,
        "hint": first.hint if first is not None else None,
        "findings": [_finding_json(checked, error) for error in checked.errors],
        "unchecked": list(checked.unchecked),
        "blocked_by": list(checked.blocked_by),
        "unsafe": None
        if checked.unsafe is None
        else {
            "needs": checked.unsafe.switch,
            "allow_accepts": list(checked.unsafe.accepts),
            "allow_names": list(checked.unsafe.allows),
        },
    }


def unreadable_json(path: str, error: SqlError) -> dict[str, Any]:
    """Returns JSON for a file that cannot be read. The keys are those of :func:`statement_json`, except the keys that
    apply only to statements."""
    return {
        "file": path,
        "line": error.line,
        "column": error.column,
        "kind": None,
        "ok": False,
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
    }


def _finding_json(checked: Checked, error: SqlError) -> dict[str, Any]:
    region = _region(error, checked)
    return {
        "code": error.code,
        "sqlstate": error.sqlstate,
        "message": error.message,
        "hint": error.hint,
        "line": region.line,
        "column": region.column,
        "end_line": region.end_line,
        "end_column": region.end_column,
    }


def github_lines(report: Report) -> list[str]:
    """The report as GitHub workflow commands. Errors come first, because GitHub shows only a limited number of commands
    per step."""
    lines = []
    if len(report.errors) > _MOST_SHOWN:
        lines.append(
            _command(
                "notice", f"{len(report.errors)} errors; GitHub shows {_MOST_SHOWN} per step; the log has all errors"
            )
        )
    for path, error in report.unreadable:
        lines.append(_command("error", _sentence(error), file=path, title=error.code))
    for checked, error in report.errors:
        region = _region(error, checked)
        lines.append(
            _command(
                "error",
                _sentence(error),
                file=checked.file,
                line=region.line,
                endLine=region.end_line,
                col=region.column,
                endColumn=region.end_column,
                title=error.code,
            )
        )
    for checked in report.statements:
        if checked.unsafe is not None:
            lines.append(
                _command(
                    "notice",
                    f"{checked.kind} is {checked.unsafe.describe()}",
                    file=checked.file,
                    line=checked.line,
                    endLine=checked.line,
                    title="unsafe statement",
                )
            )
    return [*lines, *report.summary]


def _sentence(error: SqlError) -> str:
    return error.message + (f"\nHINT: {error.hint}" if error.hint else "")


def _command(word: str, message: str, **properties: object) -> str:
    given = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items())
    return f"::{word}{' ' + given if given else ''}::{_data(message)}"


def _data(text: str) -> str:
    """A message, escaped as in GitHub's toolkit."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """A property, escaped as in GitHub's toolkit."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def sarif_log(report: Report) -> dict[str, Any]:
    """The report as a SARIF 2.1.0 log."""
    import rw_sql

    kinds = {error.code: error.kind.title for _, error in report.errors}
    if any(checked.unsafe is not None for checked in report.statements):
        kinds[UNSAFE_RULE] = "the statement is unsafe: it asks for a confirmation"
    rules: list[dict[str, Any]] = [
        {
            "id": code,
            "shortDescription": {"text": title},
            "fullDescription": {"text": title},
            "help": {"text": f"{code}: {title}. The page docs/reference/errors.md lists every code."},
        }
        for code, title in sorted(kinds.items())
    ]
    places = {str(rule["id"]): at for at, rule in enumerate(rules)}
    results = [_sarif_error(checked, error, places) for checked, error in report.errors]
    results += [_sarif_note(checked, places) for checked in report.statements if checked.unsafe is not None]
    notes: list[dict[str, Any]] = [{"level": "note", "message": {"text": line}} for line in report.summary]
    notes += [
        {"level": "error", "message": {"text": error.message}, "locations": [{"physicalLocation": _artifact(path)}]}
        for path, error in report.unreadable
    ]
    return {
        "$schema": _SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "rw-sql check", "version": rw_sql.__version__, "rules": rules}},
                "columnKind": "unicodeCodePoints",
                "invocations": [{"executionSuccessful": not report.unreadable, "toolExecutionNotifications": notes}],
                "results": results,
            }
        ],
    }


def _artifact(path: str) -> dict[str, Any]:
    uri = "stdin" if path == "-" else quote(path.replace("\\", "/").removeprefix("./"))
    return {"artifactLocation": {"uri": uri}}


def _sarif_error(checked: Checked, error: SqlError, places: dict[str, int]) -> dict[str, Any]:
    region = _region(error, checked)
    digest = hashlib.sha256(f"{checked.file}\n{error.code}\n{error.message}".encode()).hexdigest()
    return {
        "ruleId": error.code,
        "ruleIndex": places[error.code],
        "level": "error",
        "message": {"text": _sentence(error)},
        "locations": [
            {
                "physicalLocation": {
                    **_artifact(checked.file),
                    "region": {
                        "startLine": region.line,
                        "startColumn": region.column,
                        "endLine": region.end_line,
                        "endColumn": region.end_column,
                    },
                }
            }
        ],
        "partialFingerprints": {"fileCodeAndMessage/v1": digest},
    }


def _sarif_note(checked: Checked, places: dict[str, int]) -> dict[str, Any]:
    needs = checked.unsafe.describe() if checked.unsafe is not None else ""
    return {
        "ruleId": UNSAFE_RULE,
        "ruleIndex": places[UNSAFE_RULE],
        "level": "note",
        "message": {"text": f"{checked.kind} is {needs}"},
        "locations": [
            {
                "physicalLocation": {
                    **_artifact(checked.file),
                    "region": {"startLine": checked.line, "startColumn": checked.column},
                }
            }
        ],
    }


def junit_xml(report: Report) -> str:
    """The report as JUnit XML, with one suite per file and one case per statement. The report uses only elements that
    all dialects of JUnit share."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', "<testsuites>"]
    suites = [(path, _cases(checked), sum(bool(c.errors) for c in checked), 0, sum(_is_skipped(c) for c in checked),
               len(checked)) for path, _, checked in report.files]  # fmt: skip
    suites += [(path, _unreadable_case(path, error), 0, 1, 0, 1) for path, error in report.unreadable]
    for at, (path, cases, failures, errors, skipped, tests) in enumerate(suites):
        lines.append(
            f'<testsuite name={_attribute(path)} package="rw-sql check" id="{at}" timestamp="{now}" '
            f'hostname="localhost" tests="{tests}" failures="{failures}" errors="{errors}" skipped="{skipped}" '
            'time="0">'
        )
        lines += ["<properties/>", *cases, "<system-out/>", "<system-err/>", "</testsuite>"]
    return "\n".join([*lines, "</testsuites>"]) + "\n"


def _is_skipped(checked: Checked) -> bool:
    return checked.kind == SPARK and not checked.errors


def _cases(statements: Iterable[Checked]) -> list[str]:
    lines = []
    for checked in statements:
        name = _attribute(f"{checked.kind}, line {checked.line}")
        lines.append(f'<testcase classname={_attribute(checked.file)} name={name} time="0">')
        if checked.errors:
            first = checked.errors[0]
            text = "\n".join(error.render() for error in checked.errors)
            lines.append(
                f"<failure message={_attribute(first.message)} type={_attribute(first.code)}>{_text(text)}</failure>"
            )
        elif _is_skipped(checked):
            lines.append("<skipped/>")
        lines.append("</testcase>")
    return lines


def _unreadable_case(path: str, error: SqlError) -> list[str]:
    return [
        f'<testcase classname={_attribute(path)} name="the file" time="0">',
        f"<error message={_attribute(error.message)} type={_attribute(error.code)}>{_text(error.render())}</error>",
        "</testcase>",
    ]


_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _text(text: str) -> str:
    return escape(_NOT_IN_XML.sub("\ufffd", text))


def _attribute(text: str) -> str:
    return quoteattr(_NOT_IN_XML.sub("\ufffd", text))
