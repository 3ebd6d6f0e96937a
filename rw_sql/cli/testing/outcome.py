"""Defines the outcome of a test, and the exceptions that end a test that does not pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


class MismatchError(Exception):
    """Raised if the result of a statement differs from the result that a test expects.

    The error has a one-line message and details. ``line`` is the line number in the test's file.
    """

    def __init__(self, message: str, detail: str = "", *, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.line = line


class WrongTestError(Exception):
    """Raised if a test or its file is invalid, as opposed to a pipeline with an unexpected result."""

    def __init__(self, message: str, *, file: str, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.line = line

    def __str__(self) -> str:
        return f"{self.file}{'' if self.line is None else f':{self.line}'}: {self.message}"

    @property
    def outcome(self) -> TestOutcome:
        """The outcome of the invalid file, for a report."""
        return TestOutcome(file=self.file, name="", line=self.line or 1, status="error", message=self.message)


class NothingToRunError(Exception):
    """Raised if the conditions of a test file exclude all of its records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestOutcome:
    """The outcome of one test. The status ``failed`` means that a result differs from the expectation. The status
    ``error`` means that the test could not be run. The status ``skipped`` means that the test was not run.

    ``notes`` are warnings, which a passed test may have too. If the run records rows, and these rows change the file's
    text, ``rewritten`` is the new text; otherwise it is None.
    """

    __test__ = False

    file: str
    name: str
    line: int
    status: Literal["passed", "failed", "error", "skipped"]
    seconds: float = 0.0
    message: str = ""
    detail: str = ""
    notes: tuple[str, ...] = ()
    rewritten: str | None = None

    @property
    def id(self) -> str:
        """The test's id: ``file``, or ``file::name`` for a unit test. The id also selects the test on the command
        line."""
        return f"{self.file}::{self.name}" if self.name else self.file
