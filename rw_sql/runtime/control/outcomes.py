"""Determines the outcomes of operations. A process may end before it has recorded the outcome of its operation; the
module determines the outcomes of such operations too."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.errors import STORE_UNREACHABLE, SqlError
from rw_sql.metastore import ConcurrentCommit
from rw_sql.plan.statements.checkpoint.checkpoint_outcomes import NOT_KNOWN, changes_checkpoint
from rw_sql.runtime.support.event_log import log_event
from rw_sql.runtime.support.failures import cause_line
from rw_sql.runtime.support.stall_timeout import spoken_seconds
from rw_sql.syntax.lexing.identifiers import literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore.records import Operation, OperationRecord
    from rw_sql.plan.result.external_actions import Effect
    from rw_sql.plan.result.plan import Plan

NOT_YET_APPLIED = "committed, not yet applied"
"""The outcome of a statement that returned before the jobs had adopted its effect. The owner later replaces this
outcome with APPLIED."""

APPLIED = "applied"
"""The outcome of a statement after the jobs have adopted its effect."""


def completed(records: Iterable[OperationRecord], applied_epoch: int) -> tuple[OperationRecord, ...]:
    """Returns the operations with their outcomes. An operation for which :func:`is_left_open` is True gets the outcome
    APPLIED if its epoch is at most ``applied_epoch``, and otherwise NOT_YET_APPLIED. A change to a foreign checkpoint
    without an outcome gets NOT_KNOWN."""
    return tuple(replace(record, outcome=_outcome(record, applied_epoch)) for record in records)


def is_left_open(record: OperationRecord) -> bool:
    """True if the owner must record the outcome of an operation after it has applied the operation.

    The result is False for a safe operation without an outcome, because such an operation may not have changed any job.
    The result is also False for a change to a foreign checkpoint without an outcome, because no owner carries out this
    change.
    """
    if record.outcome is None:
        return record.is_unsafe and not changes_checkpoint(record)
    return record.outcome == NOT_YET_APPLIED


def _outcome(record: OperationRecord, applied_epoch: int) -> str | None:
    if is_left_open(record):
        return APPLIED if record.epoch <= applied_epoch else NOT_YET_APPLIED
    is_lost = record.outcome is None and changes_checkpoint(record)
    return NOT_KNOWN if is_lost else record.outcome


def log_commit(plan: Plan, operation: Operation, epoch: int) -> None:
    """Writes a statement's commit, and the steps of its plan, to the event log."""
    log_event(
        "committed",
        epoch=epoch,
        kind=operation.kind,
        objects=", ".join(operation.objects),
        actor=operation.actor,
        unsafe=operation.is_unsafe,
        reason=operation.reason,
    )
    for step in plan.steps:
        log_event("step", epoch=epoch, action=step.action, subject=step.subject, detail=step.detail or None)


def effect_failed(effect: Effect, epoch: int, error: Exception) -> SqlError:
    """The error for a committed statement whose change to a checkpoint failed because of an error of the checkpoint's
    store."""
    return SqlError(
        STORE_UNREACHABLE,
        f"the statement is committed as epoch {epoch}, and the checkpoint {effect.path} could not be changed: "
        f"{cause_line(str(error)) or type(error).__name__}",
        hint=f"SHOW CHECKPOINT {literal(effect.path)} shows whether the change is complete",
    )


def still_overtaken(last: ConcurrentCommit, attempts: int, seconds: float, longer: str | None) -> ConcurrentCommit:
    """The error for a statement that gives up because another statement was committed first in each of its attempts.
    ``last`` is the error of the last attempt. ``seconds`` is the duration of all attempts. ``longer`` is a value of
    ``statement_timeout`` that allows more attempts; None if ``statement_timeout`` did not limit the attempts."""
    hint = "run the statement again"
    if longer is not None:
        hint += f"; if it fails again, make it try for longer: SET statement_timeout = '{longer}'"
    message = (
        f"other statements were committed during each of the {attempts} attempts in {spoken_seconds(seconds)}: nothing "
        "was changed"
    )
    return ConcurrentCommit(last.epoch, last.based_on, message=message, hint=hint)
