"""Defines the result of a query's analysis: the findings and the output columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rw_sql.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Column:
    """A column, with its name and its type in Spark's DDL form (None if unknown).

    An output column without a name, such as ``a + 1``, has the name ``""``.
    """

    name: str
    data_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """An error in a query: the range of the error in the query's text (``length`` characters from ``offset``), a
    message of one sentence, and a hint."""

    offset: int
    length: int
    kind: ErrorCode
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """The findings of a query in the order of the query's text, and the output columns (None if not known).

    ``is_complete`` is False if a part of the query was not checked, for example because the analysis does not know a
    construct or the columns of a relation.
    """

    findings: tuple[Finding, ...] = ()
    columns: tuple[Column, ...] | None = None
    is_complete: bool = True


def counted(number: int, thing: str) -> str:
    """Returns a number with its noun, such as ``1 column`` or ``2 columns``."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


@dataclass(slots=True)
class Report:
    """Collects the findings of one query."""

    findings: dict[tuple[int, str], Finding] = field(default_factory=dict)
    is_complete: bool = True

    def add(self, place: tuple[int, int] | None, kind: ErrorCode, message: str, hint: str | None = None) -> None:
        """Adds a finding at ``[start, end)``. If ``place`` is None, the finding is placed at the start of the query."""
        start, end = place or (0, 1)
        self.findings.setdefault(
            (start, message), Finding(offset=start, length=end - start, kind=kind, message=message, hint=hint)
        )

    def leave(self) -> None:
        """Records that a part of the query was not checked."""
        self.is_complete = False
