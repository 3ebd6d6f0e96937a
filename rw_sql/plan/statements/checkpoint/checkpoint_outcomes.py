"""Determines the outcomes of operations that change the checkpoint of a foreign job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.metastore.codec import changes_from_json
from rw_sql.metastore.records import INJECT_CHECKPOINT, UNDO

if TYPE_CHECKING:
    from rw_sql.metastore.records import OperationRecord

NOT_KNOWN = "committed; its process ended before it recorded the outcome: SHOW CHECKPOINT shows it"
"""The outcome of a change to a foreign checkpoint if the process that made the change was killed. No owner completes
such a change."""


def changes_checkpoint(record: OperationRecord) -> bool:
    """True if an operation changes a foreign checkpoint and nothing in the catalog, that is, for an INJECT CHECKPOINT
    OFFSETS and its undo."""
    return record.kind == INJECT_CHECKPOINT or (record.kind == UNDO and not changes_from_json(record.changes))


def has_failed(record: OperationRecord) -> bool:
    """True if an operation has failed to change a foreign checkpoint. The checkpoint is then unchanged."""
    return changes_checkpoint(record) and (record.outcome or "").startswith("failed")


def may_lack_effect(record: OperationRecord) -> bool:
    """True if an operation may have left a foreign checkpoint unchanged, because the operation failed or its process
    was killed."""
    return has_failed(record) or (changes_checkpoint(record) and record.outcome == NOT_KNOWN)
