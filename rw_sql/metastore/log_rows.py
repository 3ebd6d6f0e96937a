"""Converts operations and their outcomes to rows of the table ``operations``, and converts these rows back to
operations."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from rw_sql.metastore.codec import before_to_json, changes_to_json
from rw_sql.metastore.records import OperationRecord

if TYPE_CHECKING:
    from rw_sql.metastore.codec import BeforeImage
    from rw_sql.metastore.records import Operation


def operation_row(operation: Operation, epoch: int, actor: str, before: BeforeImage) -> dict[str, Any]:
    """Returns the row that commits an operation as ``epoch``. ``before`` contains the values that the operation
    replaces."""
    return {
        "epoch": epoch,
        "entry": "operation",
        "commit_id": uuid.uuid4().hex,
        "kind": operation.kind,
        "statement": operation.statement,
        "objects": list(operation.objects),
        "is_unsafe": operation.is_unsafe,
        "actor": actor,
        "at_ms": now_ms(),
        "reason": operation.reason,
        "plan": operation.plan,
        "changes": changes_to_json(operation.changes),
        "before": before_to_json(before),
        "prediction": operation.prediction,
    }


def outcome_row(epoch: int, outcome: str, duration_ms: int | None) -> dict[str, Any]:
    """The row that records the outcome of an operation."""
    return {
        "epoch": epoch,
        "entry": "outcome",
        "commit_id": uuid.uuid4().hex,
        "at_ms": now_ms(),
        "outcome": outcome,
        "duration_ms": duration_ms,
    }


def operation_rows(rows: pa.Table, after: int) -> list[tuple[int, str, str]]:
    """Returns a triple (epoch, actor, changes) for each operation whose epoch is greater than ``after``, in ascending
    order."""
    chosen = rows.filter(pc.and_(pc.equal(rows["entry"], "operation"), pc.greater(rows["epoch"], after)))
    chosen = chosen.sort_by("epoch")
    columns = (chosen[name].to_pylist() for name in ("epoch", "actor", "changes"))
    return list(zip(*columns, strict=True))


def operation_record(row: dict[str, Any], outcome: dict[str, Any] | None) -> OperationRecord:
    """Makes the record of an operation from the operation's row. ``outcome`` is the row of its outcome; None if no
    outcome is recorded."""
    return OperationRecord(
        epoch=row["epoch"],
        kind=row["kind"],
        statement=row["statement"],
        objects=tuple(row["objects"]),
        is_unsafe=row["is_unsafe"],
        actor=row["actor"],
        at_ms=row["at_ms"],
        reason=row["reason"],
        plan=row["plan"],
        changes=row["changes"],
        before=row["before"],
        prediction=row["prediction"],
        outcome=outcome["outcome"] if outcome else None,
        duration_ms=outcome["duration_ms"] if outcome else None,
    )


def now_ms() -> int:
    """The current time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
