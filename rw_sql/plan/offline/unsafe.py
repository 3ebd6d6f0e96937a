"""Determines whether a statement is unsafe, and under which conditions an unsafe statement runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.plan.offline.report import UnsafeNote
from rw_sql.plan.result.confirmation import SWITCH
from rw_sql.syntax import statements as ast

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.plan.result.plan import Plan
    from rw_sql.syntax.statements import Statement

_MOVES = ("GAPS", "DUPLICATES")
_ACCEPTS: dict[type[Statement], tuple[str, ...]] = {
    ast.AlterSourceUnsafeSet: _MOVES,
    ast.AlterTableUnsafeSet: _MOVES,
    ast.ResetSourceSplits: _MOVES,
    ast.InjectSourceOffsets: _MOVES,
    ast.InjectCheckpointOffsets: _MOVES,
    ast.UndoOperation: _MOVES,
    ast.RewindSource: ("DUPLICATES",),
    ast.SkipRecord: (),
    ast.BeginUnsafe: (),
}


def unsafe_note(statement: Statement, snapshot: Snapshot, plan: Plan | None) -> UnsafeNote | None:
    """The conditions under which an unsafe statement runs on the given catalog; None for a safe statement."""
    accepts = _ACCEPTS.get(type(statement))
    if accepts is None:
        if plan is None or not plan.is_unsafe:
            return None
        accepts = ()
    has_switch = snapshot.parameter(SWITCH) == "true"
    return UnsafeNote(
        switch=None if has_switch else f"ALTER SYSTEM SET {SWITCH} = true",
        accepts=accepts,
        allows=tuple(getattr(statement, "allow", ())),
    )
