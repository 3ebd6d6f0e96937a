"""How a split of the catalog compares with the upstream's: the STATUS of SHOW SOURCE SPLITS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.base import SplitState

if TYPE_CHECKING:
    from rw_sql.connectors.base import UpstreamSplit

OK = "OK"
NEW = "NEW"
ORPHAN = "ORPHAN"
EXPIRED = "EXPIRED"
AHEAD = "AHEAD"
RECREATED = "RECREATED"
OTHER_CLUSTER = "OTHER_CLUSTER"
UNKNOWN = "UNKNOWN"


def identity_status(state: SplitState, upstream: UpstreamSplit) -> str:
    """Whether a state belongs to this very split: OK, OTHER_CLUSTER, or RECREATED. What is unknown counts as equal."""
    if state.cluster and upstream.cluster and state.cluster != upstream.cluster:
        return OTHER_CLUSTER
    if state.incarnation and upstream.incarnation and state.incarnation != upstream.incarnation:
        return RECREATED
    return OK


def split_status(state: SplitState | None, upstream: UpstreamSplit | None) -> str:
    """How a split stands against the upstream, as SHOW SOURCE SPLITS says it."""
    if upstream is None:
        return ORPHAN
    if state is None:
        return NEW
    identity = identity_status(state, upstream)
    if identity != OK:
        return identity
    if state.offset < upstream.start:
        return EXPIRED
    return AHEAD if state.offset > upstream.end else OK


def identified(state: SplitState, upstream: UpstreamSplit) -> SplitState:
    """The state, marked as one of this very split."""
    return SplitState(
        split=state.split, offset=state.offset, cluster=upstream.cluster, incarnation=upstream.incarnation
    )


def beginning(upstream: UpstreamSplit) -> SplitState:
    """The split's first record."""
    return SplitState(
        split=upstream.split, offset=upstream.start, cluster=upstream.cluster, incarnation=upstream.incarnation
    )


def split_order(split: str) -> tuple[str, int, str]:
    """Sorts ``orders:2`` before ``orders:10``."""
    topic, _, partition = split.rpartition(":")
    return (topic, int(partition), "") if partition.isdigit() else (split, 0, split)
