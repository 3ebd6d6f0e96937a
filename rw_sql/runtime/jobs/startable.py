"""Whether a source's reader can start or go on at its positions; where it cannot, what to type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.ranged import RangedConnector
from rw_sql.model.split_status import AHEAD, EXPIRED, ORPHAN, OTHER_CLUSTER, RECREATED, split_status
from rw_sql.runtime.support.failures import StalledError
from rw_sql.syntax.lexing.identifiers import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.base import Connector, SplitState, Upstream

DISCOVERING = "DISCOVERING"
"""The first word of the reason of a reader that waits for its splits to be listed."""


def require_splits(splits: tuple[str, ...], upstream: Upstream) -> None:
    """Raises StalledError where the upstream does not answer, lacks what the source names, or nobody listed it yet."""
    if upstream.error is not None:
        raise StalledError(f"UNREACHABLE {upstream.error}")
    if upstream.missing:
        raise StalledError(f"MISSING topic {', '.join(upstream.missing)}")
    if not splits:
        raise StalledError(f"{DISCOVERING} the splits are not known yet")


def still_asked(
    kind: Connector, splits: tuple[str, ...], states: Mapping[str, SplitState], upstream: Upstream
) -> tuple[str, ...]:
    """The splits without those that are gone and were read to their ends: of these nothing is missed."""
    if not isinstance(kind, RangedConnector):
        return splits
    return tuple(
        split
        for split in splits
        if split in upstream.splits or split not in states or not kind.is_finished(states[split])
    )


def require_same(name: str, splits: tuple[str, ...], states: Mapping[str, SplitState], upstream: Upstream) -> None:
    """Raises StalledError where the upstream is not the one that the positions were taken from, with what to type.

    Where in it the positions lie is not asked: of a reader that runs they are older than the look.
    """
    by_status = _by_status(splits, states, upstream)
    for status in (OTHER_CLUSTER, RECREATED, ORPHAN):
        if found := by_status.get(status):
            raise StalledError(f"{status} {_few(found)}: RESET SOURCE SPLITS {quoted(name)}", is_final=True)


def require_readable(name: str, splits: tuple[str, ...], states: Mapping[str, SplitState], upstream: Upstream) -> None:
    """Raises StalledError where a reader cannot start at the positions, with what to type."""
    require_splits(splits, upstream)
    require_same(name, splits, states, upstream)
    by_status = _by_status(splits, states, upstream)
    for status, where in ((EXPIRED, "EARLIEST"), (AHEAD, "LATEST")):
        found = by_status.get(status)
        if not found:
            continue
        lost = sum(upstream.splits[split].start - states[split].offset for split in found)
        counted = f", {lost} records" if status == EXPIRED else ""
        # The others keep their place: moving them too would repeat what they have read.
        only = f" FOR SPLITS ({', '.join(literal(split) for split in found)})" if len(found) < len(splits) else ""
        raise StalledError(
            f"{status} {_few(found)}{counted}: PAUSE SOURCE {quoted(name)}; "
            f"INJECT SOURCE OFFSETS {quoted(name)} TO {where}{only}; RESUME SOURCE {quoted(name)}",
            is_final=True,
        )


def _by_status(splits: tuple[str, ...], states: Mapping[str, SplitState], upstream: Upstream) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for split in splits:
        found.setdefault(split_status(states.get(split), upstream.splits.get(split)), []).append(split)
    return found


def _few(splits: list[str]) -> str:
    return ", ".join(splits[:8])
