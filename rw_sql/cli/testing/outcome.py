"""The outcome of a test, and the errors of tests that do not pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


class MismatchError(Exception):
    """A result differs from a test's expectation: one line, and the details. ``line`` is the line number in the test's
    file."""

    def __init__(self, message: str, detail: str = "", *, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.line = line


class WrongTestError(Exception):
    """A test file is wrong, so that its result says nothing about the pipeline."""

    def __init__(self, message: str, *, file: str, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.line = line

    def __str__(self) -> str:
        return f"{self.file}{'' if self.line is None else f':{self.line}'}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestOutcome:
    """One executed test. ``failed``: a result differs from the expectation; ``error``: the test could not be run.

    ``notes`` are warnings, also of a passed test; ``output`` is the file rewritten with the rows found, if any.
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
        """The text that selects and names the test: ``file`` or ``file::name``."""
        return f"{self.file}::{self.name}" if self.name else self.file
