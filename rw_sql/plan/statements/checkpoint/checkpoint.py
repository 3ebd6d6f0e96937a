"""Lowers SHOW CHECKPOINT and INJECT CHECKPOINT OFFSETS, which show and set the positions of a foreign job."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rw_sql.checkpoints.checkpoint import Rewrite, changes_of, splits_of
from rw_sql.checkpoints.offset_log import read_entry
from rw_sql.checkpoints.positions import FILE, KAFKA, move_delta, move_files, move_kafka, read_position
from rw_sql.connectors.spec import duration_seconds
from rw_sql.errors import (
    CANNOT_MOVE_SOURCE,
    CANNOT_UNDO_CHECKPOINT,
    CHECKPOINT_IN_USE,
    CHECKPOINT_UNFINISHED,
    INVALID_DEFINITION,
    INVALID_OPTION,
    INVALID_SPLIT_STATE,
    OFFSET_OUT_OF_RANGE,
    UPSTREAM_MISSING,
    SqlError,
    first_names,
)
from rw_sql.metastore.records import INJECT_CHECKPOINT, UNDO, Operation
from rw_sql.model.split_status import AHEAD, EXPIRED, OK, ORPHAN, UNKNOWN
from rw_sql.plan.result.external_actions import WATCH_SECONDS, RewriteCheckpoint, UndoCheckpoint
from rw_sql.plan.result.plan import Plan, Preview, ResultRow, SplitPreview, Table
from rw_sql.plan.result.preview_text import render_preview
from rw_sql.plan.statements.checkpoint.context import NOT_THERE, Target, look_around, require_brokers
from rw_sql.plan.statements.checkpoint.targets import NewPosition, read_target, read_written
from rw_sql.plan.statements.checkpoint.verdicts import previewed, state_notices
from rw_sql.syntax import render

if TYPE_CHECKING:
    from rw_sql.checkpoints.checkpoint import Checkpoint
    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import OperationRecord
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.statements.checkpoint.context import InjectContext
    from rw_sql.syntax.statements import InjectCheckpointOffsets, ShowCheckpoint, Statement

STOPPED = "the job that uses this checkpoint is stopped, on every machine"
_MOST_NAMED = 12


def lower_show_checkpoint(statement: ShowCheckpoint, snapshot: Snapshot, inspector: Inspector) -> Plan:
    """Lowers SHOW CHECKPOINT, which shows the position of each split. If the statement names the upstream, the
    upstream's bounds are shown too."""
    context = look_around(statement, snapshot, inspector)
    checkpoint = context.checkpoint
    watermark = _moment(checkpoint.watermark_ms)
    rows: list[tuple[object, ...]] = []
    for target in context.targets():
        bounds = context.bounds(target)
        start, end = bounds or (None, None)
        lag = None if end is None or target.position is None else max(0, end - target.position)
        detail = checkpoint.source(target.source).detail
        rows.append(
            (
                target.source,
                target.kind,
                target.id,
                target.position,
                start,
                end,
                lag,
                _status(context, target),
                detail or None,
                checkpoint.batch,
                watermark,
            )
        )
    for source in checkpoint.sources:
        if not source.splits:
            detail = source.text or "the job has read nothing yet"
            rows.append((source.name, source.kind, *(None,) * 5, UNKNOWN, detail[:200], checkpoint.batch, watermark))
    columns = (
        ("source", "STRING"),
        ("kind", "STRING"),
        ("split", "STRING"),
        ("next", "BIGINT"),
        ("start", "BIGINT"),
        ("end", "BIGINT"),
        ("lag", "BIGINT"),
        ("status", "STRING"),
        ("detail", "STRING"),
        ("batch", "BIGINT"),
        ("watermark", "TIMESTAMP"),
    )
    return Plan(statement=statement, table=Table(columns=columns, rows=tuple(rows)))


def _status(context: InjectContext, target: Target) -> str:
    bounds = context.bounds(target)
    if bounds is None or target.position is None:
        return ORPHAN if context.doubt(target) == NOT_THERE else UNKNOWN
    if target.position < bounds[0]:
        return EXPIRED
    return AHEAD if target.position > bounds[1] else OK


def _moment(milliseconds: int) -> datetime | None:
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds else None


def lower_inject_checkpoint_offsets(
    statement: InjectCheckpointOffsets, snapshot: Snapshot, inspector: Inspector
) -> Plan:
    """Lowers INJECT CHECKPOINT OFFSETS, which rewrites the last committed entry of the checkpoint's offset log. The
    state of the query's operators is kept."""
    watch_seconds = _watch_seconds(statement)
    written = read_written(statement, inspector)
    context = look_around(statement, snapshot, inspector, (*statement.splits, *(entry.split for entry in written)))
    _require_settled(context, statement.path_span)
    if statement.is_validated:
        require_brokers(context, statement)
    wish = read_target(statement, snapshot, inspector, context, written)
    if not wish.moved:
        raise SqlError(
            CANNOT_MOVE_SOURCE,
            f"checkpoint {statement.path!r} has no split whose position could be set",
            span=statement.path_span,
            hint="only positions in Kafka, Delta tables and file sources can be set",
        )
    moved = tuple(checked(statement, context, each) for each in wish.moved)
    dropped = _dropped(statement, context, moved)
    gone = require_files(statement, inspector, context, moved)
    rows, notices = previewed(inspector, context, moved, dropped)
    notices = (*wish.notices, *_clamped(wish.moved, moved), *notices, *gone, *state_notices(context.checkpoint, rows))
    return _plan(statement, context, moved, dropped, rows, notices, watch_seconds)


def require_still(checkpoint: Checkpoint, running: str | None, span: Span | None) -> None:
    """Raises SqlError if the checkpoint belongs to rw_sql, if a query in this process uses it, or if a batch is in
    progress."""
    path = checkpoint.path
    if checkpoint.owner is not None:
        raise SqlError(
            CANNOT_MOVE_SOURCE,
            f"{path!r} belongs to a job of warehouse {checkpoint.owner!r}",
            span=span,
            hint="to move a job of rw_sql: PAUSE SOURCE s; INJECT SOURCE OFFSETS s …; RESUME SOURCE s",
        )
    if running is not None:
        raise SqlError(
            CHECKPOINT_IN_USE,
            f"{running} uses checkpoint {path!r} in this process",
            span=span,
            hint=f"stop it first: [q.stop() for q in spark.streams.active if q.id == '{checkpoint.query_id}']",
        )
    if checkpoint.planned > checkpoint.batch:
        raise SqlError(
            CHECKPOINT_UNFINISHED,
            f"batch {checkpoint.planned} of checkpoint {path!r} is planned but not committed: its rows may already be "
            "written",
            span=span,
            hint="start the job once with trigger(availableNow=True), or trigger(once=True) for this batch alone, so "
            "that it finishes the batch; then repeat this statement",
        )


def _require_settled(context: InjectContext, span: Span) -> None:
    checkpoint = context.checkpoint
    require_still(checkpoint, context.look.running, span)
    if checkpoint.unfinished is not None:
        raise SqlError(
            CHECKPOINT_UNFINISHED,
            f"operation {checkpoint.unfinished.number} on checkpoint {checkpoint.path!r} was interrupted",
            span=span,
            hint=f"rw-sql checkpoint undo {checkpoint.path} restores the files from before that operation",
        )


def _watch_seconds(statement: InjectCheckpointOffsets) -> float:
    if statement.watch is None:
        return WATCH_SECONDS
    seconds = duration_seconds(statement.watch)
    if seconds is None:
        raise SqlError(
            INVALID_OPTION,
            "WATCH must be a time such as '10s' or '2min'",
            span=statement.watch_span,
            hint="WATCH = '10s'",
        )
    return seconds


def checked(statement: InjectCheckpointOffsets, context: InjectContext, each: NewPosition) -> NewPosition:
    """Returns the new position if the upstream has it. If the upstream lacks it, returns the nearest valid position if
    ALLOW contains CLAMP, and otherwise raises SqlError."""
    target, position = each.target, each.position
    source = context.checkpoint.source(target.source)
    if source.is_in_snapshot:
        raise SqlError(
            CANNOT_MOVE_SOURCE,
            f'split "{target.id}" is still reading the whole table for the first time: {source.detail}',
            span=each.span,
            hint="start the job once with trigger(availableNow=True), so that it finishes this read; then repeat "
            "this statement",
        )
    bounds = context.bounds(target)
    if position < 0 and (bounds is None or "CLAMP" not in statement.allow):
        raise SqlError(
            INVALID_SPLIT_STATE,
            f'position {position} of split "{target.id}" is negative',
            span=each.span,
            hint="give a position of 0 or more",
        )
    if bounds is None:
        if statement.is_validated and context.doubt(target) == NOT_THERE:
            raise SqlError(
                UPSTREAM_MISSING,
                f'the brokers have no split "{target.local}"',
                span=each.span,
                hint="WITH (VALIDATE = false) writes the position without this check",
            )
        return each
    start, end = bounds
    if start <= position <= end or not (statement.is_validated or target.kind == FILE):
        return each
    if "CLAMP" in statement.allow:
        return NewPosition(target=target, position=min(max(position, start), end), span=each.span)
    side = "beyond the end" if position > end else "before the start"
    raise SqlError(
        OFFSET_OUT_OF_RANGE,
        f'position {position} of split "{target.id}" is {side}: the upstream has [{start}, {end})',
        span=each.span,
        hint=f"give a position from {start} to {end}",
    )


def _clamped(wanted: tuple[NewPosition, ...], moved: tuple[NewPosition, ...]) -> tuple[str, ...]:
    """Returns a notice about positions that ALLOW CLAMP has changed."""
    said = [
        f"{old.target.id} from {old.position} to {new.position}"
        for old, new in zip(wanted, moved, strict=True)
        if old.position != new.position
    ]
    return (f"clamped to the offsets that the upstream has: {first_names(said, _MOST_NAMED)}",) if said else ()


def _dropped(
    statement: InjectCheckpointOffsets, context: InjectContext, moved: tuple[NewPosition, ...]
) -> tuple[Target, ...]:
    """The splits that EXACTLY removes from the checkpoint's Kafka sources; empty if the statement has no EXACTLY."""
    if not statement.is_exactly:
        return ()
    sources = {each.target.source for each in moved if each.target.kind == KAFKA}
    if not sources:
        raise SqlError(
            INVALID_DEFINITION,
            "EXACTLY applies to the partitions of a Kafka source, but no partition is named",
            span=statement.path_span,
            hint="omit EXACTLY",
        )
    kept = {each.target for each in moved}
    return tuple(target for target in context.targets() if target.source in sources and target not in kept)


def require_files(
    statement: InjectCheckpointOffsets, inspector: Inspector, context: InjectContext, moved: tuple[NewPosition, ...]
) -> tuple[str, ...]:
    """Checks that all files that the job will read again still exist, because Spark skips missing files without an
    error."""
    notices: list[str] = []
    for each in moved:
        if each.target.kind != FILE or each.target.position is None or each.position >= each.target.position:
            continue
        paths = context.lists[each.target.source].between(each.position, each.target.position)
        gone = inspector.checkpoints.missing_files(paths)
        if gone and "GAPS" not in statement.allow:
            raise SqlError(
                UPSTREAM_MISSING,
                f"{len(gone)} of the {len(paths)} files that would be read again no longer exist, such as {gone[0]}",
                span=each.span,
                hint="restore these files; to continue without them, add ALLOW GAPS (--allow gaps)",
            )
        if gone:
            notices.append(f"{len(gone)} of {len(paths)} files no longer exist and will not be read again")
    return tuple(notices)


def _plan(
    statement: InjectCheckpointOffsets,
    context: InjectContext,
    moved: tuple[NewPosition, ...],
    dropped: tuple[Target, ...],
    rows: tuple[SplitPreview, ...],
    notices: tuple[str, ...],
    watch_seconds: float,
) -> Plan:
    checkpoint = context.checkpoint
    files = changes_of(checkpoint, _offsets(statement, context, moved, dropped))
    preview = Preview(
        title=f"{INJECT_CHECKPOINT} into {checkpoint.path} (query {checkpoint.query_id}, batch {checkpoint.batch})",
        dependents=checkpoint.operators,
        splits=rows,
        notices=notices if statement.is_assumed_stopped else (*notices, f"confirming also asserts that {STOPPED}"),
        is_checkpoint=True,
    )
    answers = [_answer(checkpoint.path, each) for each in moved]
    answers += [
        ResultRow(object=checkpoint.path, change="FORGOTTEN", detail=f"{target.id} (was {target.position})")
        for target in dropped
    ]
    named = {each.target for each in moved} | set(dropped)
    if kept := [target.id for target in context.targets() if target not in named]:
        few = first_names(kept, _MOST_NAMED)
        answers.append(ResultRow(object=checkpoint.path, change="KEPT", detail=f"not named, position kept: {few}"))
    text = render(statement)
    if not files:
        answers = [ResultRow(object=checkpoint.path, change="NOTHING", detail="it is already at this position")]
    return Plan(
        statement=statement,
        operation=Operation(
            kind=INJECT_CHECKPOINT,
            statement=text,
            objects=(checkpoint.path,),
            changes=(),
            is_unsafe=True,
            reason=statement.reason,
            plan=render_preview(preview),
        )
        if files
        else None,
        changes=tuple(answers),
        preview=preview,
        is_unsafe=True,
        effect=RewriteCheckpoint(
            path=checkpoint.path,
            rewrite=Rewrite(
                batch=checkpoint.batch, stamp=checkpoint.stamp, files=files, statement=text, reason=statement.reason
            ),
            watch_seconds=watch_seconds,
        )
        if files
        else None,
        unallowed=_unallowed(statement, rows),
        assertion="" if statement.is_assumed_stopped else STOPPED,
        fingerprint=checkpoint.stamp + ",".join(f"{each.target.id}={each.position}" for each in moved),
    )


def _unallowed(statement: InjectCheckpointOffsets, rows: tuple[SplitPreview, ...]) -> tuple[str, ...]:
    """Returns the words that ALLOW lacks. ALLOW needs the word for every predicted effect, even if the effect cannot be
    counted."""
    gaps = duplicates = False
    for row in rows:
        if row.old is None or row.old == row.new:
            continue
        is_uncounted = row.verdict.startswith("UNKNOWN")
        gaps |= bool(row.gaps) or (is_uncounted and (row.new is None or row.new > row.old))
        duplicates |= bool(row.duplicates) or (is_uncounted and row.new is not None and row.new < row.old)
    predicted = (("GAPS", gaps), ("DUPLICATES", duplicates))
    return tuple(word for word, is_there in predicted if is_there and word not in statement.allow)


def _offsets(
    statement: InjectCheckpointOffsets,
    context: InjectContext,
    moved: tuple[NewPosition, ...],
    dropped: tuple[Target, ...],
) -> dict[str, str | None]:
    """The new offset of each moved source, in Spark's form. In this form, the offset of a source contains all splits of
    the source."""
    made: dict[str, str | None] = {}
    for source in context.checkpoint.sources:
        to = {each.target.local: each.position for each in moved if each.target.source == source.name}
        if not to or (to.items() <= dict(source.splits).items() and not dropped):
            continue
        match source.kind:
            case "kafka":
                is_exactly = statement.is_exactly
                made[source.name] = move_kafka(source.text, to, is_exactly=is_exactly)
            case "delta":
                made[source.name] = move_delta(source.text or "{}", next(iter(to.values())))
            case _:
                made[source.name] = move_files(next(iter(to.values())))
    return made


def _answer(path: str, each: NewPosition) -> ResultRow:
    target = each.target
    was = f" (was {target.position})" if target.position is not None else " (new)"
    change = "INJECTED" if target.position != each.position else "UNCHANGED"
    return ResultRow(object=path, change=change, detail=f"{target.id} at {each.position}{was}")


def lower_undo_checkpoint(
    statement: Statement,
    inspector: Inspector,
    path: str,
    *,
    of: OperationRecord | None = None,
    reason: str | None = None,
    watch_seconds: float = WATCH_SECONDS,
    is_assumed_stopped: bool = False,
) -> Plan:
    """Reverts the last rewrite of a checkpoint. This is possible only if the job has not planned a batch since that
    rewrite.

    ``of``, if given, is the operation to undo. Raises SqlError if the last rewrite was made by another operation.
    """
    look = inspector.checkpoints.look(path)
    checkpoint = look.checkpoint
    require_still(checkpoint, look.running, None)
    entry = inspector.checkpoints.undoable_rewrite(path)
    if of is not None and datetime.fromisoformat(entry.at).timestamp() < of.at_ms // 1000:
        # An equal statement before the operation may have moved the offsets by the same number.
        raise SqlError(
            CANNOT_UNDO_CHECKPOINT,
            f"operation {of.epoch} has no rewrite of checkpoint {path!r} to undo: the newest rewrite, at {entry.at}, "
            "is older than the operation",
            hint=f"rw-sql checkpoint show {path}",
        )
    if of is not None and entry.statement != of.statement:
        raise SqlError(
            CANNOT_UNDO_CHECKPOINT,
            f"checkpoint {path!r} was rewritten by another operation since, at {entry.at}",
            hint=f"rw-sql checkpoint undo {path} reverts the newest operation first",
        )
    before = {change.name: change.before for change in entry.files}
    then = read_entry(before.get(f"offsets/{checkpoint.batch}", checkpoint.entry.render()))
    sources = tuple(read_position(name, text) for name, text in zip(then.names, then.offsets, strict=True))
    target = {(split.source, split.local): split for split in splits_of(sources)}
    now = {(split.source, split.local): split for split in checkpoint.splits}
    rows = tuple(
        SplitPreview(
            split=(now.get(key) or target[key]).id,
            old=now[key].position if key in now else None,
            new=target[key].position if key in target else None,
            start=None,
            end=None,
            verdict="NONE",
        )
        for key in dict.fromkeys((*now, *target))
    )
    said = " ".join(entry.statement.split())
    notices = [f"at {entry.at} {entry.actor} ran: {said}", "the job has not run since then, so no row was read"]
    if not is_assumed_stopped:
        notices.append(f"confirming also asserts that {STOPPED}")
    preview = Preview(
        title=f"UNDO of operation {entry.number} on {path} (query {checkpoint.query_id}, batch {checkpoint.batch})",
        dependents=checkpoint.operators,
        splits=rows,
        notices=tuple(notices),
        is_checkpoint=True,
    )
    return Plan(
        statement=statement,
        operation=Operation(
            kind=UNDO,
            statement=render(statement),
            objects=(path,),
            changes=(),
            is_unsafe=True,
            reason=reason,
            plan=render_preview(preview),
        ),
        changes=tuple(
            ResultRow(object=path, change="RESTORED", detail=f"{row.split} at {row.new} (was {row.old})")
            for row in rows
            if row.old != row.new
        ),
        preview=preview,
        is_unsafe=True,
        effect=UndoCheckpoint(path=path, number=entry.number, stamp=checkpoint.stamp, watch_seconds=watch_seconds),
        assertion="" if is_assumed_stopped else STOPPED,
    )
