"""Renders results as JUnit XML. CI systems can display such results case by case."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from xml.sax.saxutils import escape, quoteattr

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case.

    The outcome ``failure`` means that an expectation was not met, and ``error`` means that the case could not be
    tested. ``message`` is one line, and ``text`` has the details.
    """

    name: str
    classname: str
    seconds: float = 0.0
    outcome: Literal["passed", "failure", "error", "skipped"] = "passed"
    kind: str = ""
    message: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The cases of one file. ``timestamp`` is ISO 8601 without a zone, as JUnit's schema requires."""

    name: str
    cases: Sequence[Case]
    timestamp: str


def render_junit(name: str, suites: Iterable[Suite]) -> str:
    """Renders the document.

    ``name`` is the command's name. Only elements and attributes that all JUnit dialects share are used.
    """
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', "<testsuites>"]
    for number, suite in enumerate(suites):
        head = _attributes(
            name=suite.name,
            package=name,
            id=number,
            timestamp=suite.timestamp,
            hostname="localhost",
            **_counts(suite.cases),
        )
        lines += [f"  <testsuite{head}>", "    <properties/>"]
        for case in suite.cases:
            lines += _case(case)
        lines += ["    <system-out/>", "    <system-err/>", "  </testsuite>"]
    return "\n".join([*lines, "</testsuites>", ""])


def _case(case: Case) -> list[str]:
    head = _attributes(name=case.name, classname=case.classname, time=f"{case.seconds:.3f}")
    if case.outcome == "passed":
        return [f"    <testcase{head}/>"]
    told = _attributes(message=case.message, type=case.kind)
    if case.outcome == "skipped":
        inner = f"<skipped{_attributes(message=case.message)}/>"
    else:
        inner = f"<{case.outcome}{told}>{escape(_clean(case.text))}</{case.outcome}>"
    return [f"    <testcase{head}>", f"      {inner}", "    </testcase>"]


def _counts(cases: Sequence[Case]) -> dict[str, object]:
    outcomes = [case.outcome for case in cases]
    return {
        "tests": len(cases),
        "failures": outcomes.count("failure"),
        "errors": outcomes.count("error"),
        "skipped": outcomes.count("skipped"),
        "time": f"{sum(case.seconds for case in cases):.3f}",
    }


def _attributes(**values: object) -> str:
    return "".join(f" {name}={quoteattr(_clean(str(value)))}" for name, value in values.items() if value is not None)


def _clean(text: str) -> str:
    return _NOT_IN_XML.sub("\ufffd", text)
