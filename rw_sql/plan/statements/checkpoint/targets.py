"""Resolves the target of INJECT CHECKPOINT OFFSETS to a position for each split. A position always refers to the next
record or version to read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from rw_sql.checkpoints.positions import DELTA, FILE, KAFKA, MAX_POSITION
from rw_sql.connectors.support import split_state_json as codec
from rw_sql.errors import (
    CANNOT_MOVE_SOURCE,
    INVALID_DEFINITION,
    INVALID_SPLIT_STATE,
    SPLITS_UNKNOWN,
    UPSTREAM_MISSING,
    SqlError,
)
from rw_sql.model.object_lookup import find_source
from rw_sql.model.offset_files import EARLIEST, LATEST
from rw_sql.model.source_readers import only_fragment
from rw_sql.plan.statements.checkpoint.context import NO_ANSWER, NO_BROKERS, NO_TABLE, resolve_all
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
from rw_sql.syntax.lexing.identifiers import sql_name
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

    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.statements.checkpoint.context import InjectContext, Target
    from rw_sql.syntax.statements import InjectCheckpointOffsets

_SPARK_NAMES = {DELTA: "reservoirVersion", FILE: "logOffset", KAFKA: "offset"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPosition:
    """A split and its new position. ``span`` is the location of the new position in the statement's text."""

    target: Target
    position: int
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedTarget:
    """The new position of each split, and notices for the user."""

    moved: tuple[NewPosition, ...]
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One entry of VALUES or of a file. The entry consists of a split and the split's position as text (a number, or a
    state as JSON).

    If ``text`` is None, the position is ``bound``, which is the start or the end of the split in the upstream.
    """

    split: SplitId
    text: str | None
    span: Span
    bound: str = EARLIEST


def read_written(statement: InjectCheckpointOffsets, inspector: Inspector) -> tuple[Written, ...]:
    """The entries of VALUES or of a file; empty for other targets. Raises SqlError."""
    target = statement.target
    if isinstance(target, InjectValues):
        return _values(statement, target)
    if isinstance(target, InjectFromFile):
        return _file(inspector, target)
    return ()


def read_target(
    statement: InjectCheckpointOffsets,
    snapshot: Snapshot,
    inspector: Inspector,
    context: InjectContext,
    written: tuple[Written, ...],
) -> ResolvedTarget:
    """Resolves the target. ``written`` are the target's entries if the target is VALUES or a file. Raises SqlError at
    the first error."""
    target = statement.target
    require_offsets_written(statement)
    if isinstance(target, InjectValues | InjectFromFile):
        return _written(statement, context, written)
    chosen = resolve_all(context, statement.splits) or context.targets()
    match target:
        case InjectFromGroup():
            return _group(inspector, target, context, chosen)
        case InjectFromCheckpoint():
            return _checkpoint(inspector, target, chosen)
        case InjectFromSource():
            return _source(target, snapshot, inspector, chosen)
        case InjectTo():
            return _all(
                chosen, {each: _bound(context, each, target.where, target.span) for each in chosen}, target.span
            )
        case InjectToOffset():
            _require_one_kind(chosen, target.span)
            return _all(chosen, dict.fromkeys(chosen, target.offset), target.span)
        case InjectShift():
            _require_one_kind(chosen, target.span)
            shifted = {each: (each.position or 0) + target.records for each in chosen}
            return _all(chosen, shifted, target.span)
        case InjectToTimestamp() | InjectBack():
            return _at(inspector, context, chosen, moment_of(inspector, target), target.span)
        case _:
            assert_never(target)


def _all(
    chosen: Iterable[Target], at: Mapping[Target, int], span: Span, notices: tuple[str, ...] = ()
) -> ResolvedTarget:
    return ResolvedTarget(
        moved=tuple(NewPosition(target=each, position=at[each], span=span) for each in chosen if each in at),
        notices=notices,
    )


def _values(statement: InjectCheckpointOffsets, target: InjectValues) -> tuple[Written, ...]:
    require_no_split_list(statement)
    return tuple(
        Written(
            split=entry.split,
            text=None if isinstance(entry.value, NullValue) else entry.value.text,
            span=entry.value.span,
        )
        for entry in target.entries
    )


def _file(inspector: Inspector, target: InjectFromFile) -> tuple[Written, ...]:
    written = offsets_in_file(inspector, target)
    return tuple(
        Written(
            split=SplitId(id=entry.split, span=target.span),
            text=entry.state,
            span=target.span,
            bound=entry.bound or EARLIEST,
        )
        for entry in written.entries
    )


def _written(
    statement: InjectCheckpointOffsets, context: InjectContext, entries: tuple[Written, ...]
) -> ResolvedTarget:
    """Converts the entries of VALUES or of a file to positions. Entries for splits that FOR SPLITS does not select are
    left out."""
    targets = resolve_all(context, [entry.split for entry in entries])
    chosen = resolve_all(context, statement.splits)
    moved = []
    for target, entry in zip(targets, entries, strict=True):
        if chosen and target not in chosen:
            continue
        if entry.text is None:
            position = _bound(context, target, entry.bound, entry.span)
        else:
            position = _number(context, target, entry)
            position += statement.convention == "last_seen"
        moved.append(NewPosition(target=target, position=position, span=entry.span))
    return ResolvedTarget(moved=tuple(moved))


def _number(context: InjectContext, target: Target, entry: Written) -> int:
    """Parses a position, which is a number or a state as JSON. The JSON is in rw_sql's form, or in Spark's form for
    this kind of source."""
    text = (entry.text or "").strip()
    if text.lstrip("+-").isdecimal() or target.kind == KAFKA:
        try:
            return codec.decode_state(target.id, text).offset
        except SqlError as error:
            error.span = error.span or entry.span
            raise
    try:
        fields = json.loads(text)
        number = fields[_SPARK_NAMES[target.kind]]
    except (ValueError, KeyError, TypeError) as error:
        raise _no_position(target, entry, f"{text!r} is not a position") from error
    if isinstance(number, bool) or not isinstance(number, int) or not -1 <= number < MAX_POSITION:
        raise _no_position(target, entry, f"{number!r} is not a whole number")
    if target.kind == FILE:
        return number + 1
    table = context.checkpoint.source(target.source).table
    if fields.get("reservoirId", table) != table:
        raise _no_position(target, entry, f"it is a position in table {fields['reservoirId']}, not in {table}")
    if fields.get("isStartingVersion") or fields.get("index", -1) >= 0:
        raise _no_position(target, entry, "a position can only be the beginning of a version")
    return int(number)


def _no_position(target: Target, entry: Written, what: str) -> SqlError:
    return SqlError(
        INVALID_SPLIT_STATE,
        f'invalid state of split "{target.id}": {what}',
        span=entry.span,
        hint="give the next position to read, as a number",
    )


def _bound(context: InjectContext, target: Target, where: str, span: Span) -> int:
    bounds = context.bounds(target)
    if bounds is None:
        doubt = context.doubt(target)
        hints = {
            NO_BROKERS: "name the brokers: WITH (properties.bootstrap.server = 'host:9092'), or --bootstrap",
            NO_TABLE: "name the table: WITH (table = '/path/of/the/table'), or --table",
            NO_ANSWER: "run the statement again once the brokers answer",
        }
        raise SqlError(
            SPLITS_UNKNOWN,
            f'the first and the last offset of split "{target.id}" in its upstream are unknown ({doubt})',
            span=span,
            hint=hints.get(doubt, "name the other splits in FOR SPLITS, without this split"),
        )
    return bounds[{EARLIEST: 0, LATEST: 1}[where]]


def _ends(context: InjectContext, targets: Iterable[Target]) -> dict[Target, int]:
    """The upstream's end for each split in ``targets`` whose bounds are known."""
    return {each: bounds[1] for each in targets if (bounds := context.bounds(each)) is not None}


def _require_one_kind(chosen: tuple[Target, ...], span: Span) -> None:
    kinds = sorted({target.kind for target in chosen})
    if len(kinds) > 1:
        raise SqlError(
            INVALID_DEFINITION,
            f"one number cannot be a position of sources of different kinds: {', '.join(kinds)}",
            span=span,
            hint="name the splits in FOR SPLITS",
        )


def _group(
    inspector: Inspector, target: InjectFromGroup, context: InjectContext, chosen: tuple[Target, ...]
) -> ResolvedTarget:
    kafka = tuple(each for each in chosen if each.kind == KAFKA)
    if not kafka:
        raise SqlError(
            CANNOT_MOVE_SOURCE,
            "a consumer group has positions in Kafka, but none of these splits belongs to a Kafka source",
            span=target.span,
            hint="name the Kafka source's splits in FOR SPLITS",
        )
    if context.upstream is None:
        _bound(context, kafka[0], EARLIEST, target.span)
    try:
        locals_ = tuple(dict.fromkeys(each.local for each in kafka))
        answer = inspector.upstreams.group_offsets("kafka", context.options, target.group, locals_)
    except SqlError as error:
        error.span = error.span or target.span
        raise
    found = {each: answer.offsets[each.local] for each in kafka if each.local in answer.offsets}
    if not found:
        raise SqlError(
            UPSTREAM_MISSING,
            f'consumer group "{target.group}" has committed no offsets for these splits',
            span=target.span,
            hint="kafka-consumer-groups --list names all groups",
        )
    notices = members_notices(target.group, answer.members)
    if answer.members:
        seen = {} if context.upstream is None else context.upstream.splits
        grown = grown_ends(
            inspector, "kafka", context.options, {each.local: offset for each, offset in found.items()}, seen
        )
        found, beyond = at_most(found, {each: grown[each.local] for each in found if each.local in grown})
        notices += grown_notices(each.id for each in beyond)
    return _all(chosen, found, target.span, tuple(notices))


def _checkpoint(inspector: Inspector, target: InjectFromCheckpoint, chosen: tuple[Target, ...]) -> ResolvedTarget:
    try:
        other = inspector.checkpoints.look(target.path).checkpoint
    except SqlError as error:
        error.span = error.span or target.span
        raise
    kinds = {split: other.source(split.source).kind for split in other.splits}
    by_source = {(split.source, split.local, kind): split.position for split, kind in kinds.items()}
    by_name = {(split.id, kind): split.position for split, kind in kinds.items()}
    topics = {(split.source, _topic(split.local), kind) for split, kind in kinds.items()}
    has_one = len({split.source for split, kind in kinds.items() if kind == KAFKA}) == 1
    found = {}
    for each in chosen:
        at = by_source.get((each.source, each.local, each.kind))
        # If the same source of the other checkpoint reads the topic, a split of the same name belongs to another
        # source.
        if at is None and (each.source, _topic(each.local), each.kind) not in topics:
            at = by_name.get((each.id, each.kind))
            # If the other checkpoint has only one Kafka source, a new split can have a longer name here than in that
            # checkpoint.
            if at is None and each.position is None and has_one:
                at = by_name.get((each.local, each.kind))
        if at is not None:
            found[each] = at
    if not found:
        listed = ", ".join(split.id for split in other.splits[:12]) or "none"
        raise SqlError(
            SPLITS_UNKNOWN,
            f"checkpoint {target.path!r} has no position for any split that the statement moves",
            span=target.span,
            hint=f"name splits of that checkpoint: {listed}",
        )
    return _all(chosen, found, target.span, (f"taken from batch {other.batch} of {target.path}",))


def _topic(local: str) -> str:
    return local.rpartition(":")[0]


def _source(
    target: InjectFromSource, snapshot: Snapshot, inspector: Inspector, chosen: tuple[Target, ...]
) -> ResolvedTarget:
    source = find_source(snapshot, target.source)
    positions = inspector.positions.of(source.id, only_fragment(snapshot, source, target.span))
    found = {
        each: positions.states[each.local].offset
        for each in chosen
        if each.kind == source.connector and each.local in positions.states
    }
    if not found:
        raise SqlError(
            SPLITS_UNKNOWN,
            f'source "{source.name}" has no position in any of these splits',
            span=target.span,
            hint=f"SHOW SOURCE SPLITS {sql_name(source.name)}",
        )
    return _all(chosen, found, target.span)


def _at(
    inspector: Inspector, context: InjectContext, chosen: tuple[Target, ...], milliseconds: int, span: Span
) -> ResolvedTarget:
    """The position of the first record (Kafka) or the first version (Delta) at or after the given time."""
    found: dict[Target, int] = {}
    kafka = [each for each in chosen if each.kind == KAFKA]
    for each in chosen:
        _bound(context, each, LATEST, span)
        if each.kind == FILE:
            raise SqlError(
                CANNOT_MOVE_SOURCE,
                f'split "{each.id}" belongs to a file source, which has no times',
                span=span,
                hint="give the number of a list of files; rw-sql checkpoint show prints the files of each list",
            )
        if each.kind == DELTA:
            found[each] = inspector.checkpoints.version_at(context.tables[each.source], milliseconds)
    if kafka:
        locals_ = tuple(dict.fromkeys(each.local for each in kafka))
        try:
            at = inspector.upstreams.offsets_at("kafka", context.options, milliseconds, locals_)
        except SqlError as error:
            error.span = error.span or span
            raise
        found |= {each: at[each.local] for each in kafka}
    found, _ = at_most(found, _ends(context, found))
    late = [each.id for each in chosen if found[each] == _bound(context, each, LATEST, span)]
    said = f"these splits have no record at or after that time and are set to their ends: {', '.join(late[:8])}"
    notices = (said,) if late else ()
    return _all(chosen, found, span, notices)
