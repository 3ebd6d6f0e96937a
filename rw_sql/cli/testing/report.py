"""Writes the report of ``rw-sql test`` as text (a line per test, the failures and a summary), as JSON or as JUnit
XML."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from rich.text import Text

from rw_sql.cli.reports.junit import Case, Suite, render_junit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from rw_sql.cli.testing.outcome import TestOutcome

_STYLES = {"passed": "green", "failed": "bold red", "error": "bold red", "skipped": "dim"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TestReport:
    """All outcomes of a run, in the order of the tests."""

    __test__ = False

    outcomes: Sequence[TestOutcome]
    seconds: float
    started: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))
    hide: Callable[[str], str] = str

    @property
    def has_failures(self) -> bool:
        """True if a test failed or could not be run."""
        return any(outcome.status in ("failed", "error") for outcome in self.outcomes)

    @property
    def summary(self) -> str:
        """Returns one line such as ``20 tests: 18 passed, 2 failed; 41.0 s``."""
        statuses = [outcome.status for outcome in self.outcomes]
        words = {"passed": "passed", "failed": "failed", "error": "with an error", "skipped": "skipped"}
        told = ", ".join(f"{statuses.count(key)} {word}" for key, word in words.items() if key in statuses)
        return f"{len(statuses)} test{'' if len(statuses) == 1 else 's'}: {told}; {self.seconds:.1f} s"

    def as_json(self) -> str:
        """The report as a JSON document. Every key is always present."""
        document = {
            "format": "rw-sql/test/1",
            "started_at": self.started.isoformat(timespec="milliseconds"),
            "seconds": round(self.seconds, 3),
            "tests": [
                {
                    "file": outcome.file,
                    "name": outcome.name or None,
                    "line": outcome.line,
                    "status": outcome.status,
                    "seconds": round(outcome.seconds, 3),
                    "message": self.hide(outcome.message) or None,
                    "detail": self.hide(outcome.detail) or None,
                    "notes": [self.hide(note) for note in outcome.notes],
                }
                for outcome in self.outcomes
            ],
        }
        return json.dumps(document, indent=2, ensure_ascii=False)

    def as_junit(self) -> str:
        """The report as JUnit suites, with one suite per file and one case per test."""
        timestamp = self.started.replace(tzinfo=None).isoformat(timespec="seconds")
        suites = [
            Suite(name=file, cases=[self._case(outcome) for outcome in outcomes], timestamp=timestamp)
            for file, outcomes in groupby(self.outcomes, key=lambda outcome: outcome.file)
        ]
        return render_junit("rw-sql test", suites)

    def _case(self, outcome: TestOutcome) -> Case:
        found = {"passed": "passed", "failed": "failure", "error": "error", "skipped": "skipped"}[outcome.status]
        return Case(
            name=outcome.name or outcome.file,
            classname=outcome.file,
            seconds=outcome.seconds,
            outcome=found,  # type: ignore[arg-type]  # of the four above
            kind=outcome.status,
            message=self.hide(outcome.message),
            text=self.hide(f"{outcome.file}:{outcome.line}: {outcome.message}\n{outcome.detail}"),
        )


def print_outcome(console: Console, outcome: TestOutcome, hide: Callable[[str], str]) -> None:
    """Prints one line for a finished test, followed by its message, its details and its notes, if it has any."""
    line = Text(f"{outcome.status:7} ", style=_STYLES[outcome.status])
    line.append(f"{outcome.id} ({outcome.seconds:.1f} s)", style="default")
    console.print(line, soft_wrap=True)
    if outcome.message:
        place = f"{outcome.file}:{outcome.line}: " if outcome.status == "failed" else ""
        console.print(Text(f"  {place}{hide(outcome.message)}"), soft_wrap=True)
    for told in hide(outcome.detail).splitlines():
        console.print(Text(f"    {told}"), soft_wrap=True)
    for note in outcome.notes:
        console.print(Text(f"  note: {hide(note)}", style="dim"), soft_wrap=True)
