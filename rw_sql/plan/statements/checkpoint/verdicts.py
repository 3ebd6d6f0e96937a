"""Predicts, for each split, how moving a checkpoint affects the rows of the checkpoint's job."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rw_sql.checkpoints.positions import DELTA, FILE, KAFKA
from rw_sql.plan.effects.verdicts import Verdict, counted
from rw_sql.plan.result.plan import SplitPreview

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rw_sql.checkpoints.checkpoint import Checkpoint
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.statements.checkpoint.context import InjectContext, Target
    from rw_sql.plan.statements.checkpoint.targets import NewPosition

_COUNTING = frozenset({"aggregation", "session windows", "stream-stream join", "state"})


def previewed(
    inspector: Inspector, context: InjectContext, moved: tuple[NewPosition, ...], dropped: tuple[Target, ...]
) -> tuple[tuple[SplitPreview, ...], tuple[str, ...]]:
    """Returns the rows of the preview, one row for each split of the checkpoint, and notices for the user."""
    sparse = context.upstream.sparse if context.upstream is not None else {}
    positions = {each.target: each.position for each in moved}
    rows: list[SplitPreview] = []
    notices: list[str] = []
    for target in (*context.targets(), *(each.target for each in moved if each.target.position is None)):
        new = None if target in dropped else positions.get(target, target.position)
        bounds = context.bounds(target)
        if target in dropped:
            found = _of_dropped(context, target, sparse)
        elif new is None or new == target.position:
            found = Verdict(text="NONE")
        elif target.kind == KAFKA:
            found = _of_kafka(context, target, new, sparse)
        elif target.kind == DELTA and target.source in context.tables:
            found, said = _of_delta(inspector, context, target, new)
            notices += said
        else:
            found = _of_numbers(context, target, new)
        rows.append(
            SplitPreview(
                split=target.id,
                old=target.position,
                new=new,
                start=bounds[0] if bounds else None,
                end=bounds[1] if bounds else None,
                verdict=found.text,
                duplicates=found.duplicates,
                gaps=found.gaps,
                is_exact=found.is_exact,
            )
        )
    return tuple(rows), (*notices, *_unread(context, positions), *_subscription(context, moved, dropped))


def _of_kafka(context: InjectContext, target: Target, new: int, sparse: Mapping[str, str]) -> Verdict:
    bounds = context.bounds(target)
    topic = target.local.rpartition(":")[0]
    if target.position is None:
        known = context.checkpoint.source(target.source).splits
        if not any(split.startswith(f"{topic}:") for split in known):
            return Verdict(text="UNKNOWN (other topic)")
        if bounds is None:
            return Verdict(text=f"UNKNOWN ({context.doubt(target)})")
        return counted(0, new - bounds[0], is_exact=topic not in sparse, why=sparse.get(topic, ""))
    if bounds is None:
        moved = new - target.position
        return counted(-moved, moved, is_exact=False, why=context.doubt(target))
    start, end = bounds
    duplicates = min(target.position, end) - max(new, start)
    gaps = new - max(target.position, start)
    return counted(duplicates, gaps, is_exact=topic not in sparse, why=sparse.get(topic, ""))


def _of_dropped(context: InjectContext, target: Target, sparse: Mapping[str, str]) -> Verdict:
    """Returns the verdict for a partition that the job no longer reads. The job will never read the partition's records
    after the job's position."""
    bounds = context.bounds(target)
    if bounds is None or target.position is None:
        return Verdict(text="UNKNOWN (no longer in the checkpoint)")
    topic = target.local.rpartition(":")[0]
    unread = bounds[1] - max(target.position, bounds[0])
    found = counted(0, unread, is_exact=topic not in sparse, why=sparse.get(topic, ""))
    return replace(found, text=f"{found.text} (left unread)") if found.gaps else found


def _of_delta(inspector: Inspector, context: InjectContext, target: Target, new: int) -> tuple[Verdict, list[str]]:
    """Returns the verdict on moving a position in a Delta table, and notices.

    The verdict counts rows if every added file has a row count in the table's log. Otherwise, the verdict counts
    versions.
    """
    old = target.position or 0
    low, high = min(old, new), max(old, new)
    between = inspector.checkpoints.rows_between(context.tables[target.source], low, high)
    notices = []
    if between.changed and new < old:
        listed = ", ".join(map(str, between.changed[:8]))
        notices.append(
            f"version {listed} of the table deleted or updated rows: the job fails there unless it reads with "
            "skipChangeCommits or ignoreDeletes"
        )
    if between.rows is None:
        return _of_numbers(context, target, new), notices
    why = "part of a version was read" if context.checkpoint.source(target.source).detail else ""
    why = why or ("some versions updated or deleted rows" if between.changed else "")
    is_back = new < old
    rows = between.rows
    return counted(rows if is_back else 0, 0 if is_back else rows, is_exact=not why, why=why), notices


def _of_numbers(context: InjectContext, target: Target, new: int) -> Verdict:
    """The verdict on a move whose rows cannot be counted. It names the files or versions that the job will read again
    or skip."""
    old = target.position or 0
    low, high = min(old, new), max(old, new)
    if target.kind == FILE:
        files = len(context.lists[target.source].between(low, high))
        what = f"{files} file{'' if files == 1 else 's'}"
    else:
        what = f"version {low}" if high == low + 1 else f"versions {low} to {high - 1}"
    if new < old:
        return Verdict(text=f"UNKNOWN (reads {what} again)")
    return Verdict(text=f"UNKNOWN (skips {what})")


def _unread(context: InjectContext, positions: Mapping[Target, int]) -> Iterable[str]:
    """Returns messages about partitions that are neither in the checkpoint nor in the statement.

    The job will discover such partitions and read them from their first record.
    """
    if context.upstream is None:
        return
    known = {target.local for target in (*context.targets(), *positions)}
    if new := [split for split in context.upstream.splits if split not in known]:
        yield f"these splits are not in the checkpoint and will be read from their first record: {', '.join(new[:8])}"


def _subscription(context: InjectContext, moved: tuple[NewPosition, ...], dropped: tuple[Target, ...]) -> Iterable[str]:
    """Returns messages about the option ``subscribe`` of the job. If partitions are added or removed, this option must
    be changed too."""
    changed = {each.target.source for each in moved if each.target.position is None} | {
        target.source for target in dropped
    }
    for name in sorted(changed):
        kept = [target.local for target in context.targets() if target.source == name and target not in dropped]
        kept += [each.target.local for each in moved if each.target.source == name]
        topics = sorted({split.rpartition(":")[0] for split in kept})
        yield f"start the job with option subscribe = '{','.join(topics)}' for source {name}"


def state_notices(checkpoint: Checkpoint, rows: Iterable[SplitPreview]) -> tuple[str, ...]:
    """Returns notices about the effect of repeated records on the operators of the job, which keep their state."""
    is_back = any(row.old is not None and row.new is not None and row.new < row.old for row in rows)
    if not is_back:
        return ()
    notices = []
    if counting := [operator for operator in checkpoint.operators if operator in _COUNTING]:
        notices.append(f"state is kept: records that are read again count again in {', '.join(counting)}")
    if checkpoint.watermark_ms > 0 and checkpoint.operators:
        moment = datetime.fromtimestamp(checkpoint.watermark_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
        notices.append(f"LATE: records before the watermark {moment} will be dropped, not counted again")
    return tuple(notices)
