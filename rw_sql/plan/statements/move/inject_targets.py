"""Resolves the target of an INJECT to a position for each split. For example, a target is a list of values, a file, a
consumer group, a checkpoint or a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

from rw_sql.checkpoints.offset_log import read_entry
from rw_sql.errors import (
    INVALID_DEFINITION,
    INVALID_OFFSETS_FILE,
    INVALID_SPLIT_STATE,
    SPLITS_UNKNOWN,
    UPSTREAM_MISSING,
    SqlError,
    first_names,
    near_names,
)
from rw_sql.model.object_lookup import find_source
from rw_sql.model.offset_files import EARLIEST, LATEST
from rw_sql.model.options import visible
from rw_sql.model.pauses import pauses_of
from rw_sql.model.source_readers import only_fragment
from rw_sql.model.split_status import OK, identity_status
from rw_sql.plan.statements.inject_common import (
    at_most,
    grown_ends,
    grown_notices,
    members_notices,
    moment_of,
    offsets_in_file,
    require_no_split_list,
    require_offsets_written,
)
from rw_sql.syntax.lexing.identifiers import literal, sql_name
from rw_sql.syntax.statements import (
    InjectBack,
    InjectFromCheckpoint,
    InjectFromFile,
    InjectFromGroup,
    InjectFromSource,
    InjectShift,
    InjectTo,
    InjectToOffset,
    InjectToTimestamp,
    InjectValues,
    NullValue,
    SplitId,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rw_sql.connectors.base import Connector, Upstream
    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.model.options import PlannedOptions
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.ports.positions import Positions
    from rw_sql.syntax.statements import InjectSourceOffsets

_MOST_NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedOffset:
    """One split and its new position: a position as written in the statement, a computed offset, or a reset (None).

    ``span`` is the location of the entry in the statement's text.
    """

    split: SplitId
    state: str | int | None
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedTarget:
    """The requested position of each split, and notices for the user."""

    entries: tuple[RequestedOffset, ...]
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectContext:
    """The facts that are needed to resolve a target: the source, the selected splits (``chosen``), and the state of the
    upstream. Without FOR SPLITS, all splits are selected except those that were read to their ends and no longer
    exist."""

    snapshot: Snapshot
    source: SourceRecord
    kind: Connector
    options: PlannedOptions
    chosen: tuple[str, ...]
    upstream: Upstream
    positions: Positions


def read_target(statement: InjectSourceOffsets, inspector: Inspector, context: InjectContext) -> ResolvedTarget:
    """Resolves the target for the selected splits. Raises SqlError at the first error."""
    target = statement.target
    require_offsets_written(statement)
    match target:
        case InjectValues():
            return _values(statement, target)
        case InjectFromFile():
            return _file(inspector, target, context)
        case InjectFromGroup():
            return _group(inspector, target, context)
        case InjectFromCheckpoint():
            return _checkpoint(inspector, target, context)
        case InjectFromSource():
            return _source(inspector, target, context)
        case InjectTo():
            return _bounds(target.where, target.span, context)
        case InjectToOffset():
            return _resolved(dict.fromkeys(context.chosen, target.offset), target.span)
        case InjectShift():
            return _shift(target, context)
        case InjectToTimestamp() | InjectBack():
            return _time(inspector, moment_of(inspector, target), target.span, context)
        case _:
            assert_never(target)


def discard_unlisted(source_name: str) -> str:
    """The hint about assigned splits that the upstream does not list."""
    return f"RESET SOURCE SPLITS {sql_name(source_name)} discards the splits that the upstream no longer has"


def shorten(names: Iterable[str]) -> str:
    """Shortens a list of names to the first few names and the number of the remaining names."""
    return first_names(names, _MOST_NAMED)


def _resolved(offsets: dict[str, int], span: Span, *notices: str) -> ResolvedTarget:
    entries = tuple(
        RequestedOffset(split=SplitId(id=split, span=span), state=at, span=span) for split, at in offsets.items()
    )
    return ResolvedTarget(entries=entries, notices=notices)


def _values(statement: InjectSourceOffsets, target: InjectValues) -> ResolvedTarget:
    require_no_split_list(statement)
    return ResolvedTarget(
        entries=tuple(
            RequestedOffset(
                split=entry.split,
                state=None if isinstance(entry.value, NullValue) else entry.value.text,
                span=entry.value.span,
            )
            for entry in target.entries
        )
    )


def _file(inspector: Inspector, target: InjectFromFile, context: InjectContext) -> ResolvedTarget:
    written = offsets_in_file(inspector, target)
    entries = []
    for entry in written.entries:
        state: str | int | None = entry.state
        if entry.bound is not None:
            id_ = context.kind.resolve_split(visible(context.options), entry.split)
            _require_bounds((id_,), target.span, context)
            state = _bound(context, id_, entry.bound, target.span)
        entries.append(RequestedOffset(split=SplitId(id=entry.split, span=target.span), state=state, span=target.span))
    missing = _unnamed((entry.split for entry in written.entries), context)
    said = f"the file has no offset for {shorten(missing)}, where the source keeps its position"
    notices = (said,) if missing else ()
    return ResolvedTarget(entries=tuple(entries), notices=notices)


def _unnamed(written: Iterable[str], context: InjectContext) -> list[str]:
    """Returns the selected splits that are missing in ``written``. If ``written`` contains a split that does not exist,
    the result is empty, because another check reports that split."""
    options = visible(context.options)
    try:
        named = {id_ if id_ in context.chosen else context.kind.resolve_split(options, id_) for id_ in written}
    except SqlError:
        return []
    return [split for split in context.chosen if split not in named]


def _group(inspector: Inspector, target: InjectFromGroup, context: InjectContext) -> ResolvedTarget:
    try:
        answer = inspector.upstreams.group_offsets(
            context.source.connector, context.options, target.group, context.chosen
        )
    except SqlError as error:
        error.span = error.span or target.span
        raise
    if not answer.offsets:
        near = near_names(target.group, answer.groups)
        raise SqlError(
            UPSTREAM_MISSING,
            f'consumer group "{target.group}" has committed no offsets for these splits',
            span=target.span,
            hint=f'did you mean "{near[0]}"?' if near else "kafka-consumer-groups --list names all groups",
        )
    offsets, beyond = dict(answer.offsets), list[str]()
    if answer.members:
        offsets, beyond = at_most(offsets, _grown(inspector, context, offsets))
    notices = [*members_notices(target.group, answer.members), *grown_notices(beyond)]
    if uncommitted := [split for split in context.chosen if split not in answer.offsets]:
        notices.append(f'consumer group "{target.group}" has committed no offsets for {shorten(uncommitted)}')
    return _resolved(offsets, target.span, *notices)


def _checkpoint(inspector: Inspector, target: InjectFromCheckpoint, context: InjectContext) -> ResolvedTarget:
    def refuse(message: str, hint: str) -> SqlError:
        return SqlError(INVALID_OFFSETS_FILE, f"checkpoint {target.path!r} {message}", span=target.span, hint=hint)

    try:
        found = inspector.checkpoints.text(target.path)
    except SqlError as error:
        error.span = error.span or target.span
        raise
    try:
        texts = read_entry(found.text).offsets
    except ValueError as error:
        raise refuse(
            f"contains no offsets: {error}", "give the checkpointLocation of a Structured Streaming query"
        ) from error
    offsets: dict[str, int] = {}
    others: set[str] = set()
    for text in texts:
        try:
            read = context.kind.read_positions(text) if text else {}
        except (ValueError, TypeError, AttributeError, KeyError):
            continue  # The offset belongs to another kind of source, which the query also reads.
        for split, offset in read.items():
            if split not in context.chosen:
                others.add(split)
            elif offsets.setdefault(split, offset) != offset:
                raise refuse(
                    f'reads split "{split}" several times, at {offsets[split]} and {offset}',
                    f"INJECT SOURCE OFFSETS {sql_name(context.source.name)} VALUES ({literal(split)} = "
                    f"{min(offset, offsets[split])})",
                )
    if not offsets:
        reads = f"; it reads {shorten(sorted(others))}" if others else ""
        raise refuse(
            f'reads no split of source "{context.source.name}"',
            f"SHOW SOURCE SPLITS {sql_name(context.source.name)}{reads}",
        )
    notices = [f"taken from batch {found.batch} of the checkpoint"]
    if found.planned > found.batch:
        notices.append(
            f"batch {found.planned} of the checkpoint is planned but not committed, so its offsets are not used"
        )
    if others:
        notices.append(f"the checkpoint's positions in other splits are ignored: {shorten(sorted(others))}")
    if missing := [split for split in context.chosen if split not in offsets]:
        new = _new(missing, offsets, context)
        kept = "where the source keeps its position"
        notices.append(f"the checkpoint has no position in {shorten(missing)}, {kept}{new}")
    return _resolved(offsets, target.span, *notices)


def _new(missing: Iterable[str], offsets: Iterable[str], context: InjectContext) -> str:
    """Returns the end of the notice about splits without a position in the checkpoint. This text names the splits that
    were added to a topic after the checkpoint's query had stopped. The query would read an added split from its first
    record, whereas the source may have started at the split's end."""
    topics = {context.kind.split_topic(split) for split in offsets}
    new = [split for split in missing if context.kind.split_topic(split) in topics]
    if not new:
        return ""
    listed = ", ".join(literal(split) for split in new)
    return (
        f". The query would read {shorten(new)} from the first record: INJECT SOURCE OFFSETS "
        f"{sql_name(context.source.name)} TO EARLIEST FOR SPLITS ({listed})"
    )


def _source(inspector: Inspector, target: InjectFromSource, context: InjectContext) -> ResolvedTarget:
    other = find_source(context.snapshot, target.source)
    if other.id == context.source.id:
        raise SqlError(
            INVALID_DEFINITION,
            f'source "{other.name}" cannot take offsets from itself',
            span=target.span,
            hint="name another source that reads the same splits",
        )
    positions = inspector.positions.of(other.id, only_fragment(context.snapshot, other, target.span))
    common = [split for split in context.chosen if split in positions.states]
    if not common:
        raise SqlError(
            SPLITS_UNKNOWN,
            f'source "{other.name}" has no position in any split of source "{context.source.name}"',
            span=target.span,
            hint=f"SHOW SOURCE SPLITS {sql_name(other.name)}",
        )
    notices = []
    states = {split: positions.states[split] for split in common}
    if not pauses_of(context.snapshot, other.id):
        notices.append(f'source "{other.name}" is running, so its positions may still change')
        offsets = {split: state.offset for split, state in states.items()}
        offsets, beyond = at_most(offsets, _grown(inspector, context, offsets))
        states = {split: replace(state, offset=offsets[split]) for split, state in states.items()}
        notices += grown_notices(beyond)
    if missing := [split for split in context.chosen if split not in positions.states]:
        notices.append(f'source "{other.name}" has no position in {shorten(missing)}')
    entries = tuple(
        RequestedOffset(
            split=SplitId(id=split, span=target.span),
            state=context.kind.encode_state(states[split]),
            span=target.span,
        )
        for split in common
    )
    return ResolvedTarget(entries=entries, notices=tuple(notices))


def _require_bounds(splits: Iterable[str], span: Span, context: InjectContext) -> None:
    missing = [split for split in splits if split not in context.upstream.splits]
    if missing and context.upstream.is_reachable:
        raise SqlError(
            SPLITS_UNKNOWN,
            f"the upstream does not list {shorten(missing)}, so no bounds are known",
            span=span,
            hint=f"{discard_unlisted(context.source.name)}; then repeat this statement",
        )
    if missing:
        raise SqlError(
            SPLITS_UNKNOWN,
            f"the upstream does not report the bounds of {shorten(missing)}",
            span=span,
            hint="write the offsets with VALUES, or wait until the upstream answers",
        )


def _bound(context: InjectContext, split: str, where: str, span: Span) -> int:
    seen = context.upstream.splits[split]
    if where == LATEST and not seen.has_end:
        name = sql_name(context.source.name)
        raise SqlError(
            INVALID_SPLIT_STATE,
            f'split "{split}" has no end, because its records are generated as they are read',
            span=span,
            hint=f"INJECT SOURCE OFFSETS {name} TO TIMESTAMP '…', or INJECT SOURCE OFFSETS {name} TO EARLIEST",
        )
    return {EARLIEST: seen.start, LATEST: _latest(context, split)}[where]


def _latest(context: InjectContext, split: str) -> int:
    """Returns the position after the last record of a split. For a split without records, the result is the source's
    position or the reported end, whichever is later. The end of such a split is not known exactly, and every position
    at or after the start is valid."""
    seen, state = context.upstream.splits[split], context.positions.states.get(split)
    if not seen.is_empty or state is None or identity_status(state, seen) != OK:
        return seen.end
    return max(seen.end, state.offset)


def _grown(inspector: Inspector, context: InjectContext, offsets: Mapping[str, int]) -> dict[str, int]:
    return grown_ends(inspector, context.source.connector, context.options, offsets, context.upstream.splits)


def _ends(context: InjectContext) -> dict[str, int]:
    """Returns the ends of the splits that have records. (The end of a split without records is not known exactly.)"""
    return {split.split: split.end for split in context.upstream.splits.values() if not split.is_empty}


def _bounds(where: str, span: Span, context: InjectContext) -> ResolvedTarget:
    _require_bounds(context.chosen, span, context)
    return _resolved({split: _bound(context, split, where, span) for split in context.chosen}, span)


def _time(inspector: Inspector, milliseconds: int, span: Span, context: InjectContext) -> ResolvedTarget:
    _require_bounds(context.chosen, span, context)
    try:
        found = inspector.upstreams.offsets_at(context.source.connector, context.options, milliseconds, context.chosen)
    except SqlError as error:
        error.span = error.span or span
        error.hint = error.hint and error.hint.replace("SOURCE_NAME", sql_name(context.source.name))
        raise
    found, _ = at_most(found, _ends(context))
    empty = [split for split in context.chosen if context.upstream.splits[split].is_empty]
    found |= {split: _latest(context, split) for split in empty if found[split] <= context.upstream.splits[split].end}
    nothing_later = [split for split in context.chosen if found[split] >= _latest(context, split)]
    said = f"these splits have no record at or after that time and are set to their ends: {shorten(nothing_later)}"
    notices = [said] if nothing_later else []
    return _resolved({split: found[split] for split in context.chosen}, span, *notices)


def _shift(target: InjectShift, context: InjectContext) -> ResolvedTarget:
    offsets = {}
    for split in context.chosen:
        state, seen = context.positions.states.get(split), context.upstream.splits.get(split)
        if state is None or (seen is not None and identity_status(state, seen) != OK):
            raise SqlError(
                INVALID_SPLIT_STATE,
                f'cannot shift split "{split}": it has no position within the offsets that the upstream has now',
                span=target.span,
                hint=f"RESET SOURCE SPLITS {sql_name(context.source.name)}, or name an offset with VALUES",
            )
        offsets[split] = state.offset + target.records
    return _resolved(offsets, target.span)
