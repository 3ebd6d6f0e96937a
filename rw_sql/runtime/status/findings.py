"""Defines a finding of ``rw-sql doctor``, and the kinds of findings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rw_sql.metastore.records import ObjectRecord

WAREHOUSE, OWNER, CATALOG, FOLDER, CHECKPOINT, JOB, UPSTREAM, OPERATION, LOCK = (
    "warehouse",
    "owner",
    "catalog",
    "folder",
    "checkpoint",
    "job",
    "upstream",
    "operation",
    "lock",
)
"""The values of :attr:`Finding.about`: the kinds of subjects that a finding can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One inconsistency. ``about`` is the kind of the inconsistency's subject, and ``subject`` is the subject's name.
    ``remedy`` is the recommended action. ``is_repairable`` is true if :func:`repair` can perform this action."""

    about: str
    subject: str
    problem: str
    remedy: str
    is_repairable: bool = False

    def to_json(self) -> dict[str, object]:
        """The finding as JSON."""
        return {
            "about": self.about,
            "subject": self.subject,
            "problem": self.problem,
            "remedy": self.remedy,
            "is_repairable": self.is_repairable,
        }


def named(record: ObjectRecord) -> str:
    """The kind and the name of an object, as the subject of a finding."""
    return f'{record.kind.replace("_", " ")} "{record.name}"'
