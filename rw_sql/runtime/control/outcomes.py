"""Records the outcomes of operations whose process ended before it recorded them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.metastore.records import INJECT_CHECKPOINT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore.records import OperationRecord

NOT_YET_APPLIED = "committed, not yet applied"
"""The outcome of a statement that returned before the jobs matched it. The owner later replaces it with APPLIED."""

APPLIED = "applied"
"""The outcome of a statement after the jobs have adopted its effect."""

NOT_KNOWN = "committed; its process ended before it recorded the outcome: SHOW CHECKPOINT shows it"
"""The outcome of a change to a foreign checkpoint whose process was killed. No owner completes such a change."""


def completed(records: Iterable[OperationRecord], applied_epoch: int) -> tuple[OperationRecord, ...]:
    """Fills in missing outcomes: operations up to ``applied_epoch`` get APPLIED."""
    return tuple(replace(record, outcome=_outcome(record, applied_epoch)) for record in records)


def is_left_open(record: OperationRecord) -> bool:
    """True if the owner must record the outcome of an operation when it is applied.

    False for a safe operation without an outcome, because it may not have changed any job.
    """
    if record.outcome is None:
        return record.is_unsafe and record.kind != INJECT_CHECKPOINT
    return record.outcome == NOT_YET_APPLIED


def _outcome(record: OperationRecord, applied_epoch: int) -> str | None:
    if is_left_open(record):
        return APPLIED if record.epoch <= applied_epoch else NOT_YET_APPLIED
    is_lost = record.outcome is None and record.kind == INJECT_CHECKPOINT
    return NOT_KNOWN if is_lost else record.outcome
