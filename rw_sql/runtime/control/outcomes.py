"""Records the outcomes of operations whose process ended before it recorded them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.metastore.records import INJECT_CHECKPOINT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore.records import OperationRecord

NOT_YET_APPLIED = "committed, not yet applied"
"""The outcome of a statement that did not wait to the end; the owner replaces it by APPLIED later."""

APPLIED = "applied"
"""The outcome of a statement when the jobs match it."""

NOT_KNOWN = "committed; its process ended before it said whether it was carried out: SHOW CHECKPOINT tells"
"""The outcome of a change of a foreign checkpoint by a killed process: no owner carries it out."""


def completed(records: Iterable[OperationRecord], applied_epoch: int) -> tuple[OperationRecord, ...]:
    """Fills in missing outcomes; operations up to ``applied_epoch`` are applied."""
    return tuple(replace(record, outcome=_outcome(record, applied_epoch)) for record in records)


def is_left_open(record: OperationRecord) -> bool:
    """True if the owner must record the outcome of an operation when it is applied.

    Not for a safe operation without an outcome: it may have changed no job.
    """
    if record.outcome is None:
        return record.is_unsafe and record.kind != INJECT_CHECKPOINT
    return record.outcome == NOT_YET_APPLIED


def _outcome(record: OperationRecord, applied_epoch: int) -> str | None:
    if is_left_open(record):
        return APPLIED if record.epoch <= applied_epoch else NOT_YET_APPLIED
    is_lost = record.outcome is None and record.kind == INJECT_CHECKPOINT
    return NOT_KNOWN if is_lost else record.outcome
