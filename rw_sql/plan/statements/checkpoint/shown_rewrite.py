"""When the user confirms an INJECT CHECKPOINT OFFSETS, checks that the upstreams still have the positions that the
preview showed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import SqlError
from rw_sql.plan.result.allow import effect_without_counts
from rw_sql.plan.result.external_actions import RewriteCheckpoint
from rw_sql.plan.statements.checkpoint.checkpoint import checked, require_files
from rw_sql.plan.statements.checkpoint.context import look_around, require_brokers
from rw_sql.plan.statements.checkpoint.targets import NewPosition
from rw_sql.plan.statements.checkpoint.verdicts import previewed
from rw_sql.syntax.statements import InjectCheckpointOffsets, SplitId

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.result.plan import Plan


def is_rewrite_current(shown: Plan, snapshot: Snapshot, inspector: Inspector) -> bool:
    """True if the plan of an INJECT CHECKPOINT OFFSETS still has the effect that its preview shows.

    The checkpoint, the upstreams and the files are read again. New records do not count as a changed effect.
    """
    statement, effect = shown.statement, shown.effect
    if not isinstance(statement, InjectCheckpointOffsets) or shown.preview is None:
        return False
    if not isinstance(effect, RewriteCheckpoint):
        return False
    rows = shown.preview.splits
    names = tuple(SplitId(id=row.split, span=statement.path_span) for row in rows)
    try:
        context = look_around(statement, snapshot, inspector, names)
        if statement.is_validated:
            require_brokers(context, statement)
        known = {target.id: target for target in context.targets()}
        targets = [known.get(name.id) or context.resolve(name) for name in names]
        moved = tuple(
            NewPosition(target=target, position=row.new, span=statement.path_span)
            for row, target in zip(rows, targets, strict=True)
            if row.new is not None and row.new != row.old
        )
        if any(checked(statement, context, each) != each for each in moved):
            return False
        require_files(statement, inspector, context, moved)
        dropped = tuple(target for row, target in zip(rows, targets, strict=True) if row.new is None)
        now, _ = previewed(inspector, context, moved, dropped)
    except SqlError:
        return False
    is_same = {row.split: effect_without_counts(row) for row in now} == {
        row.split: effect_without_counts(row) for row in rows
    }
    return is_same and context.checkpoint.stamp == effect.rewrite.stamp
