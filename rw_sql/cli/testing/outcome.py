"""Defines the outcome of a test, and the errors of tests that do not pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


class MismatchError(Exception):
    """Raised if the result of a statement differs from the expectation of a test.

    The error has a one-line message and details. ``line`` is the line number in the test's file.
    """

    def __init__(self, message: str, detail: str = "", *, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.line = line


class WrongTestError(Exception):
    """Raised if a test file is invalid. This error does not concern the tested pipeline."""

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
    """One executed test. The status ``failed`` means that a result differs from the expectation, and the status
    ``error`` means that the test could not be run.

    ``notes`` are warnings, which a passed test may have too. If the run records rows, ``rewritten`` is the file's text
    with the actual rows in place of the expected rows.
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
        """The test's id, ``file`` or ``file::name``. The id also selects the test on the command line."""
        return f"{self.file}::{self.name}" if self.name else self.file
