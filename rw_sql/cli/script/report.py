"""Reports the result of each statement of a run, as a summary, as an exit status, as JSON and as JUnit."""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from rw_sql.cli.interface.error_report import error_as_json
from rw_sql.cli.interface.exit_codes import DONE, FAILED, INTERRUPTED, REFUSED, is_refused
from rw_sql.cli.reports.junit import Case, Suite, render_junit
from rw_sql.syntax.lexing.first_words import is_explain

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.cli.script.loading import SecretHider
    from rw_sql.errors import SqlError
    from rw_sql.session.results import Values

Status = Literal["done", "failed", "refused", "not run"]

_NAME_WIDTH = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementRun:
    """One statement and its result. ``plan`` is the plan of a dry run; None in any other run."""

    file: str | None
    line: int
    column: int
    text: str
    status: Status
    seconds: float = 0.0
    result: Values | None = None
    plan: tuple[str, ...] | None = None
    needs_confirmation: bool = False
    error: SqlError | None = None


def status_of(error: SqlError) -> Status:
    """The status of a statement with an error: "refused" if a confirmation is missing, otherwise "failed"."""
    return "refused" if is_refused(error) else "failed"


@dataclass(slots=True)
class RunReport:
    """The results of a run so far. ``hide`` replaces secrets with asterisks."""

    hide: SecretHider
    is_dry: bool = False
    started: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))
    seconds: float = 0.0
    statements: list[StatementRun] = field(default_factory=list)
    is_interrupted: bool = False

    @property
    def exit_status(self) -> int:
        """The exit status of the process."""
        if self.is_interrupted:
            return INTERRUPTED
        found = {statement.status for statement in self.statements}
        return FAILED if "failed" in found else REFUSED if "refused" in found else DONE

    @property
    def counts(self) -> dict[str, int]:
        """The number of statements of each status."""
        statuses = [statement.status for statement in self.statements]
        return {status: statuses.count(status) for status in ("done", "failed", "refused", "not run")}

    @property
    def summary(self) -> str:
        """Returns one line such as ``12 statements: 10 done, 1 failed, 1 not run; 3.2 s``."""
        total = len(self.statements)
        counts = {"planned" if self.is_dry and word == "done" else word: n for word, n in self.counts.items()}
        counted = ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "nothing to do"
        asks = sum(statement.needs_confirmation for statement in self.statements)
        needs = f" ({asks} {'needs' if asks == 1 else 'need'} a confirmation)" if asks else ""
        return f"{total} statement{'' if total == 1 else 's'}: {counted}{needs}; {self.seconds:.1f} s"

    def as_json(self) -> str:
        """The report as a JSON document. Every key is always present."""
        document = {
            "format": "rw-sql/run/1",
            "dry_run": self.is_dry,
            "started_at": self.started.isoformat(timespec="milliseconds"),
            "exit_status": self.exit_status,
            "summary": {
                "statements": len(self.statements),
                **{word.replace(" ", "_"): count for word, count in self.counts.items()},
                "seconds": round(self.seconds, 3),
            },
            "statements": [self._statement(statement) for statement in self.statements],
        }
        return json.dumps(document, indent=2, ensure_ascii=False)

    def _statement(self, run: StatementRun) -> dict[str, Any]:
        result = run.result
        # The rows of an EXPLAIN may quote the statement.
        hide = self.hide.values if is_explain(run.text) else str
        return {
            "file": run.file,
            "line": run.line,
            "column": run.column,
            "text": self._text(run),
            "status": run.status.replace(" ", "_"),
            "seconds": round(run.seconds, 3),
            "columns": None if result is None else list(result.columns),
            "rows": None
            if result is None
            else [[_hidden(json_value(value), hide) for value in row] for row in result.rows],
            "has_more": result is not None and result.has_more,
            "plan": None if run.plan is None else [self.hide(line) for line in run.plan],
            "needs_confirmation": run.needs_confirmation,
            "error": None if run.error is None else error_as_json(run.error, self.hide.values),
        }

    def _text(self, run: StatementRun) -> str:
        return self.hide(run.text) if run.status == "done" else self.hide.statement(run.text)

    def as_junit(self) -> str:
        """The report as JUnit suites, with one suite per file and one case per statement."""
        timestamp = self.started.replace(tzinfo=None).isoformat(timespec="seconds")
        suites = [
            Suite(name=file or "-", cases=[self._case(run) for run in runs], timestamp=timestamp)
            for file, runs in groupby(self.statements, key=lambda run: run.file)
        ]
        return render_junit("rw-sql run", suites)

    def _case(self, run: StatementRun) -> Case:
        file = run.file or "-"
        words = " ".join(self._text(run).split())
        short = words if len(words) <= _NAME_WIDTH else words[: _NAME_WIDTH - 1] + "…"
        case = Case(name=f"line {run.line}: {short}", classname=_dotted(file), seconds=run.seconds)
        if run.status == "not run":
            return replace(case, outcome="skipped", message="not run: an earlier statement failed")
        if run.error is None:
            return case
        return replace(
            case,
            outcome="error" if run.status == "refused" else "failure",
            kind=run.error.code,
            message=f"{run.error.code}: {self.hide.values(run.error.message)}",
            text=self.hide.values(run.error.render()),
        )


def _hidden(value: Any, hide: Callable[[str], str]) -> Any:
    return hide(value) if isinstance(value, str) else value


def _dotted(file: str) -> str:
    """Converts a path to a dotted name, as JUnit expects for a class."""
    return re.sub(r"[/\\]+", ".", re.sub(r"\.\w+$", "", file)).strip(".") or file


def json_value(value: Any) -> Any:
    """Converts a value for JSON. Finite numbers, booleans and NULL are not changed. NaN, infinities, decimals, times
    and bytes become text. A struct becomes an object or, if two of its fields have the same name, an array of its names
    and values in pairs."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if value == value and abs(value) != float("inf") else str(value)
        case Decimal():
            return str(value)
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case bytes() | bytearray():
            return "\\x" + bytes(value).hex()
        case dict():
            return {str(key): json_value(inner) for key, inner in value.items()}
        case tuple() if hasattr(value, "__fields__"):
            fields = [(name, json_value(inner)) for name, inner in zip(value.__fields__, value, strict=True)]
            made = dict(fields)
            # Most readers of JSON keep only one of two members with the same name.
            return made if len(made) == len(fields) else [list(field) for field in fields]
        case list() | tuple():
            return [json_value(inner) for inner in value]
        case _:
            return str(value)
