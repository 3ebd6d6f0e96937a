"""Determines which splits a source reads, and at which position the source begins to read each new split. A position is
the offset of the next record to read."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from rw_sql.model.options import visible
from rw_sql.model.split_status import OK, at_offset, beginning, identity_status

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from rw_sql.connectors.base import Connector, SplitState, Upstream, UpstreamSplit
    from rw_sql.model.options import PlannedOptions
    from rw_sql.plan.ports.inspector import Inspector


def startup_states(
    inspector: Inspector, kind: Connector, connector: str, options: PlannedOptions, splits: Iterable[UpstreamSplit]
) -> dict[str, SplitState]:
    """Returns the initial positions of splits that have no stored position. Looks up the offsets to which
    ``scan.startup.mode`` refers at present."""
    resolved = visible(options)
    wanted = list(splits)
    at_time = kind.startup_time(resolved)
    times: dict[str, int] = {}
    if at_time is not None and wanted:
        times = inspector.upstreams.offsets_at(connector, options, at_time, tuple(split.split for split in wanted))
    return {split.split: at_offset(split, kind.start_offset(resolved, split, times)) for split in wanted}


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """The result of discovery. ``assigned`` are the splits to read, ``states`` maps splits to their positions, and
    ``fresh`` maps only the new splits to their positions."""

    assigned: tuple[str, ...]
    states: Mapping[str, SplitState]
    fresh: Mapping[str, SplitState]


_ANY = "*"


def _read_as(kind: Connector, split: UpstreamSplit) -> Iterator[tuple[str, str | None, str | None]]:
    """Yields the keys (topic, cluster, incarnation) of a split. By these keys, :func:`discover` determines whether the
    source already reads another split of this topic.

    An unknown cluster or incarnation counts as equal to any other, because the brokers may have started or stopped
    reporting these values since the position was stored.
    """
    return product(
        (kind.split_topic(split.split),),
        (split.cluster, None) if split.cluster else (_ANY,),
        (split.incarnation, None) if split.incarnation else (_ANY,),
    )


def discover(
    inspector: Inspector,
    kind: Connector,
    connector: str,
    options: PlannedOptions,
    upstream: Upstream,
    known: Mapping[str, SplitState],
    *,
    forget: Collection[str] = (),
    forgotten: Collection[str] = (),
) -> Discovery:
    """Assigns every split of the upstream to the source.

    A split keeps its stored position if the position was stored for this incarnation of the split. Splits in ``forget``
    are an exception, because the statement discards their positions. If a partition was added to a topic that the
    source already reads, the source begins at the partition's first record. Every other split begins at the position
    that ``scan.startup.mode`` specifies. ``forgotten`` are splits whose positions an earlier statement discarded.
    Forgotten splits do not count as added partitions.
    """
    keeps: dict[str, SplitState] = {}
    added: dict[str, SplitState] = {}
    unstarted: list[UpstreamSplit] = []
    read_topics = {
        key
        for state in known.values()
        if state.split not in forget
        for key in product((kind.split_topic(state.split),), (state.cluster, _ANY), (state.incarnation, _ANY))
    }
    for split in upstream.splits.values():
        state = known.get(split.split)
        if state is not None and split.split not in forget and identity_status(state, split) == OK:
            keeps[split.split] = state
        elif state is None and split.split not in forgotten and not read_topics.isdisjoint(_read_as(kind, split)):
            added[split.split] = beginning(split)
        else:
            unstarted.append(split)
    started = startup_states(inspector, kind, connector, options, unstarted)
    fresh = {**added, **started}
    return Discovery(assigned=tuple(sorted(upstream.splits)), states={**keeps, **fresh}, fresh=fresh)
