"""Compares splits in the catalog with the upstream. SHOW SOURCE SPLITS shows the results in the column STATUS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.ranged import RangedConnector
from rw_sql.connectors.support.incarnations import is_same_incarnation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.base import Connector, Upstream, UpstreamSplit

OK = "OK"
NEW = "NEW"
ORPHAN = "ORPHAN"
EXPIRED = "EXPIRED"
AHEAD = "AHEAD"
RECREATED = "RECREATED"
OTHER_CLUSTER = "OTHER_CLUSTER"
UNREADABLE = "UNREADABLE"
UNKNOWN = "UNKNOWN"


def identity_status(state: SplitState, upstream: UpstreamSplit | SplitState) -> str:
    """Compares the identity in a split state with the identity of the upstream split, or with that of another split
    state. Returns OK, OTHER_CLUSTER or RECREATED.

    An unknown cluster or incarnation counts as equal to any other.
    """
    if state.cluster and upstream.cluster and state.cluster != upstream.cluster:
        return OTHER_CLUSTER
    known, seen = state.incarnation, upstream.incarnation
    return RECREATED if known and seen and not is_same_incarnation(known, seen) else OK


def is_known_same(state: SplitState, upstream: UpstreamSplit | SplitState) -> bool:
    """True if :func:`identity_status` is OK for ``state`` and ``upstream``, and this result is certain, because the
    cluster is known for both or the incarnation is known for both."""
    return (
        bool((state.cluster and upstream.cluster) or (state.incarnation and upstream.incarnation))
        and identity_status(state, upstream) == OK
    )


def is_emptied(upstream: UpstreamSplit) -> bool:
    """True if the upstream has removed all records of the split, and none of them can be read again. An empty split
    without an incarnation does not count: the upstream may hide its records, for example while the split has no
    leader."""
    return upstream.is_empty and (upstream.has_open_start or upstream.incarnation is not None)


def split_status(state: SplitState | None, upstream: UpstreamSplit | None) -> str:
    """The status of a split that SHOW SOURCE SPLITS shows. ``state`` is None for a split without a position, and
    ``upstream`` is None for a split that the upstream lacks."""
    if upstream is None:
        return ORPHAN
    if state is None:
        return NEW
    identity = identity_status(state, upstream)
    if identity != OK:
        return identity
    if upstream.has_lost(state.offset):
        return EXPIRED
    return AHEAD if state.offset > upstream.end + upstream.slack and not upstream.is_empty else OK


def continuing_status(kind: Connector, state: SplitState | None, upstream: UpstreamSplit | None) -> str:
    """The status that determines whether a source can continue at the position ``state`` of a split.

    The result differs from that of :func:`split_status` only for a split that was read completely and then deleted in
    the upstream. For such a split, the result is OK.
    """
    return OK if upstream is None and is_finished(kind, state) else split_status(state, upstream)


def is_finished(kind: Connector | None, state: SplitState | None) -> bool:
    """True if the position ``state`` shows that the split was read completely. The result is always False for a
    connector whose splits have no end."""
    return state is not None and isinstance(kind, RangedConnector) and kind.is_finished(state)


def still_asked(
    kind: Connector, splits: tuple[str, ...], states: Mapping[str, SplitState], upstream: Upstream
) -> tuple[str, ...]:
    """Returns the splits that the source still needs in the upstream. These are all splits except those that were read
    completely and then deleted."""
    return tuple(split for split in splits if split in upstream.splits or not is_finished(kind, states.get(split)))


def at_offset(upstream: UpstreamSplit, offset: int) -> SplitState:
    """Returns the position ``offset`` in a split, with the identity that the upstream now reports for the split.

    A position up to the end of the split's log gets the split's current term. A position after the end gets no term,
    because the records between the end and the position do not exist yet, and may be written in a later term.
    """
    return SplitState(
        split=upstream.split,
        offset=offset,
        cluster=upstream.cluster,
        incarnation=upstream.incarnation,
        term=upstream.term if offset <= upstream.end else None,
    )


def beginning(upstream: UpstreamSplit) -> SplitState:
    """The position of the first record that the upstream has for the split."""
    return at_offset(upstream, upstream.start)


def split_order(split: str) -> tuple[str, int, str]:
    """A sort key for splits, with which ``orders:2`` comes before ``orders:10``."""
    topic, _, partition = split.rpartition(":")
    return (topic, int(partition), "") if partition.isdecimal() else (split, 0, split)
