"""Determines which splits of a source the upstream no longer lists, and where these splits end. The end shows how many
of a split's records the source has not read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.connectors.base import Upstream, UpstreamSplit
from rw_sql.connectors.ranged import RangedConnector
from rw_sql.errors import first_names
from rw_sql.model.split_status import still_asked
from rw_sql.syntax.lexing.identifiers import sql_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from rw_sql.connectors.base import Connector, SplitState

_MOST_NAMED = 8


def unlisted(
    kind: Connector, splits: Iterable[str], states: Mapping[str, SplitState], upstream: Upstream
) -> tuple[str, ...]:
    """The splits that the upstream no longer lists and that the source has not read to their ends. A source stalls if
    one of these splits is assigned to it. The result is empty if the upstream does not respond."""
    if not upstream.is_reachable:
        return ()
    return tuple(s for s in still_asked(kind, tuple(splits), states, upstream) if s not in upstream.splits)


def finished_and_unlisted(
    kind: Connector, splits: Iterable[str], states: Mapping[str, SplitState], upstream: Upstream
) -> tuple[str, ...]:
    """The splits that the upstream no longer lists and that the source has read to their ends. These splits stay
    assigned and do not stall the source, but their records cannot be read again. The result is empty if the upstream
    does not respond."""
    if not upstream.is_reachable:
        return ()
    given = tuple(splits)
    asked = frozenset(still_asked(kind, given, states, upstream))
    return tuple(split for split in given if split not in asked)


def stall_notice(source_name: str, lost: Collection[str]) -> str:
    """The notice about splits that the upstream no longer lists and that the source has not read to their ends."""
    return (
        f"the upstream no longer lists {first_names(lost, _MOST_NAMED)}, which the source has not read to the end, so "
        f"the source stalls until RESET SOURCE SPLITS {sql_name(source_name)}"
    )


def with_stored_ends(left: Upstream | None, kind: Connector, states: Mapping[str, SplitState]) -> Upstream | None:
    """Adds splits to ``left``, the upstream that a source leaves, and returns the result. The added splits are those in
    ``states`` whose positions contain the end of the split.

    The added splits may no longer exist upstream. Therefore, numbers of unread records that are computed from the ends
    of these splits are upper limits.
    """
    if not isinstance(kind, RangedConnector):
        return left
    known = {
        split: UpstreamSplit(split=split, start=0, end=end, cluster=state.cluster, incarnation=state.incarnation)
        for split, state in states.items()
        if (end := kind.end_of(state)) is not None
    }
    if not known:
        return left
    base = left or Upstream()
    sparse = {kind.split_topic(split): "the end is known only from the source's position" for split in known}
    return replace(base, splits={**known, **base.splits}, sparse={**sparse, **base.sparse})
