"""Compares a split in the catalog with the upstream, for the column STATUS of SHOW SOURCE SPLITS."""

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
    """Compares the identity of a state with the upstream split, or with another state. Returns OK, OTHER_CLUSTER or
    RECREATED.

    Unknown values count as equal.
    """
    if state.cluster and upstream.cluster and state.cluster != upstream.cluster:
        return OTHER_CLUSTER
    known, seen = state.incarnation, upstream.incarnation
    return RECREATED if known and seen and not is_same_incarnation(known, seen) else OK


def is_known_same(state: SplitState, upstream: UpstreamSplit | SplitState) -> bool:
    """True if ``state`` and ``upstream`` both have a known cluster or both have a known incarnation, and the known
    values do not differ."""
    return (
        bool((state.cluster and upstream.cluster) or (state.incarnation and upstream.incarnation))
        and identity_status(state, upstream) == OK
    )


def is_emptied(upstream: UpstreamSplit) -> bool:
    """True if no record of the split can be read again, because the upstream has removed all of them. While the records
    of an existing split may be hidden, for example while the split has no leader, the upstream reports no
    incarnation."""
    return upstream.is_empty and (upstream.has_open_start or upstream.incarnation is not None)


def split_status(state: SplitState | None, upstream: UpstreamSplit | None) -> str:
    """The status of a split, as shown by SHOW SOURCE SPLITS."""
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

    Does the same as :func:`split_status`, but returns OK for a deleted split that was read completely (see
    :func:`still_asked`).
    """
    return OK if upstream is None and is_finished(kind, state) else split_status(state, upstream)


def is_finished(kind: Connector | None, state: SplitState | None) -> bool:
    """True if a source with this connector has read the split completely."""
    return state is not None and isinstance(kind, RangedConnector) and kind.is_finished(state)


def still_asked(
    kind: Connector, splits: tuple[str, ...], states: Mapping[str, SplitState], upstream: Upstream
) -> tuple[str, ...]:
    """Returns the splits that the upstream must still have. These are all splits except the deleted splits that were
    read completely."""
    return tuple(split for split in splits if split in upstream.splits or not is_finished(kind, states.get(split)))


def at_offset(upstream: UpstreamSplit, offset: int) -> SplitState:
    """Returns the position ``offset`` in a split, with the identity that the upstream reports for the split at present.

    The position gets the split's current term if the position is not after the end of the split's log. A position after
    that end gets no term, because the records between the end and the position do not exist yet and may be written in a
    later term.
    """
    return SplitState(
        split=upstream.split,
        offset=offset,
        cluster=upstream.cluster,
        incarnation=upstream.incarnation,
        term=upstream.term if offset <= upstream.end else None,
    )


def beginning(upstream: UpstreamSplit) -> SplitState:
    """The position of the split's first record."""
    return at_offset(upstream, upstream.start)


def split_order(split: str) -> tuple[str, int, str]:
    """A sort key that orders ``orders:2`` before ``orders:10``."""
    topic, _, partition = split.rpartition(":")
    return (topic, int(partition), "") if partition.isdecimal() else (split, 0, split)
