"""The result of an analysis: findings and columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rw_sql.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, and its type in Spark's DDL form (None: unknown).

    An output column without a name, such as ``a + 1``, has the name ``""``.
    """

    name: str
    data_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """An error in a query: its range in the text (``length`` characters from ``offset``), one sentence, and a hint."""

    offset: int
    length: int
    kind: ErrorCode
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """The findings of a query, in the order of its text, and its output columns (None: not known).

    ``is_complete`` is False if a whole part of the query was left unchecked: an unrecognized construct, or a relation
    with unknown columns.
    """

    findings: tuple[Finding, ...] = ()
    columns: tuple[Column, ...] | None = None
    is_complete: bool = True


def counted(number: int, thing: str) -> str:
    """A number with its noun: ``1 column``, ``2 columns``."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


@dataclass(slots=True)
class Report:
    """Collects the findings of one query."""

    findings: dict[tuple[int, str], Finding] = field(default_factory=dict)
    is_complete: bool = True

    def add(self, place: tuple[int, int] | None, kind: ErrorCode, message: str, hint: str | None = None) -> None:
        """Adds a finding at ``[start, end)``. A finding without a position is placed at the start of the query."""
        start, end = place or (0, 1)
        self.findings.setdefault(
            (start, message), Finding(offset=start, length=end - start, kind=kind, message=message, hint=hint)
        )

    def leave(self) -> None:
        """Records that a part of the query is left unchecked."""
        self.is_complete = False
