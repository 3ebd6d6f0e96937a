"""Plans the backfill of a new or rebuilt view: determines which existing records of each source the view reads.

The commit that creates or rebuilds the view stores the result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from rw_sql.connectors.registry import connector, sends_once
from rw_sql.connectors.spec import OptionError
from rw_sql.connectors.support.startup_mode import MODE, TIME
from rw_sql.errors import INVALID_PROPERTY, NOT_SUPPORTED, UNKNOWN_PROPERTY, SqlError
from rw_sql.metastore.records import DEFAULT_GROUP, SourceRecord
from rw_sql.model.backfill_ranges import History, SplitHistory
from rw_sql.model.definitions import GROUP_OPTION, option_text
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.model.job_specs import named_splits
from rw_sql.model.offset_ranges import same_incarnation, total, with_span, within, without
from rw_sql.model.options import source_options
from rw_sql.model.parameters import MOST_PARALLELISM, NO_LIMIT
from rw_sql.model.resource_groups import written_group
from rw_sql.model.split_status import OK, identity_status
from rw_sql.model.startup import births_in_doubt, without_startup
from rw_sql.plan.checks.upstreams import require_upstream_of
from rw_sql.plan.statements.view.lost_rows import lost_ranges
from rw_sql.syntax.lexing.identifiers import spark_name, sql_name
from rw_sql.syntax.statements import ConnectionValue, CreateTable, NumberValue, Option, SecretValue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rw_sql.connectors.base import SplitState, Upstream, UpstreamSplit
    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.model.offset_ranges import LogPiece, Spans
    from rw_sql.model.options import PlannedOptions
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.ports.positions import Positions
    from rw_sql.syntax.statements import CreateMaterializedView

RATE_LIMIT = "backfill_rate_limit"
VIEW_PARALLELISM = "parallelism"
_OWN = (MODE, TIME, RATE_LIMIT, VIEW_PARALLELISM, GROUP_OPTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions:
    """The options in a view's WITH list. ``startup`` contains the startup options, which determine the start of the
    view's history. ``rate_limit`` is the maximum number of records per second that the backfill reads. ``parallelism``
    is the number of partitions of the view's state. ``group`` is the view's resource group.

    If ``startup`` is empty, the history of each source begins where the source began to read. If ``rate_limit`` is
    None, there is no limit. If ``parallelism`` is None, the warehouse's setting applies.
    """

    startup: tuple[tuple[str, str], ...] = ()
    rate_limit: int | None = None
    parallelism: int | None = None
    group: str = DEFAULT_GROUP


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedHistories:
    """The histories to store in the catalog. ``texts`` has no history for an input whose log the view reads from the
    beginning.

    ``offsets`` is the number of offsets that the backfill reads. ``notices`` are texts for the user.
    """

    texts: tuple[str, ...] = ()
    offsets: int = 0
    notices: tuple[str, ...] = ()


def view_options(statement: CreateMaterializedView) -> ViewOptions:
    """Parses the WITH list of CREATE MATERIALIZED VIEW. Raises SqlError for unsupported options."""
    startup = []
    limit = parallelism = None
    group = DEFAULT_GROUP
    for option in statement.options:
        if option.key not in _OWN:
            raise SqlError(
                UNKNOWN_PROPERTY,
                f'a materialized view has no property "{option.key}"',
                span=option.key_place,
                hint=f"omit {option.key}; the properties are {', '.join(_OWN)}",
            )
        if isinstance(option.value, SecretValue | ConnectionValue):
            raise SqlError(
                INVALID_PROPERTY,
                f'property "{option.key}" needs a value',
                span=option.value.span,
                hint=f"write the value itself: {option.key} = '…'",
            )
        if option.key == RATE_LIMIT:
            limit = _rate_limit(option)
        elif option.key == VIEW_PARALLELISM:
            parallelism = _parallelism(option)
        elif option.key == GROUP_OPTION:
            group = written_group((option,))
        else:
            startup.append((option.key, option_text(option.value).strip()))
    return ViewOptions(startup=tuple(startup), rate_limit=limit, parallelism=parallelism, group=group)


Limited = TypeVar("Limited", bound="CreateMaterializedView | CreateTable")


def with_rate_limit(statement: Limited, limit: str) -> Limited:
    """Returns the statement with the session's rate limit. A statement that has its own limit, or that creates nothing
    to backfill, is returned unchanged. If the session has no limit, the statement is returned unchanged too.

    Of the tables, only a table of a change data capture source has a backfill: its snapshot.
    """
    is_filled = not isinstance(statement, CreateTable) or statement.cdc_table is not None
    if limit == NO_LIMIT or not is_filled or any(option.key == RATE_LIMIT for option in statement.options):
        return statement
    span = statement.name.span
    option = Option(key=RATE_LIMIT, value=NumberValue(text=limit, span=span), span=span)
    return replace(statement, options=(*statement.options, option))


def _rate_limit(option: Option) -> int:
    text = option_text(option.value).strip()
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise SqlError(
            INVALID_PROPERTY,
            f'property "{RATE_LIMIT}" must be a number of records per second, not {text!r}',
            span=option.value.span,
            hint="0 reads nothing until you raise the limit; omit the property for no limit",
        )
    return int(text)


def _parallelism(option: Option) -> int:
    text = option_text(option.value).strip()
    if not text.isascii() or not text.isdecimal() or not 0 < int(text) <= MOST_PARALLELISM:
        raise SqlError(
            INVALID_PROPERTY,
            f'property "{VIEW_PARALLELISM}" must be a number of partitions from 1 to {MOST_PARALLELISM}, not {text!r}',
            span=option.value.span,
            hint="omit it to use the warehouse's value; SHOW ALL lists streaming_parallelism",
        )
    return int(text)


def startup_of(statement: CreateMaterializedView) -> dict[str, Span]:
    """The places of a view's options in the text of its statement, by key."""
    return {option.key: option.key_place for option in statement.options}


def plan_histories(
    snapshot: Snapshot,
    inspector: Inspector,
    inputs: Iterable[int],
    startup: tuple[tuple[str, str], ...],
    name: str,
    spans: Mapping[str, Span],
    span: Span,
    *,
    is_recomputed: bool = False,
    is_new: bool = False,
) -> PlannedHistories:
    """Returns the histories of a view that a statement creates or rebuilds. ``inputs`` are the ids of the view's
    inputs.

    ``startup`` are the view's own startup options, and ``spans`` are the places of these options in the statement.
    ``name`` is the name of the view, and ``span`` is the place of this name. If the log of an input contains exactly
    the rows that the view needs, the input has no history, and the view reads the log from the beginning.
    ``is_recomputed`` is True if the view reads all rows of an input's log again when another input changes. Such a view
    has no histories. ``is_new`` is True if the statement creates the view, and False if it rebuilds the view.

    Raises SqlError NOT_SUPPORTED if a new view that is recomputed has startup options.
    """
    sources = [record for record in map(snapshot.get, inputs) if isinstance(record, SourceRecord)]
    given = dict(startup)
    if given and not sources:
        key = next(iter(given))
        raise SqlError(
            INVALID_PROPERTY,
            f'property "{key}" has no effect, because materialized view "{name}" reads no source',
            span=spans.get(key, span),
            hint=f"omit {key}",
        )
    texts: list[str] = []
    notices: list[str] = []
    offsets = 0
    for source in sources:
        if not source.is_shared:
            continue
        if sends_once(source.connector):
            continue  # The upstream sends each change only once, so the log contains all changes that can be read.
        if is_recomputed and given:
            if is_new:
                raise _reads_the_log(name, source, next(iter(given)), spans, span)
            notices.append(_no_effect(name, source, next(iter(given))))
            continue
        history, lost = _plan_history(snapshot, inspector, source, given, spans, span)
        if is_recomputed:
            if history is not None:
                notices.append(_of_the_log(source))
            continue
        if lost:
            notices.append(
                f"{lost} records from the history of {source.name} exist neither in its log nor in the upstream any "
                "more"
            )
        if history is not None:
            texts.append(history.to_text())
            offsets += history.offsets
    return PlannedHistories(texts=tuple(texts), offsets=offsets, notices=tuple(notices))


def _reads_the_log(name: str, source: SourceRecord, key: str, spans: Mapping[str, Span], span: Span) -> SqlError:
    return SqlError(
        NOT_SUPPORTED,
        _no_effect(name, source, key),
        span=spans.get(key, span),
        hint=f"CREATE MATERIALIZED VIEW {sql_name(source.name + '_rows')} WITH (…) AS SELECT * FROM "
        f"{spark_name(source.name)} with these options, and query {spark_name(source.name + '_rows')}",
    )


def _no_effect(name: str, source: SourceRecord, key: str) -> str:
    return (
        f'property "{key}" has no effect: materialized view "{name}" is recomputed from all rows in the log of source '
        f'"{source.name}"'
    )


def _of_the_log(source: SourceRecord) -> str:
    rows = spark_name(f"{source.name}_rows")
    return (
        f"the view is recomputed from the rows in the log of {source.name}, which are not exactly the records of the "
        "source: records that were read again occur twice, and the oldest may be missing; to get each record once: "
        f"CREATE MATERIALIZED VIEW {sql_name(source.name + '_rows')} AS SELECT * FROM {spark_name(source.name)}, and "
        f"query {rows}"
    )


def _plan_history(
    snapshot: Snapshot,
    inspector: Inspector,
    source: SourceRecord,
    given: Mapping[str, str],
    spans: Mapping[str, Span],
    span: Span,
) -> tuple[History | None, int]:
    options = source_options(snapshot, source)
    _check_startup(source, options, given, spans, span)
    positions = inspector.positions.with_log(source.id)
    fragment = ingest_fragment(source.id)
    assigned = [
        split for split in named_splits(snapshot, source, snapshot.splits(fragment)) if split in positions.states
    ]
    pieces = {split: _own(positions.pieces.get(split, ()), positions.states[split]) for split in assigned}
    upstream: Upstream | None = None
    if given:
        upstream = inspector.upstreams.look(source.connector, options)
        require_upstream_of(source, upstream, span)
    starts = _starts(inspector, source, options, given, positions, pieces, upstream)
    stored = snapshot.states(fragment)
    splits = [
        SplitHistory(
            split=split,
            start=starts[split],
            end=max(starts[split], positions.states[split].offset),
            cluster=positions.states[split].cluster,
            incarnation=positions.states[split].incarnation,
            since=stored[split].epoch,
            is_guarded=starts[split] > positions.states[split].offset
            or (positions.reader_epoch is not None and positions.reader_epoch < stored[split].epoch),
        )
        for split in assigned
    ]
    missing = {split.split: found for split in splits if (found := without(split.wanted, _spans(pieces[split.split])))}
    if missing and upstream is None:
        upstream = inspector.upstreams.look(source.connector, options)
    splits, lost = _without_lost(
        inspector, source, options, positions, splits, missing, upstream, is_started=bool(given)
    )
    if not missing and is_plain(positions, splits):
        return None, 0
    return History(source_id=source.id, log_version=positions.log_version, splits=tuple(splits)), lost


def _without_lost(
    inspector: Inspector,
    source: SourceRecord,
    options: PlannedOptions,
    positions: Positions,
    splits: list[SplitHistory],
    missing: Mapping[str, Spans],
    upstream: Upstream | None,
    *,
    is_started: bool,
) -> tuple[list[SplitHistory], int]:
    """Returns the splits, and the number of records that no longer exist. The field ``term`` of a returned split is the
    result of :func:`_term`. The field ``gone`` contains the offsets whose records the view cannot read or must not
    read.

    ``missing`` are the offsets without rows in the log. If the upstream has lost the record of a row that was deleted
    from the log, the upstream may have another record at the same offset. The other record is not part of the history,
    because the source did not read it. ``is_started`` is True if the view has a startup mode of its own. If this mode
    begins at or after the first lost offset of a split, the log's rows from lost records are older than the view's
    start, so the view does not read them.
    """
    if upstream is None:
        return [replace(split, term=positions.states[split.split].term) for split in splits], 0
    gone: dict[str, Spans] = {}
    if upstream.is_reachable:
        gone = {split: _gone(spans_, positions.states[split], upstream) for split, spans_ in missing.items()}
    readings = {
        split: _own(found, positions.states[split])
        for split, found in positions.readings.items()
        if split in positions.states
    }
    wanted = {split.split: split.wanted if is_started else missing.get(split.split, ()) for split in splits}
    starts = {split.split: split.start for split in splits}
    too_early: dict[str, Spans] = {}
    for found in lost_ranges(inspector, source, options, readings, wanted, upstream):
        if is_started and starts[found.split] >= found.cut:
            too_early[found.split] = with_span(too_early.get(found.split, ()), found.start, found.end)
        else:
            for start, end in within(missing.get(found.split, ()), found.start, found.end):
                gone[found.split] = with_span(gone.get(found.split, ()), start, end)
    lost = sum(total(without(spans_, too_early.get(split, ()))) for split, spans_ in gone.items())
    for split, spans_ in too_early.items():
        for start, end in spans_:
            gone[split] = with_span(gone.get(split, ()), start, end)
    return [
        replace(split, gone=gone.get(split.split, ()), term=_term(positions.states[split.split], upstream))
        for split in splits
    ], lost


def _check_startup(
    source: SourceRecord, options: PlannedOptions, given: Mapping[str, str], spans: Mapping[str, Span], span: Span
) -> None:
    """Raises SqlError if a source's connector does not support the view's startup options ``given``."""
    if not given:
        return
    kind = connector(source.connector)
    for key in given:
        if kind.spec.option(key) is None:
            raise SqlError(
                INVALID_PROPERTY,
                f'property "{key}" has no effect for source "{source.name}", because its connector has no such option',
                span=spans.get(key, span),
                hint=f"omit {key}",
            )
    try:
        kind.check_options({**without_startup(options), **given})
    except OptionError as error:
        error.span = spans.get(error.key, span)
        raise


def _own(pieces: tuple[LogPiece, ...], state: SplitState) -> tuple[LogPiece, ...]:
    """The pieces of the log that belong to a split's current incarnation."""
    return tuple(
        piece
        for piece in pieces
        if same_incarnation(piece.cluster, piece.incarnation, state.cluster, state.incarnation)
    )


def _spans(pieces: tuple[LogPiece, ...]) -> Spans:
    return tuple(sorted((piece.start, piece.end) for piece in pieces))


def _starts(
    inspector: Inspector,
    source: SourceRecord,
    options: PlannedOptions,
    given: Mapping[str, str],
    positions: Positions,
    pieces: Mapping[str, tuple[LogPiece, ...]],
    upstream: Upstream | None,
) -> dict[str, int]:
    """The offset at which each split's history begins."""
    # The offsets at which the source began to read. They come from the startup mode, or from a statement that set
    # positions before the source had read a record.
    began = {
        split: min([positions.states[split].offset, *(piece.start for piece in of_split)])
        for split, of_split in pieces.items()
    }
    if upstream is None:
        return began
    kind = connector(source.connector)
    resolved = {**without_startup(options), **given}
    seen = {
        split: upstream.splits[split]
        for split in began
        if split in upstream.splits and identity_status(positions.states[split], upstream.splits[split]) == OK
    }
    at_time = kind.startup_time(resolved)
    if at_time is not None:
        times = inspector.upstreams.offsets_at(source.connector, options, at_time, tuple(seen)) if seen else {}
        return {**began, **{split: kind.start_offset(resolved, seen[split], times) for split in seen}}
    if resolved.get(MODE, "earliest").lower() == "latest":
        in_doubt = births_in_doubt(source, seen)
        cuts = inspector.upstreams.cut_logs(source.connector, options, in_doubt) if in_doubt else {}
        return _latest(source, began, seen, positions.states, cuts)
    return {
        split: min(at, kind.start_offset(resolved, seen[split], {})) if split in seen else at
        for split, at in began.items()
    }


def _latest(
    source: SourceRecord,
    began: Mapping[str, int],
    seen: Mapping[str, UpstreamSplit],
    positions: Mapping[str, SplitState],
    cuts: Mapping[str, int],
) -> dict[str, int]:
    """Returns, for each split, the offset at which reading begins with the startup mode ``latest``.

    If the split existed at CREATE SOURCE, the result is the split's end at that time or, if the upstream has since lost
    records before this end, the first lost offset. For a partition that was added to a topic after CREATE SOURCE, the
    result is the offset of the partition's first record. For a topic to which the source was moved, the result is the
    offset at which the source began to read.
    """
    born = History.from_text(source.birth).splits if source.birth else ()
    ends = {split.split: split for split in born}
    kind = connector(source.connector)
    lives = {(kind.split_topic(split.split), split.cluster, split.incarnation) for split in born}
    vague = {known for known in lives if None in known}
    starts = dict(began)
    for split, now in seen.items():
        then, topic = ends.get(split), kind.split_topic(split)
        # The upstream may no longer report the identity that the position has.
        life = (now.cluster or positions[split].cluster, now.incarnation or positions[split].incarnation)
        if then is not None:
            if same_incarnation(then.cluster, then.incarnation, *life):
                starts[split] = cuts.get(split, then.start)
        elif (topic, *life) in lives or any(
            known == topic and same_incarnation(cluster, incarnation, *life)
            for known, cluster, incarnation in (lives if None in life else vague)
        ):
            starts[split] = min(began[split], now.start)
    return starts


def is_plain(positions: Positions, splits: Iterable[SplitHistory]) -> bool:
    """True if a log contains each offset of the splits' histories once, and contains no other rows.

    In this case, a view needs no backfill. It reads the log from the beginning: first the history, then the new rows.
    """
    if not positions.is_complete or positions.is_trimmed:
        return False
    by_split = {split.split: split for split in splits}
    if (
        any(split.is_guarded or split.gone for split in by_split.values())
        or not positions.pieces.keys() <= by_split.keys()
    ):
        return False
    for name, split in by_split.items():
        pieces = positions.pieces.get(name, ())
        if len(_own(pieces, positions.states[name])) != len(pieces):
            return False
        at = split.start
        for start, end in _spans(pieces):
            if start != at:
                return False
            at = end
        if at < split.end:
            return False
    return True


def _term(state: SplitState, upstream: Upstream) -> int | None:
    """Returns a term (Kafka: leader epoch) during which the upstream's log of the split contained all records before
    the position ``state``.

    Returns None if no such term is known.
    """
    seen = upstream.splits.get(state.split)
    if state.term is not None or seen is None:
        return state.term
    return seen.term if identity_status(state, seen) == OK and seen.end >= state.offset else None


def _gone(missing: Spans, state: SplitState, upstream: Upstream) -> Spans:
    """The offsets that are missing from both the log and the upstream."""
    seen = upstream.splits.get(state.split)
    if seen is None or identity_status(state, seen) != OK:
        return missing
    return without(missing, within(missing, seen.start, seen.end))
