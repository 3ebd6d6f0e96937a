"""Locates a backfill's staging table, and checks that the records that the backfill still has to read are available."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rw_sql.connectors.base import SplitState, TermConnector
from rw_sql.connectors.registry import connector
from rw_sql.metastore.records import SourceRecord
from rw_sql.model.backfill_ranges import History
from rw_sql.model.split_status import EXPIRED, OK, identity_status
from rw_sql.runtime.backfill.remaining import plan_remaining
from rw_sql.runtime.backfill.staging_table import held_spans, is_whole
from rw_sql.runtime.jobs.log_terms import DIVERGED
from rw_sql.runtime.jobs.startable import require_usable
from rw_sql.runtime.support.failures import StalledError, cause_line
from rw_sql.syntax.lexing.identifiers import sql_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.base import Connector, Upstream
    from rw_sql.model.backfill_ranges import BackfillChunk, SplitHistory
    from rw_sql.model.job_specs import ViewSpec
    from rw_sql.model.view_inputs import ViewInput
    from rw_sql.runtime.jobs.context import Context

MISSING = "MISSING"


def history_path(context: Context, spec: ViewSpec, given: ViewInput) -> str:
    """The path of the staging table for one input of a view."""
    return context.warehouse.history(spec.view_id, spec.generation, given.id)


def filled_path(context: Context, spec: ViewSpec, given: ViewInput, is_direct: bool) -> str:
    """Returns the path of the table to which the backfill of one input writes. If ``is_direct`` is True, this is the
    view's own table; otherwise, it is the input's staging table."""
    if is_direct:
        return context.warehouse.data(spec.view_id, spec.generation)
    return history_path(context, spec, given)


def require_history(context: Context, spec: ViewSpec, *, is_direct: bool) -> None:
    """Raises StalledError, with a remedy, if the upstream cannot provide the records that a view's backfill still has
    to read.

    Callers make this check before they claim a run. Without this check, each failed attempt to start the backfill while
    the upstream is unavailable would add a run and a fence.
    """
    snapshot = context.metastore.snapshot()
    for given in spec.inputs:
        source = snapshot.get(given.id)
        path = filled_path(context, spec, given, is_direct)
        if not given.history or not isinstance(source, SourceRecord) or is_whole(context.warehouse, path):
            continue
        history = History.from_text(given.history)
        options = partial(context.options_of, source, snapshot)
        _, planned = plan_remaining(context, source, history, held_spans(context.warehouse, path), options)
        if left := planned.from_upstream:
            upstream = connector(source.connector).look(options())
            require_readable(spec.name, {split.split: split for split in history.splits}, upstream, left)


def require_readable(
    name: str, splits: Mapping[str, SplitHistory], upstream: Upstream, portions: tuple[BackfillChunk, ...]
) -> None:
    """Raises StalledError, with a remedy, if the upstream no longer has some of the offsets of ``portions``."""
    require_usable(upstream)
    again = f"REBUILD MATERIALIZED VIEW {sql_name(name)} starts again with the existing records"
    lost: dict[str, int] = {}
    for portion in portions:
        seen = upstream.splits.get(portion.split)
        status = MISSING if seen is None else identity_status(state_at(splits[portion.split], portion.start), seen)
        if seen is None or status != OK:
            raise StalledError(f"{status} {portion.split}, whose backfill is not complete: {again}")
        if seen.has_lost(portion.start):
            lost[portion.split] = lost.get(portion.split, 0) + min(seen.start, portion.end) - portion.start
    if lost:
        named = ", ".join(list(lost)[:8])
        raise StalledError(f"{EXPIRED} {named}, {sum(lost.values())} records of history: {again}", is_final=True)


def require_same_log(
    name: str,
    kind: Connector,
    options: Mapping[str, str],
    portions: tuple[BackfillChunk, ...],
    known: Mapping[str, int],
    now: Mapping[str, int] | None = None,
) -> None:
    """Raises StalledError, with a remedy, if a split's log has lost the records at some of the offsets of ``portions``,
    and may have other records at these offsets now.

    ``known`` maps a split to a term (Kafka: leader epoch) in which its log had the records. ``now`` maps splits to
    their current terms. If ``now`` is None, the current terms are requested from the upstream. A split that is missing
    in ``known`` is not checked.
    """
    if not isinstance(kind, TermConnector):
        return
    if now is None:
        try:
            now = kind.terms(options, [portion.split for portion in portions])
        except OSError as error:
            raise StalledError(f"UNREACHABLE {cause_line(str(error))}") from error
    ends = {
        portion.split: SplitState(split=portion.split, offset=portion.end, term=known[portion.split])
        for portion in portions
        if portion.split in known and now.get(portion.split, -1) > known[portion.split]
    }
    try:
        lost = kind.diverged(options, ends) if ends else {}
    except OSError as error:
        raise StalledError(f"UNREACHABLE {cause_line(str(error))}") from error
    if lost:
        shown = sorted(lost)[:8]
        cuts = ", ".join(f"{split} at {lost[split]}" for split in shown)
        raise StalledError(
            f"{DIVERGED} {cuts}: the log was cut at this offset before its backfill was complete, and has other "
            f"records from there on: REBUILD MATERIALIZED VIEW {sql_name(name)} starts again with the existing records",
            is_final=True,
        )


def state_at(split: SplitHistory, offset: int) -> SplitState:
    """A split state at the given offset, with the cluster and incarnation that the history recorded."""
    return SplitState(split=split.split, offset=offset, cluster=split.cluster, incarnation=split.incarnation)
