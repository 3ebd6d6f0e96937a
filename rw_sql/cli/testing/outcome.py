"""What comes of a test, and what a test raises that does not pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


class MismatchError(Exception):
    """Something is not as a test expects: one line, and the rest of what there is to say. ``line`` is in its file."""

    def __init__(self, message: str, detail: str = "", *, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.line = line


class WrongTestError(Exception):
    """A test file is wrong: it says nothing about what it tests."""

    def __init__(self, message: str, *, file: str, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.line = line

    def __str__(self) -> str:
        return f"{self.file}{'' if self.line is None else f':{self.line}'}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestOutcome:
    """One test that was run. ``failed``: something is not as it expects; ``error``: it could not be run.

    ``notes`` are warnings of a test that passed too; ``output`` is the file rewritten with the rows found, if any.
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
        """How the test is chosen and named: ``file`` or ``file::name``."""
        return f"{self.file}::{self.name}" if self.name else self.file
